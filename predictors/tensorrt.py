"""TensorRT: ``graph`` is a serialized engine, or an ONNX file that an engine is built of.

This has never run on a GPU. It is written against NVIDIA's documentation of the Python interface.
Parsing and building were tested with TensorRT for RTX 1.x, which needs no GPU for that.

Versions: 10 and later.

Devices: cuda:N as the CUDA driver counts them.

Synchronises: copies and execution are queued on one stream, and cuStreamSynchronize waits for it.

Options, all for ONNX: ``precision``: tf32 (TensorRT's default), fp32 or fp16. ``max_batch``
(default: 64) and ``opt_batch`` (default: the same): the largest batch, and the batch that it is
tuned for, where the first axis is free. ``workspace``: bytes that a layer may use.
``optimization_level``: 0 to 5, the builder's. ``cache``: a file that keeps the timings of builds.

An engine of another version or GPU model is refused.

Layer times: IProfiler. They are durations without start times, so the layers are placed one after
another. Types are the engine inspector's, for engines that were built here.
"""

import importlib.util
import json
import os
import time
from typing import Any, Dict, List, NamedTuple

import numpy

try:
    import tensorrt
except ImportError:
    if importlib.util.find_spec("tensorrt_rtx") is None:
        raise
    import tensorrt_rtx as tensorrt
from mlms_predictors import (
    Arrays,
    Call,
    Devices,
    Load,
    Loaded,
    Outputs,
    Profile,
    Tensor,
    Versions,
)
from mlms_predictors._run.checks import check, refuse_unknown
from mlms_predictors._run.cuda import Buffers, Device
from mlms_predictors._run.gpus import count_gpus, gpu_devices
from mlms_predictors._run.shapes import shape_of
from mlms_predictors._run.timeline import in_turn
from mlms_predictors._tensorrt_engine import engine_error

OPTIONS = {
    "precision": ("tf32", "fp32", "fp16"),
    "max_batch": "int",
    "opt_batch": "int",
    "workspace": "int",
    "cache": "text",
    "optimization_level": "int",
}
CACHES = {"options": {"cache": "{caches}/timings"}}
_MAX_BATCH = 64


class Log(tensorrt.ILogger):
    """A logger that keeps messages: TensorRT's functions return None and say why here."""

    def __init__(self):
        tensorrt.ILogger.__init__(self)
        self.messages: List[str] = []

    def log(self, severity, text):
        """Keep a warning or error; TensorRT calls this."""
        if int(severity) <= int(tensorrt.ILogger.WARNING):
            self.messages.append(text)

    def reason(self):
        """Return the last messages."""
        return "; ".join(self.messages[-3:]) or "it gave no reason"


class _LayerTimes(tensorrt.IProfiler):
    """A profiler that keeps (layer, seconds), as TensorRT reports them after a call."""

    def __init__(self):
        tensorrt.IProfiler.__init__(self)
        self.taken: List[Any] = []

    def report_layer_time(self, layer_name, ms):
        self.taken.append((layer_name, ms / 1e3))


class _Model(NamedTuple):
    """An engine and what runs it.

    ``runtime`` must live as long as the engine. ``context`` and ``buffers`` are those of
    ``predict``, whose memory is kept for the next call, and ``bound`` has both for bound calls, by
    the shapes of their inputs: each context has the memory of a call.
    """

    engine: Any
    context: Any
    runtime: Any
    device: Device
    log: Log
    buffers: Buffers
    bound: Dict[Any, Any]


def versions() -> Versions:
    """Return the versions of the framework and of numpy."""
    return {"tensorrt": tensorrt.__version__, "numpy": numpy.__version__}


def devices() -> Devices:
    """Return the devices that a model can be loaded on in this process."""
    return gpu_devices(count_gpus())


def load(request: Load) -> Loaded:
    """Read or build an engine for the device asked for.

    Raises RuntimeError with TensorRT's reason where it can't.
    """
    options = refuse_unknown(request.options, OPTIONS)
    kind, _, text = request.device.partition(":")
    if kind != "cuda":
        raise ValueError("asked for %s; TensorRT runs on cuda:N" % request.device)
    index = int(text or 0)
    device = Device(index)
    log = Log()
    plan = _plan(request.files["graph"], options, log)
    runtime = tensorrt.Runtime(log)
    engine = runtime.deserialize_cuda_engine(plan)
    error = engine_error(engine is not None, log.messages, tensorrt.__version__)
    if error:
        raise RuntimeError(error)
    context = _context(engine, log)
    return Loaded(
        model=_Model(engine, context, runtime, device, log, Buffers(device), {}),
        device="cuda:%d" % index,
        threads=None,
        inputs=_tensors(engine, are_inputs=True),
        outputs=_tensors(engine, are_inputs=False),
    )


def predict(loaded: Loaded, arrays: Arrays) -> Outputs:
    """Run one batch; return the outputs in the model's order."""
    return _queue(loaded, arrays, loaded.model.context, loaded.model.buffers)()


def bind(loaded: Loaded, arrays: Arrays) -> Call:
    """Return ``predict`` on these arrays as a call without arguments, for the timed loop.

    Its memory is freed with the model.
    """
    model = loaded.model
    shapes = tuple((name, arrays[name].shape) for name in sorted(arrays))
    if shapes not in model.bound:
        model.bound[shapes] = _context(model.engine, model.log), Buffers(model.device)
    return _queue(loaded, arrays, *model.bound[shapes])


def layers(loaded: Loaded, arrays: Arrays) -> Profile:
    """Run one batch, the second time, and return how long each layer took."""
    context = _context(loaded.model.engine, loaded.model.log)
    call = _queue(loaded, arrays, context, loaded.model.buffers)
    call()
    times = _LayerTimes()
    context.profiler = times
    start = time.perf_counter()
    call()
    end = time.perf_counter()
    types = _layer_types(loaded.model.engine)
    ran = []
    for name, seconds in times.taken:
        ran.append((name, types.get(name, ""), seconds, None, None))
    return in_turn(start, end, ran)


def close(loaded: Loaded) -> None:
    """Free the GPU's memory of calls; the engine is freed with ``loaded``."""
    loaded.model.buffers.close()
    for _, buffers in loaded.model.bound.values():
        buffers.close()


def _context(engine, log):
    """Return a context with memory for a call; raises RuntimeError where there is none."""
    context = engine.create_execution_context()
    if context is None:
        raise RuntimeError("TensorRT can't make a context for calls: %s" % log.reason())
    return context


def _plan(path, options, log):
    """Return a serialized engine, built where the file is ONNX."""
    if path.endswith(".onnx"):
        return build(path, options, log)
    with open(path, "rb") as file:
        return file.read()


def build(path: str, options: Dict[str, Any], log: Log) -> Any:
    """Return the serialized engine of an ONNX file.

    Raises RuntimeError where it can't be read or built.
    """
    builder = tensorrt.Builder(log)
    network = builder.create_network(0)
    parser = tensorrt.OnnxParser(network, log)
    if not parser.parse_from_file(path):
        raise RuntimeError(_parser_errors(parser))
    config = builder.create_builder_config()
    config.profiling_verbosity = tensorrt.ProfilingVerbosity.DETAILED
    if "workspace" in options:
        config.set_memory_pool_limit(tensorrt.MemoryPoolType.WORKSPACE, options["workspace"])
    if "optimization_level" in options:
        config.builder_optimization_level = options["optimization_level"]
    _set_precision(config, options.get("precision", "tf32"))
    _set_batches(builder, network, config, options)
    cache = _read_cache(config, options.get("cache"))  # must live until the engine is built
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise RuntimeError("TensorRT can't build an engine of it: %s" % log.reason())
    if cache is not None:
        _write_cache(config, options["cache"])
    return plan


def _parser_errors(parser):
    errors = []
    for index in range(parser.num_errors):
        errors.append(str(parser.get_error(index)))
    return "; ".join(errors)


def _set_precision(config, precision):
    if precision == "fp32":
        config.clear_flag(tensorrt.BuilderFlag.TF32)
    elif precision == "fp16":
        if not hasattr(tensorrt.BuilderFlag, "FP16"):
            advice = "convert the ONNX file to fp16"
            raise ValueError("this TensorRT takes types from the file alone; " + advice)
        config.set_flag(tensorrt.BuilderFlag.FP16)


def _set_batches(builder, network, config, options):
    """Set the range of batch sizes where the first axis is free; refuse other free axes."""
    largest = options.get("max_batch", _MAX_BATCH)
    best = options.get("opt_batch", largest)
    profile = builder.create_optimization_profile()
    is_free = False
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        shape = tuple(tensor.shape)
        if -1 in shape[1:]:
            text = "input %r has free axes beside the first: %s"
            raise ValueError(text % (tensor.name, list(shape)))
        if shape and shape[0] == -1:
            rest = shape[1:]
            profile.set_shape(tensor.name, (1, *rest), (best, *rest), (largest, *rest))
            is_free = True
    if is_free:
        config.add_optimization_profile(profile)


def _read_cache(config, path):
    """Give the builder the timings of earlier builds; return None where it can't use them."""
    if not path or not hasattr(config, "create_timing_cache"):
        return None
    data = b""
    if os.path.exists(path):
        with open(path, "rb") as file:
            data = file.read()
    cache = config.create_timing_cache(data)
    if cache is not None and config.set_timing_cache(cache, ignore_mismatch=False):
        return cache
    return None


def _write_cache(config, path):
    """Write the timings atomically, since other builds may read or write them."""
    temporary = "%s.%d" % (path, os.getpid())
    with open(temporary, "wb") as file:
        file.write(memoryview(config.get_timing_cache().serialize()))
    os.replace(temporary, path)


def _queue(loaded, arrays, context, buffers):
    """Return the call for a batch, in the memory of ``buffers``."""
    check(loaded.inputs, arrays)
    model = loaded.model
    device = model.device
    feeds = []
    for tensor in loaded.inputs:
        array = numpy.ascontiguousarray(arrays[tensor.name])
        if not context.set_input_shape(tensor.name, array.shape):
            raise ValueError("input %r: %s" % (tensor.name, model.log.reason()))
        feeds.append((_place(context, buffers, tensor.name, array), array))
    fetches = []
    for tensor in loaded.outputs:
        shape = tuple(context.get_tensor_shape(tensor.name))
        array = numpy.empty(shape, tensor.dtype)
        fetches.append((_place(context, buffers, tensor.name, array), array))

    def call():
        for address, array in feeds:
            device.upload(address, array)
        if not context.execute_async_v3(device.stream):
            raise RuntimeError("TensorRT did not run it: %s" % model.log.reason())
        for address, array in fetches:
            device.download(array, address)
        device.synchronize()
        return [array.copy() for _, array in fetches]

    return call


def _place(context, buffers, name, array):
    """Give an input or output its memory on the GPU and return the address."""
    address = buffers.place(name, array.nbytes)
    context.set_tensor_address(name, address)
    return address


def _tensors(engine, are_inputs):
    found = []
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        is_input = engine.get_tensor_mode(name) == tensorrt.TensorIOMode.INPUT
        if is_input == are_inputs:
            found.append(_tensor(engine, name))
    return found


def _tensor(engine, name):
    dtype = tensorrt.nptype(engine.get_tensor_dtype(name))
    shape = shape_of(engine.get_tensor_shape(name))
    return Tensor(name, numpy.dtype(dtype).name, shape)


def _layer_types(engine):
    """Return the types of layers by name, of an engine that was built with details."""
    inspector = engine.create_engine_inspector()
    form = tensorrt.LayerInformationFormat.JSON
    types = {}
    for index in range(engine.num_layers):
        layer = json.loads(inspector.get_layer_information(index, form))
        if isinstance(layer, dict):
            types[layer["Name"]] = layer.get("LayerType", "")
    return types
