"""TensorRT: ``graph`` is a serialized engine, or an ONNX file that one is built of on the spot.

Never run by its authors: there was no machine for it. Written against NVIDIA's documentation of the
Python interface; parsing and building were tried with TensorRT for RTX 1.x, which needs no GPU for
that.

Versions: 10 and later. Devices: cuda:N as the CUDA driver counts them. Synchronises: copies and
execution are queued on one stream, and cuStreamSynchronize waits for it.

Options, all for ONNX: ``precision``: tf32 (TensorRT's default), fp32 or fp16. ``max_batch`` (64)
and ``opt_batch`` (the same): the largest batch, and the one that it is tuned for, where the first
axis is free. ``workspace``: bytes that a layer may use. ``cache``: a file that keeps the timings of
builds.

An engine of another version or GPU model is refused. Layer times: IProfiler, which tells how long
each layer took and not when it began: they are laid one after another. Types are the engine
inspector's, of engines that were built here.
"""

import importlib.util
import json
import os
import time
from typing import Any, List, NamedTuple

import numpy

try:
    import tensorrt
except ImportError:
    if importlib.util.find_spec("tensorrt_rtx") is None:
        raise
    import tensorrt_rtx as tensorrt
from mlms_predictors import Loaded, Tensor
from mlms_predictors._run.checks import check, refuse_unknown
from mlms_predictors._run.cuda import Device
from mlms_predictors._run.gpus import count_gpus
from mlms_predictors._run.timeline import in_turn
from mlms_predictors._tensorrt_engine import engine_fault

_OPTIONS = ("precision", "max_batch", "opt_batch", "workspace", "cache")


class _Log(tensorrt.ILogger):
    """What TensorRT says, kept: its functions return None and say why here."""

    def __init__(self):
        tensorrt.ILogger.__init__(self)
        self.said = []

    def log(self, severity, text):
        if int(severity) <= int(tensorrt.ILogger.WARNING):
            self.said.append(text)

    def why(self):
        """Return the last of what it said."""
        return "; ".join(self.said[-3:]) or "it gave no reason"


class _Model(NamedTuple):
    engine: Any
    context: Any
    device: Device
    log: _Log
    keep: List[Any]


def versions():
    """Return the versions of what computes."""
    return {"tensorrt": tensorrt.__version__, "numpy": numpy.__version__}


def devices():
    """Return the devices that a model can be loaded on, here and now."""
    return ["cuda:%d" % index for index in range(count_gpus())]


def load(request):
    """Read or build an engine for the device asked for.

    Raises RuntimeError with TensorRT's words where it can't.
    """
    options = refuse_unknown(request.options, _OPTIONS)
    kind, _, index = request.device.partition(":")
    if kind != "cuda":
        raise ValueError("asked for %s; TensorRT runs on cuda:N" % request.device)
    device, log = Device(int(index or 0)), _Log()
    path = request.files["graph"]
    if path.endswith(".onnx"):
        plan = build(path, options, log)
    else:
        with open(path, "rb") as file:
            plan = file.read()
    runtime = tensorrt.Runtime(log)
    engine = runtime.deserialize_cuda_engine(plan)
    fault = engine_fault(engine is not None, log.said, tensorrt.__version__)
    if fault:
        raise RuntimeError(fault)
    tensors = [(_mode(engine, name), _tensor(engine, name)) for name in _names(engine)]
    inputs = [tensor for mode, tensor in tensors if mode == tensorrt.TensorIOMode.INPUT]
    outputs = [tensor for mode, tensor in tensors if mode != tensorrt.TensorIOMode.INPUT]
    model = _Model(engine, engine.create_execution_context(), device, log, [runtime])
    return Loaded(model, "cuda:%d" % int(index or 0), None, inputs, outputs)


def predict(loaded, arrays):
    """Run one batch: arrays by input name in, a list of arrays in the model's order out."""
    call, addresses = _queue(loaded, arrays, loaded.model.context)
    try:
        return call()
    finally:
        for address in addresses:
            loaded.model.device.free(address)


def bind(loaded, arrays):
    """Return predict as a call without arguments: what the timed loop runs.

    Its memory lives as long as the model.
    """
    call, addresses = _queue(loaded, arrays, loaded.model.engine.create_execution_context())
    loaded.model.keep.extend(addresses)
    return call


def layers(loaded, arrays):
    """Run one batch, the second time, and return how long each layer took."""
    context = loaded.model.engine.create_execution_context()
    call, addresses = _queue(loaded, arrays, context)
    call()
    context.profiler = profiler = _Profiler()
    start = time.perf_counter()
    call()
    end = time.perf_counter()
    for address in addresses:
        loaded.model.device.free(address)
    kinds = _kinds(loaded.model.engine)
    return in_turn(
        start,
        end,
        [(name, kinds.get(name, ""), taken, None, None) for name, taken in profiler.taken],
    )


def close(loaded):
    """Give back the GPU's memory that bound calls hold."""
    for address in loaded.model.keep[1:]:
        loaded.model.device.free(address)


def build(path, options, log):
    """Return the serialized engine of an ONNX file."""
    builder = tensorrt.Builder(log)
    network = builder.create_network(0)
    parser = tensorrt.OnnxParser(network, log)
    if not parser.parse_from_file(path):
        raise RuntimeError(
            "; ".join(str(parser.get_error(index)) for index in range(parser.num_errors))
        )
    config = builder.create_builder_config()
    config.profiling_verbosity = tensorrt.ProfilingVerbosity.DETAILED
    if "workspace" in options:
        config.set_memory_pool_limit(tensorrt.MemoryPoolType.WORKSPACE, int(options["workspace"]))
    _set_precision(config, options.get("precision", "tf32"))
    _set_batches(builder, network, config, int(options.get("max_batch", 64)), options)
    cache = _read_cache(config, options.get("cache"))
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise RuntimeError("TensorRT can't build an engine of it: %s" % log.why())
    if cache is not None:
        _write_cache(config, options["cache"])
    return plan


def _set_precision(config, precision):
    if precision not in ("tf32", "fp32", "fp16"):
        raise ValueError("precision is %r; write one of tf32, fp32, fp16" % precision)
    if precision == "fp32":
        config.clear_flag(tensorrt.BuilderFlag.TF32)
    elif precision == "fp16":
        if not hasattr(tensorrt.BuilderFlag, "FP16"):
            raise ValueError(
                "this TensorRT takes types from the file alone; convert the ONNX file to fp16"
            )
        config.set_flag(tensorrt.BuilderFlag.FP16)


def _set_batches(builder, network, config, most, options):
    """Say which batches may come, where the first axis is free; other free axes are refused."""
    profile, free = builder.create_optimization_profile(), False
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        shape = tuple(tensor.shape)
        if -1 in shape[1:]:
            raise ValueError(
                "input %r has free axes beside the first: %s" % (tensor.name, list(shape))
            )
        if shape and shape[0] == -1:
            sizes = (1, int(options.get("opt_batch", most)), most)
            profile.set_shape(tensor.name, *[(size,) + shape[1:] for size in sizes])
            free = True
    if free:
        config.add_optimization_profile(profile)


def _read_cache(config, path):
    """Give the builder the timings of earlier builds, where it keeps any."""
    if not path or not hasattr(config, "create_timing_cache"):
        return None
    data = b""
    if os.path.exists(path):
        with open(path, "rb") as file:
            data = file.read()
    cache = config.create_timing_cache(data)
    return (
        cache
        if cache is not None and config.set_timing_cache(cache, ignore_mismatch=False)
        else None
    )


def _write_cache(config, path):
    """Write the timings under a name of our own first: other builds may read or write too."""
    temporary = "%s.%d" % (path, os.getpid())
    with open(temporary, "wb") as file:
        file.write(memoryview(config.get_timing_cache().serialize()))
    os.replace(temporary, path)


class _Profiler(tensorrt.IProfiler):
    """How long each layer took, in seconds, as TensorRT reports it after a call."""

    def __init__(self):
        tensorrt.IProfiler.__init__(self)
        self.taken = []

    def report_layer_time(self, layer_name, ms):
        self.taken.append((layer_name, ms / 1e3))


def _queue(loaded, arrays, context):
    """Return a call that uploads, runs, downloads and waits.

    And the addresses on the GPU that it uses.
    """
    check(loaded.inputs, arrays)
    device, feeds, addresses = loaded.model.device, [], []
    for tensor in loaded.inputs:
        array = numpy.ascontiguousarray(arrays[tensor.name])
        if not context.set_input_shape(tensor.name, array.shape):
            raise ValueError("input %r: %s" % (tensor.name, loaded.model.log.why()))
        feeds.append((_place(context, device, tensor.name, array, addresses), array))
    outputs = [
        numpy.empty(tuple(context.get_tensor_shape(tensor.name)), tensor.dtype)
        for tensor in loaded.outputs
    ]
    fetches = [
        (array, _place(context, device, tensor.name, array, addresses))
        for tensor, array in zip(loaded.outputs, outputs)
    ]

    def call():
        for address, array in feeds:
            device.upload(address, array)
        if not context.execute_async_v3(device.stream):
            raise RuntimeError("TensorRT did not run it: %s" % loaded.model.log.why())
        for array, address in fetches:
            device.download(array, address)
        device.synchronize()
        return [array.copy() for array in outputs]

    return call, addresses


def _place(context, device, name, array, addresses):
    address = device.allocate(array.nbytes)
    addresses.append(address)
    context.set_tensor_address(name, address)
    return address


def _names(engine):
    return [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]


def _mode(engine, name):
    return engine.get_tensor_mode(name)


def _tensor(engine, name):
    shape = tuple(None if size < 0 else int(size) for size in engine.get_tensor_shape(name))
    return Tensor(name, numpy.dtype(tensorrt.nptype(engine.get_tensor_dtype(name))).name, shape)


def _kinds(engine):
    """Return layer name -> type, of an engine that was built with details."""
    inspector, form = engine.create_engine_inspector(), tensorrt.LayerInformationFormat.JSON
    told = [
        json.loads(inspector.get_layer_information(index, form))
        for index in range(engine.num_layers)
    ]
    return {layer["Name"]: layer.get("LayerType", "") for layer in told if isinstance(layer, dict)}
