"""ONNX Runtime: ``graph`` is an ONNX file.

Versions: 1.17 and later. Devices: cpu, and cuda:N where this build has the CUDA execution provider
and the driver lists a GPU. Synchronises: session.run returns when its outputs are in host memory.

Options: ``provider``: cpu, cuda or tensorrt, which the device's own (cpu, cuda) is replaced by;
what the session then really uses is checked. ``optimization``: all (the default), extended, basic
or none. ``tf32``: whether a GPU may round to it. ``cache``: a folder where TensorRT keeps its
engines and timings.

Layer times: a second session with ONNX Runtime's own profiling, its runs from the second on as that
saw them (model_run); so nodes are those that are left once it has optimised. Inner outputs: a
second session with the outputs of all nodes of the file as outputs.
"""

import functools
import json
import os
import tempfile
import time
from typing import Any, Callable, NamedTuple

import numpy
import onnxruntime
from mlms_predictors import Layer, Loaded, Profile, Tensor
from mlms_predictors._onnxruntime_graph import with_all_outputs
from mlms_predictors._run.checks import refuse_unknown
from mlms_predictors._run.gpus import count_gpus

_OPTIONS = ("provider", "optimization", "tf32", "cache")
_PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}
_LEVELS = {"all": "ALL", "extended": "EXTENDED", "basic": "BASIC", "none": "DISABLE_ALL"}


class _Model(NamedTuple):
    """A session, the file that it is of, and a call that opens another.

    Open(path or bytes, profiles_prefix).
    """

    session: Any
    path: str
    open: Callable[..., Any]


def versions():
    """Return the versions of what computes."""
    return {"onnxruntime": onnxruntime.__version__, "numpy": numpy.__version__}


def devices():
    """Return the devices that a model can be loaded on, here and now."""
    gpus = count_gpus() if _PROVIDERS["cuda"] in onnxruntime.get_available_providers() else 0
    return ["cpu"] + ["cuda:%d" % index for index in range(gpus)]


def load(request):
    """Open a session on the device asked for.

    Raises RuntimeError where ONNX Runtime would fall back to another.
    """
    options = refuse_unknown(request.options, _OPTIONS)
    providers = _providers(request.device, options)
    make = functools.partial(_open, request, options.get("optimization", "all"), providers)
    session = make(request.files["graph"])
    used = session.get_providers()
    if used[0] != providers[0][0]:
        raise RuntimeError("asked for %s, ONNX Runtime would use %s" % (providers[0][0], used[0]))
    session.disable_fallback()
    threads = session.get_session_options().intra_op_num_threads or None  # 0 is its own choice
    inputs, outputs = session.get_inputs(), session.get_outputs()
    model = _Model(session, request.files["graph"], make)
    return Loaded(model, request.device, threads, _tensors(inputs), _tensors(outputs))


def predict(loaded, arrays):
    """Run one batch: arrays by input name in, a list of arrays in the model's order out."""
    return loaded.model.session.run(None, arrays)


def bind(loaded, arrays):
    """Return predict as a call without arguments: what the timed loop runs."""
    return functools.partial(loaded.model.session.run, None, arrays)


def layers(loaded, arrays):
    """Run one batch and return when each node ran."""
    return profiles(loaded, arrays, 1)[0]


def profiles(loaded, arrays, count):
    """Run one batch ``count`` times in one session, warmed up, and return of each when its nodes
    ran.
    """
    with tempfile.TemporaryDirectory() as folder:
        session = loaded.model.open(loaded.model.path, os.path.join(folder, "profile"))
        session.run(None, arrays)
        starts = []
        for _ in range(count):
            starts.append(time.perf_counter())
            session.run(None, arrays)
        with open(session.end_profiling()) as file:
            events = json.load(file)
    runs = sorted(
        (event for event in events if event.get("name") == "model_run"),
        key=lambda event: event["ts"],
    )
    nodes = [
        event
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    ]
    if len(runs) != count + 1:  # it drops events once there are a million
        raise RuntimeError("ONNX Runtime's profile has %d of %d runs" % (len(runs), count + 1))
    return [_profile(start, run, nodes) for start, run in zip(starts, runs[1:])]


def inner(loaded, arrays):
    """Run one batch and return what each node gave, by the names of the values in the file."""
    with open(loaded.model.path, "rb") as file:
        model, names = with_all_outputs(file.read())
    given = loaded.model.open(model).run(names, arrays)
    return [(name, array) for name, array in zip(names, given) if isinstance(array, numpy.ndarray)]


def _open(request, level, providers, model, profile=None):
    options = onnxruntime.SessionOptions()
    if level not in _LEVELS:
        raise ValueError("optimization is %r; write one of %s" % (level, ", ".join(_LEVELS)))
    options.graph_optimization_level = getattr(
        onnxruntime.GraphOptimizationLevel, "ORT_%s" % _level(level)
    )
    if request.threads:
        options.intra_op_num_threads = request.threads
    if profile:
        options.enable_profiling, options.profile_file_prefix = True, profile
    if isinstance(model, bytes):  # weights beside the file are looked for there still
        folder = os.path.dirname(request.files["graph"])
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", folder
        )
    return onnxruntime.InferenceSession(model, options, providers=providers)


def _level(name):
    return _LEVELS[name] if name == "none" else "ENABLE_" + _LEVELS[name]


def _providers(device, options):
    """Return the providers to ask for, in order, with their options.

    TensorRT leaves to CUDA what it can't run.
    """
    kind, _, index = device.partition(":")
    name = options.get("provider", kind)
    if name not in _PROVIDERS or (name == "cpu") != (kind == "cpu"):
        raise ValueError(
            "provider is %r on %s; write cpu, or on a GPU cuda or tensorrt" % (name, device)
        )
    if _PROVIDERS[name] not in onnxruntime.get_available_providers():
        raise RuntimeError(
            "this build of ONNX Runtime has no %s; install onnxruntime-gpu" % _PROVIDERS[name]
        )
    if name == "cpu":
        return [(_PROVIDERS["cpu"], {})]
    cuda = {"device_id": index or "0"}
    if "tf32" in options:
        cuda["use_tf32"] = str(int(options["tf32"]))
    providers = [(_PROVIDERS["cuda"], cuda)]
    if name == "tensorrt":
        engine = {"device_id": index or "0"}
        if "cache" in options:
            engine.update(trt_engine_cache_enable="1", trt_timing_cache_enable="1")
            engine.update(
                trt_engine_cache_path=options["cache"], trt_timing_cache_path=options["cache"]
            )
        providers.insert(0, (_PROVIDERS["tensorrt"], engine))
    return providers


def _profile(start, run, nodes):
    """Return one run's Profile, without the way from Python and back."""
    end, offset, last = start + run["dur"] / 1e6, start - run["ts"] / 1e6, run["ts"] + run["dur"]
    found = [_layer(node, offset, end) for node in nodes if run["ts"] <= node["ts"] <= last]
    return Profile(start, end, sorted(found, key=lambda layer: layer.start))


def _layer(event, offset, last):
    start, facts = event["ts"] / 1e6 + offset, event["args"]
    shape = next(
        (shape for kinds in facts.get("output_type_shape", [])[:1] for shape in kinds.values()),
        None,
    )
    size = int(facts["output_size"]) if facts.get("output_size") else None
    name = event["name"][: -len("_kernel_time")]
    end = min(start + event["dur"] / 1e6, last)
    return Layer(
        name, facts["op_name"], start, end, size, tuple(shape) if shape is not None else None
    )


def _tensors(values):
    return [
        Tensor(value.name, _dtype(value.type), tuple(map(_axis, value.shape))) for value in values
    ]


def _dtype(kind):
    """Turn ``tensor(float)`` into numpy's name."""
    name = kind[len("tensor(") : -1] if kind.startswith("tensor(") else kind
    return {"float": "float32", "double": "float64"}.get(name, name)


def _axis(size):
    return size if isinstance(size, int) else None
