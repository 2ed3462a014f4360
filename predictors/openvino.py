"""OpenVINO: ``graph`` is an ONNX file, or an .xml whose .bin is ``weights``.

Versions: 2023.1 and later; tried with 2026.4. Devices: cpu. Synchronises: an infer request's infer
returns when its outputs are in host memory.

Options: ``precision``: f32 (the default here; OpenVINO's own is bf16 on some CPUs), bf16 or f16.
``hint``: latency (the default) or throughput.

Layer times: OpenVINO's profiler (PERF_COUNT, get_profiling_info), in microseconds, of the second
call of a compilation made for it. It tells how long each node took and not when: they are laid one
after another. What was fused into another node has no time and is left out. Inner outputs: those of
every named node, by a compilation in which each is an output of the model, so that fewer are fused.
"""

import time
from typing import Any, Dict, List, NamedTuple

import numpy
import openvino
from mlms_predictors import Loaded, Tensor
from mlms_predictors._run.checks import check, refuse_gpu, refuse_unknown
from mlms_predictors._run.timeline import in_turn

_OPTIONS = ("precision", "hint")
_PRECISIONS = ("f32", "bf16", "f16")
_HINTS = ("latency", "throughput")


class _Model(NamedTuple):
    """``compiled`` runs by ``request``.

    ``source`` and ``config`` are to compile it again, ``again`` keeps inner's.
    """

    compiled: Any
    request: Any
    source: Any
    config: Dict[str, Any]
    again: List[Any]


def versions():
    """Return the versions of what computes; OpenVINO's own without its build."""
    return {"openvino": openvino.__version__.partition("-")[0], "numpy": numpy.__version__}


def devices():
    """Return the devices that a model can be loaded on, here and now."""
    return ["cpu"]


def load(request):
    """Read and compile a model; raises RuntimeError where OpenVINO would use another device."""
    refuse_gpu(request.device, "OpenVINO")
    config = _config(refuse_unknown(request.options, _OPTIONS), request.threads)
    source = openvino.Core().read_model(request.files["graph"], request.files.get("weights", ""))
    compiled = openvino.Core().compile_model(source, "CPU", config)
    used = compiled.get_property("EXECUTION_DEVICES")
    if list(used) != ["CPU"]:
        raise RuntimeError("asked for CPU, OpenVINO would use %s" % ", ".join(used))
    model = _Model(compiled, compiled.create_infer_request(), source, config, [])
    threads = compiled.get_property("INFERENCE_NUM_THREADS")
    return Loaded(model, "cpu", threads, _tensors(compiled.inputs), _tensors(compiled.outputs))


def predict(loaded, arrays):
    """Run one batch: arrays by input name in, a list of arrays in the model's order out.

    The next call reuses them.
    """
    return _bound(loaded, loaded.model.request, arrays)()


def bind(loaded, arrays):
    """Return predict as a call without arguments, with an infer request of its own.

    What the timed loop runs.
    """
    return _bound(loaded, loaded.model.compiled.create_infer_request(), arrays)


def layers(loaded, arrays):
    """Run one batch under OpenVINO's profiler and return how long each node took."""
    model = loaded.model
    config = dict(model.config, PERF_COUNT=True)
    request = openvino.Core().compile_model(model.source, "CPU", config).create_infer_request()
    call = _bound(loaded, request, arrays)
    call()  # it also prepares for the shape, within its nodes' times
    first = _took(request)
    start = time.perf_counter()
    call()
    end = time.perf_counter()
    mean = _took(request)  # the profiler gives the mean of all calls so far
    ran = [(*node, max(0, 2 * mean[node] - first.get(node, 0)), None, None) for node in mean]
    return in_turn(start, end, ran)


def inner(loaded, arrays):
    """Run one batch and return what each node gave that has a name in the model."""
    model = loaded.model
    if not model.again:
        opened = model.source.clone()
        values = [node.output(0) for node in opened.get_ordered_ops() if _computes(node)]
        names = [value.any_name for value in values]
        opened.add_outputs([value for value in values if not _is_output(value)])
        model.again.extend([openvino.Core().compile_model(opened, "CPU", model.config), names])
    compiled, names = model.again
    request = compiled.create_infer_request()
    _bound(loaded, request, arrays)()
    return [(name, request.get_tensor(name).data.copy()) for name in names]


def _config(options, threads):
    precision, hint = options.get("precision", "f32"), options.get("hint", "latency")
    for name, value, known in (("precision", precision, _PRECISIONS), ("hint", hint, _HINTS)):
        if value not in known:
            raise ValueError("%s is %r; write one of %s" % (name, value, ", ".join(known)))
    config = {"INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": hint.upper()}
    return dict(config, INFERENCE_NUM_THREADS=threads) if threads else config


def _took(request):
    """Return the seconds of each (node, type) that ran, in order."""
    ran = [info for info in request.get_profiling_info() if str(info.status).endswith(".EXECUTED")]
    return {(info.node_name, info.node_type): info.real_time.total_seconds() for info in ran}


def _bound(loaded, request, arrays):
    """Return a call that runs ``request`` on these arrays, which it reads where they lie."""
    check(loaded.inputs, arrays)
    kept = [numpy.ascontiguousarray(arrays[tensor.name]) for tensor in loaded.inputs]
    for tensor, array in zip(loaded.inputs, kept):
        request.set_tensor(tensor.name, openvino.Tensor(array, shared_memory=True))
    output, numbers = request.get_output_tensor, range(len(loaded.outputs))

    def call(infer=request.infer, kept=kept):  # a request doesn't keep the arrays alive
        infer(share_inputs=True, share_outputs=True)
        return [output(number).data for number in numbers]

    return call


def _computes(node):
    return node.get_type_name() not in ("Constant", "Parameter", "Result") and bool(
        node.output(0).names
    )


def _is_output(value):
    return any(
        target.get_node().get_type_name() == "Result" for target in value.get_target_inputs()
    )


def _tensors(ports):
    return [
        Tensor(port.any_name, port.element_type.to_dtype().name, _shape(port.partial_shape))
        for port in ports
    ]


def _shape(partial):
    """Return the axes, the free ones as None.

    Nothing where the model doesn't even say how many there are.
    """
    return (
        tuple(None if axis.is_dynamic else axis.get_length() for axis in partial)
        if partial.rank.is_static
        else ()
    )
