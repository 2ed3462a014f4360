"""JAX: ``graph`` is StableHLO as jax.export serializes it.

Versions: 0.6 and later; tested with 0.10.2.

Devices: cpu, and cuda:N where the CUDA plugin is installed and the driver lists a GPU.

Synchronises: outputs are copied to host memory, which waits for them. For layers it calls
``block_until_ready``.

Options: ``precision`` of matrix products on a GPU: default, high (three passes of TF32) or highest
(float32). ``jax_NAME`` is given to ``jax.config.update``, as ``jax_enable_x64: true``.

Compiles for each new shape, when the first batch of that shape arrives. XLA sets its number of
threads when it starts in a process; a second model with another number is refused.

For a model on the CPU XLA starts there alone, unless JAX_PLATFORMS is set. On a GPU it takes memory
as it needs it (XLA_PYTHON_CLIENT_PREALLOCATE=false), unless a variable of its allocator is set.

Layer times: the events of jax.profiler for the operations that XLA compiled. One of them is often
several operations of the model, fused.
"""

import glob
import importlib.util
import os
import re
import tempfile
import time
from typing import Any, Dict, List, NamedTuple, Optional

import jax
import jaxlib
import numpy
from jax import export
from mlms_predictors import (
    Arrays,
    Call,
    CountedBytes,
    Devices,
    Layer,
    Load,
    Loaded,
    Outputs,
    Profile,
    Tensor,
    Versions,
)
from mlms_predictors._run.checks import check, refuse_unknown
from mlms_predictors._run.gpus import count_gpus, gpu_devices, take_as_needed
from mlms_predictors._run.products import prod
from mlms_predictors._run.shapes import shape_of

OPTIONS = {
    "precision": ("default", "high", "highest"),
    "jax_enable_x64": "bool",
    "jax_disable_jit": "bool",
    "jax_debug_nans": "bool",
    "jax_numpy_rank_promotion": ("allow", "warn", "raise"),
    "jax_*": "any",
}
CACHES = {
    "env": {
        "JAX_COMPILATION_CACHE_DIR": "{caches}",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
}
_GPU_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")
_INSTRUCTION = re.compile(
    r"""
    ^\s* (?:ROOT[ ])? %? (?P<name> [\w.\-]+)
    [ ]=[ ] \(? (?P<dtype> \w+) \[ (?P<sizes> [\d,]*) \]
    \S* ,? (?: .* \) )? [ ] (?P<opcode> [\w\-]+) \(
    """,
    re.MULTILINE | re.VERBOSE,
)
"""An instruction in XLA's text, with the type of its first output."""
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
_CALLED = re.compile(
    r"""custom_call [ ]* @ ("[^"]*" | [\w$.\-]+) | call_target_name [ ]* = [ ]* ("[^"]*")
    | stablehlo\.(infeed|outfeed|send|recv)\b""",
    re.VERBOSE,
)
"""A call outside of StableHLO in a module's text, or an exchange with a host."""
_COMPUTES = re.compile(
    r"""Sharding | SPMD\w+ | xla\.sdy\.\w+ | annotate_device_placement | shape_assertion
    | (cu|hip|lapack_|ducc_|dynamic_ducc_|cuda_|hip_)\w+ | (stablehlo|chlo|mhlo)\.\w+
    | Qr | Eigh | LuDecomposition | ProductOfElementaryHouseholderReflectors | ApproxTopK | TopK
    | __gpu\$TopK""",
    re.VERBOSE,
)
"""Functions of XLA's libraries; others call back into Python, or run compiled code of the file."""
_NANOSECONDS = 1e9
_REGION = "mlms"

_OF_MEMORY = (
    "XLA_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
)
"""Variables of XLA's allocator on a GPU, beside that of taking 75 % of the memory at its start."""

_threads_of_xla: List[Optional[str]] = []
"""The number of threads that XLA was started with here, or None for its own choice."""


class _Model(NamedTuple):
    """A jitted call, its device, and what was compiled for each tuple of input shapes.

    ``peak_before`` is the peak of the device's memory before this model, in bytes.
    """

    call: Any
    device: Any
    compiled: Dict[Any, Any]
    peak_before: int


class _Event(NamedTuple):
    """An event of the profiler; ``operation`` is None where it is none of XLA's operations."""

    name: str
    start: float
    seconds: float
    operation: Optional[str]


class _Instruction(NamedTuple):
    """An operation that XLA compiled; ``bytes`` is None for a type whose size is not known."""

    opcode: str
    bytes: Optional[int]
    shape: Any


_UNKNOWN = _Instruction("unknown", None, None)


def versions() -> Versions:
    """Return the versions of the framework and of numpy."""
    return {"jax": jax.__version__, "jaxlib": jaxlib.__version__, "numpy": numpy.__version__}


def devices() -> Devices:
    """Return the devices that a model can be loaded on in this process.

    This does not start XLA.
    """
    count = 0
    if any(importlib.util.find_spec(plugin) for plugin in _GPU_PLUGINS):
        count = count_gpus()
    return ["cpu", *gpu_devices(count)]


def load(request: Load) -> Loaded:
    """Read the file; raises RuntimeError where it is none, or isn't for the device."""
    options = refuse_unknown(request.options, OPTIONS)
    jax.config.update("jax_default_matmul_precision", options.get("precision", "default"))
    for name, value in options.items():
        if name.startswith("jax_"):
            _set(name, value)
    exported = _read(request.files["graph"])
    if not request.allow_code:
        _check_calls(exported.mlir_module())
    kind, _, index = request.device.partition(":")
    if kind not in exported.platforms:
        platforms = ", ".join(exported.platforms)
        raise RuntimeError("it was exported for %s, not for %s" % (platforms, kind))
    facts = None
    if kind != "cpu":
        facts = take_as_needed("XLA_PYTHON_CLIENT_PREALLOCATE", "false", _OF_MEMORY)
    elif not jax.config.jax_platforms:  # by itself XLA starts on the machine's GPUs, too
        jax.config.update("jax_platforms", kind)
    _start(request.threads)
    device = jax.devices(kind)[int(index or 0)]
    return Loaded(
        model=_Model(jax.jit(exported.call), device, {}, _peak_bytes(device)),
        device="cpu" if device.platform == "cpu" else "cuda:%d" % device.id,
        threads=request.threads,
        inputs=_inputs(exported),
        outputs=_tensors(exported.out_tree, exported.out_avals),
        device_facts=facts,
    )


def predict(loaded: Loaded, arrays: Arrays) -> Outputs:
    """Run one batch; return the outputs in the model's order."""
    return bind(loaded, arrays)()


def bind(loaded: Loaded, arrays: Arrays) -> Call:
    """Return ``predict`` on these arrays as a call without arguments, for the timed loop."""
    compiled = _compiled(loaded, arrays)
    flat = jax.tree_util.tree_leaves
    asarray = numpy.asarray
    if loaded.device == "cpu":
        return lambda: [asarray(leaf) for leaf in flat(compiled(**arrays))]
    put = jax.device_put
    device = loaded.model.device
    return lambda: [asarray(leaf) for leaf in flat(compiled(**put(arrays, device)))]


def device_memory(loaded: Loaded) -> CountedBytes:
    """Return the peak of what arrays and compiled programs used of XLA's pool on a GPU.

    XLA's counter can't be reset, and tells nothing of a model that needs less than one before it.
    """
    peak = _peak_bytes(loaded.model.device)
    return {"jax.Device.memory_stats": peak} if peak > loaded.model.peak_before else {}


def layers(loaded: Loaded, arrays: Arrays) -> Profile:
    """Run one batch and return when each of XLA's operations ran."""
    compiled = _compiled(loaded, arrays)
    placed = jax.device_put(arrays, loaded.model.device)
    jax.block_until_ready(compiled(**placed))
    with tempfile.TemporaryDirectory() as folder:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        with jax.profiler.trace(folder, profiler_options=options):
            start = time.perf_counter()
            with jax.profiler.TraceAnnotation(_REGION):
                jax.block_until_ready(compiled(**placed))
            end = time.perf_counter()
        events = _events(folder, "" if loaded.device == "cpu" else "/device:")
    region = next(event for event in events if event.name == _REGION)
    offset = start - region.start
    instructions = _instructions(compiled.as_text())
    found = []
    for event in sorted(events, key=lambda event: event.start):
        if event.operation is not None:
            instruction = instructions.get(event.operation, _UNKNOWN)
            found.append(_layer(event, instruction, offset))
    return Profile(start, end, found)


def takes_cupti(loaded: Loaded) -> bool:
    """Return whether layers are read by CUPTI: on a GPU jax.profiler does."""
    return loaded.device != "cpu"


def close(loaded: Loaded) -> None:
    """Drop the compiled calls."""
    loaded.model.compiled.clear()


def _peak_bytes(device):
    """Return XLA's peak of a GPU's memory, 0 where its allocator doesn't count it."""
    if device.platform == "cpu":
        return 0
    return (device.memory_stats() or {}).get("peak_bytes_in_use", 0)


def _set(name, value):
    """Set a value of JAX's configuration, which is one of the whole process."""
    try:
        jax.config.update(name, value)
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError("jax.config takes no %s: %r: %s" % (name, value, error)) from error


def _read(path):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    try:
        return export.deserialize(data)
    except Exception as error:  # flatbuffers raises whatever comes of reading another format
        text = "it is no file of jax.export, or of a newer version: %r"
        raise RuntimeError(text % error) from error


def _check_calls(text):
    """Raise RuntimeError where a module calls more than XLA's libraries."""
    for match in _CALLED.finditer(text):
        name = (match[1] or match[2] or match[3]).strip('"')
        if not _COMPUTES.fullmatch(name):
            advice = "allow it with --mlms-allow-code"
            raise RuntimeError("it calls %.80s, which may be code; %s" % (name, advice))


def _start(threads):
    """Set XLA's number of threads, which it reads with the first request for a device."""
    asked = str(threads) if threads else None
    if not _threads_of_xla:
        _threads_of_xla.append(asked)
    if _threads_of_xla[0] != asked:
        text = "XLA runs with %s threads in this process; another number needs a new one"
        raise RuntimeError(text % _threads_of_xla[0])
    if asked:
        os.environ["NPROC"] = asked  # tsl's DefaultThreadPoolSize


def _inputs(exported):
    """Return the inputs, which are arguments by name: keys of the second part of (args, kwargs)."""
    _, arguments = jax.tree_util.tree_unflatten(exported.in_tree, exported.in_avals)
    inputs = _named_tensors(arguments)
    names = [tensor.name for tensor in inputs]
    by_name = jax.tree_util.tree_structure(((), dict.fromkeys(names, 0)))
    if exported.in_tree != by_name:
        advice = "export a function that is called with arrays by name"
        raise RuntimeError("its inputs have no names; " + advice)
    return inputs


def _tensors(tree, avals):
    return _named_tensors(jax.tree_util.tree_unflatten(tree, avals))


def _named_tensors(tree):
    """Return the leaves of a tree of abstract arrays as Tensors, named by their keys."""
    found = []
    for path, aval in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = "/".join(_key(part) for part in path)
        shape = shape_of(aval.shape)
        found.append(Tensor(name or "output", aval.dtype.name, shape))
    return found


def _key(part):
    """Return a dict's key or a sequence's index out of a path in a tree."""
    for attribute in ("key", "idx"):
        if hasattr(part, attribute):
            return str(getattr(part, attribute))
    return str(part)


def _compiled(loaded, arrays):
    """Return what was compiled for arrays of these shapes."""
    check(loaded.inputs, arrays)
    model = loaded.model
    shapes = tuple(arrays[tensor.name].shape for tensor in loaded.inputs)
    if shapes not in model.compiled:
        with jax.default_device(model.device):
            model.compiled[shapes] = model.call.lower(**arrays).compile()
    return model.compiled[shapes]


def _events(folder, computing):
    """Return the events of all threads in the profile that a folder holds.

    Operations are those of the planes whose names begin with ``computing``: a GPU's own, as the
    host's planes have their launches.
    """
    pattern = os.path.join(folder, "**", "*.xplane.pb")
    path = glob.glob(pattern, recursive=True)[0]
    found = []
    for plane in jax.profiler.ProfileData.from_file(path).planes:
        for line in plane.lines:
            for event in line.events:
                start = event.start_ns / _NANOSECONDS
                seconds = event.duration_ns / _NANOSECONDS
                operation = None
                if plane.name.startswith(computing):
                    operation = dict(event.stats).get("hlo_op")
                found.append(_Event(event.name, start, seconds, operation))
    return found


def _instructions(text):
    """Return the instructions in XLA's text by name."""
    found = {}
    for match in _INSTRUCTION.finditer(text):
        name, dtype, sizes, opcode = match.groups()
        shape = tuple(int(size) for size in re.findall(r"\d+", sizes))
        size = None
        if dtype in _BYTES:
            size = _BYTES[dtype] * prod(shape)
        found[name] = _Instruction(opcode, size, shape)
    return found


def _layer(event, instruction, offset):
    start = event.start + offset
    return Layer(
        name=event.operation,
        type=instruction.opcode,
        start=start,
        end=start + event.seconds,
        bytes=instruction.bytes,
        shape=instruction.shape,
    )
