"""JAX: ``graph`` is StableHLO as jax.export serializes it.

Versions: 0.6 and later; tried with 0.10.2. Devices: cpu, and cuda:N where the CUDA plugin is
installed and the driver lists a GPU. Synchronises: outputs are copied to host memory, which waits
for them; for layers block_until_ready.

Options: ``precision``: that of matrix products on a GPU: default, high (TF32 thrice) or highest
(float32).

Compiles for each new shape, when a batch of it is first seen. Threads: XLA takes its number once,
when it starts in a process; a second model with another number is refused.

Layer times: jax.profiler's events of the operations that XLA compiled, which are often several of
the model's, fused.
"""

import glob
import importlib.util
import os
import re
import tempfile
import time
from typing import Any, Dict, NamedTuple

import jax
import jaxlib
import numpy
from jax import export
from mlms_predictors import Layer, Loaded, Profile, Tensor
from mlms_predictors._run.checks import check, refuse_unknown
from mlms_predictors._run.gpus import count_gpus

_OPTIONS = ("precision",)
_PRECISIONS = ("default", "high", "highest")
_INSTRUCTION = re.compile(
    r"^\s*(?:ROOT )?%?([\w.\-]+) = \(?(\w+)\[([\d,]*)\]\S*,?(?:.*\))? ([\w\-]+)\(", re.MULTILINE
)
_BYTES = {
    "pred": 1,
    "s8": 1,
    "u8": 1,
    "bf16": 2,
    "f16": 2,
    "s16": 2,
    "u16": 2,
    "f32": 4,
    "s32": 4,
    "u32": 4,
}


class _Model(NamedTuple):
    """The jitted call, its device, and what was compiled for each shape."""

    call: Any
    device: Any
    compiled: Dict[Any, Any]


def versions():
    """Return the versions of what computes."""
    return {"jax": jax.__version__, "jaxlib": jaxlib.__version__, "numpy": numpy.__version__}


def devices():
    """Return the devices that a model can be loaded on, here and now.

    XLA isn't started for that.
    """
    plugins = ("jax_cuda12_plugin", "jax_cuda13_plugin")
    gpus = count_gpus() if any(map(importlib.util.find_spec, plugins)) else 0
    return ["cpu"] + ["cuda:%d" % index for index in range(gpus)]


def load(request):
    """Read the file; raises RuntimeError where it is none, or isn't for the device."""
    options = refuse_unknown(request.options, _OPTIONS)
    precision = options.get("precision", "default")
    if precision not in _PRECISIONS:
        raise ValueError("precision is %r; write one of %s" % (precision, ", ".join(_PRECISIONS)))
    jax.config.update("jax_default_matmul_precision", precision)
    exported = _read(request.files["graph"])
    kind, _, index = request.device.partition(":")
    if kind not in exported.platforms:
        raise RuntimeError(
            "it was exported for %s, not for %s" % (", ".join(exported.platforms), kind)
        )
    device = _start(kind, int(index or 0), request.threads)
    inputs = _tensors(
        exported.in_avals, jax.tree_util.tree_unflatten(exported.in_tree, exported.in_avals)[1]
    )
    outputs = _tensors(
        exported.out_avals, jax.tree_util.tree_unflatten(exported.out_tree, exported.out_avals)
    )
    model = _Model(jax.jit(exported.call), device, {})
    names = [tensor.name for tensor in inputs]
    if exported.in_tree != jax.tree_util.tree_structure(((), dict.fromkeys(names, 0))):
        raise RuntimeError(
            "its inputs have no names; export a function that is called with arrays by name"
        )
    return Loaded(model, _name_of(device), request.threads, inputs, outputs)


def predict(loaded, arrays):
    """Run one batch: arrays by input name in, a list of arrays in the model's order out."""
    return bind(loaded, arrays)()


def bind(loaded, arrays):
    """Return predict as a call without arguments: what the timed loop runs."""
    compiled, flat, asarray = _compiled(loaded, arrays), jax.tree_util.tree_leaves, numpy.asarray
    if loaded.device == "cpu":
        return lambda: [asarray(leaf) for leaf in flat(compiled(**arrays))]
    put, device = jax.device_put, loaded.model.device
    return lambda: [asarray(leaf) for leaf in flat(compiled(**put(arrays, device)))]


def layers(loaded, arrays):
    """Run one batch and return when each of XLA's operations ran."""
    compiled = _compiled(loaded, arrays)
    placed = jax.device_put(arrays, loaded.model.device)
    jax.block_until_ready(compiled(**placed))
    with tempfile.TemporaryDirectory() as folder:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        with jax.profiler.trace(folder, profiler_options=options):
            start = time.perf_counter()
            with jax.profiler.TraceAnnotation("mlms"):
                jax.block_until_ready(compiled(**placed))
            end = time.perf_counter()
        path = glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True)[0]
        events = [
            event
            for plane in jax.profiler.ProfileData.from_file(path).planes
            for event in _events(plane)
        ]
    origin = next(event.start_ns for event, _ in events if event.name == "mlms")
    about = {match[0]: match[1:] for match in _INSTRUCTION.findall(compiled.as_text())}
    found = [(event, stats["hlo_op"]) for event, stats in events if "hlo_op" in stats]
    made = [_layer(name, about.get(name), event, start - origin / 1e9) for event, name in found]
    return Profile(start, end, sorted(made, key=lambda layer: layer.start))


def close(loaded):
    """Drop what was compiled."""
    loaded.model.compiled.clear()


def _read(path):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    try:
        return export.deserialize(data)
    except Exception as error:  # flatbuffers raises whatever comes of reading another format
        raise RuntimeError(
            "it is no file of jax.export, or of a newer version: %r" % error
        ) from error


def _start(kind, index, threads):
    """Return the device; XLA starts with the first question for one, and then takes its number of
    threads.
    """
    asked = str(threads) if threads else None
    if getattr(_start, "threads", asked) != asked:
        raise RuntimeError(
            "XLA runs with %s threads in this process; another number needs a new one"
            % _start.threads
        )
    if asked:
        os.environ["NPROC"] = asked  # tsl's DefaultThreadPoolSize
    _start.threads = asked
    return jax.devices(kind)[index]


def _name_of(device):
    return "cpu" if device.platform == "cpu" else "cuda:%d" % device.id


def _tensors(avals, tree):
    """Name what a tree of arrays holds by its keys, in the order of its leaves."""
    paths = jax.tree_util.tree_flatten_with_path(tree)[0]
    names = [
        "/".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path)
        for path, _ in paths
    ]
    return [
        Tensor(
            name or "output",
            aval.dtype.name,
            tuple(size if isinstance(size, int) else None for size in aval.shape),
        )
        for name, aval in zip(names, avals)
    ]


def _compiled(loaded, arrays):
    """Return what was compiled for arrays of these shapes."""
    check(loaded.inputs, arrays)
    model, key = loaded.model, tuple(arrays[tensor.name].shape for tensor in loaded.inputs)
    if key not in model.compiled:
        with jax.default_device(model.device):
            model.compiled[key] = model.call.lower(**arrays).compile()
    return model.compiled[key]


def _events(plane):
    return [(event, dict(event.stats)) for line in plane.lines for event in line.events]


def _layer(name, about, event, offset):
    kind, sizes, opcode = about or (None, None, "unknown")
    shape = tuple(int(size) for size in sizes.split(",") if size) if about else None
    size = _BYTES[kind] * int(numpy.prod(shape)) if kind in _BYTES else None
    start = event.start_ns / 1e9 + offset
    return Layer(name, opcode, start, start + event.duration_ns / 1e9, size, shape)
