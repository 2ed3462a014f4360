"""OpenVINO: ``graph`` is an ONNX file, or an .xml whose .bin is ``weights``.

Versions: 2023.1 and later; tested with 2026.4.

Devices: cpu.

An input or output without a name, as in models that were converted from PyTorch, is ``input`` or
``output``, of several with its number: ``output_0``.

Synchronises: ``infer`` of an infer request returns when its outputs are in host memory.

Options: ``precision``: f32 (the default here; OpenVINO's own is bf16 on some CPUs), bf16 or f16.
``hint``: latency (the default) or throughput, of whose streams a call uses one. Names in capitals
are properties of OpenVINO's CPU device, such as ``NUM_STREAMS`` or ``ENABLE_HYPER_THREADING``; one
that it doesn't take is refused.

Layer times: OpenVINO's profiler (PERF_COUNT, get_profiling_info), in microseconds, of the second
call of a compilation made for it. They are durations without start times, so the nodes are placed
one after another. A node that was fused into another has no time and is left out. Inner outputs:
those of every named node, of a compilation that has each of them as an output and fuses fewer.
"""

import time
from typing import Any, Dict, List, NamedTuple, Tuple

import numpy
import openvino
from mlms_predictors import (
    Arrays,
    Call,
    Devices,
    InnerOutputs,
    Load,
    Loaded,
    Outputs,
    Profile,
    Tensor,
    Versions,
)
from mlms_predictors._run.checks import file_of, in_order, name_of_type, refuse_gpu, refuse_unknown
from mlms_predictors._run.timeline import in_turn

OPTIONS = {
    "precision": ("f32", "bf16", "f16"),
    "hint": ("latency", "throughput"),
    "[A-Z]*": "any",
}
CACHES = {"options": {"CACHE_DIR": "{caches}"}}
_NOT_COMPUTED = ("Constant", "Parameter", "Result")


class _Opened(NamedTuple):
    """A compilation that has the outputs of nodes as outputs, and the names of those."""

    compiled: Any
    names: List[str]


class _Model(NamedTuple):
    """A compiled model, and ``source`` and ``config`` to compile it again.

    ``predict`` runs by ``request``. ``opened`` has one element once ``inner`` has run.
    """

    compiled: Any
    request: Any
    source: Any
    config: Dict[str, Any]
    opened: List[_Opened]


def versions() -> Versions:
    """Return the versions of OpenVINO, without its build, and of numpy."""
    version = openvino.__version__.partition("-")[0]
    return {"openvino": version, "numpy": numpy.__version__}


def devices() -> Devices:
    """Return the devices that a model can be loaded on in this process."""
    return ["cpu"]


def load(request: Load) -> Loaded:
    """Read and compile a model; raises RuntimeError where OpenVINO would use another device."""
    refuse_gpu(request.device, "OpenVINO")
    options = refuse_unknown(request.options, OPTIONS)
    config = _config(options, request.threads)
    source = _read(request.files)
    compiled = _compiled(source, config)
    used = compiled.get_property("EXECUTION_DEVICES")
    if list(used) != ["CPU"]:
        raise RuntimeError("asked for CPU, OpenVINO would use %s" % ", ".join(used))
    model = _Model(compiled, compiled.create_infer_request(), source, config, [])
    return Loaded(
        model=model,
        device="cpu",
        threads=compiled.get_property("INFERENCE_NUM_THREADS"),
        inputs=_tensors(compiled.inputs, "input"),
        outputs=_tensors(compiled.outputs, "output"),
    )


def predict(loaded: Loaded, arrays: Arrays) -> Outputs:
    """Run one batch; return the outputs in the model's order.

    The next call overwrites them.
    """
    call = _bound(loaded, loaded.model.request, arrays)
    return call()


def bind(loaded: Loaded, arrays: Arrays) -> Call:
    """Return ``predict`` on these arrays as a call without arguments, for the timed loop.

    It has an infer request of its own.
    """
    request = loaded.model.compiled.create_infer_request()
    return _bound(loaded, request, arrays)


def layers(loaded: Loaded, arrays: Arrays) -> Profile:
    """Run one batch under OpenVINO's profiler and return how long each node took.

    The profiler gives the mean of all calls so far. The first call also prepares for the shape,
    within its nodes' times: the second one's are twice the mean less those of the first.
    """
    model = loaded.model
    config = dict(model.config, PERF_COUNT=True)
    request = _compiled(model.source, config).create_infer_request()
    call = _bound(loaded, request, arrays)
    call()
    first = _seconds_of_nodes(request)
    start = time.perf_counter()
    call()
    end = time.perf_counter()
    ran = []
    for node, mean in _seconds_of_nodes(request).items():
        name, kind = node
        seconds = 2 * mean - first.get(node, 0)
        ran.append((name, kind, max(0, seconds), None, None))
    return in_turn(start, end, ran)


def inner(loaded: Loaded, arrays: Arrays) -> InnerOutputs:
    """Run one batch and return what each node gave that has a name in the model."""
    if not loaded.model.opened:
        loaded.model.opened.append(_open(loaded.model))
    compiled, names = loaded.model.opened[0]
    request = compiled.create_infer_request()
    call = _bound(loaded, request, arrays)
    call()
    return [(name, request.get_tensor(name).data.copy()) for name in names]


def _config(options, threads):
    """Return the configuration to compile with."""
    config = {
        "INFERENCE_PRECISION_HINT": options.get("precision", "f32"),
        "PERFORMANCE_HINT": options.get("hint", "latency").upper(),
    }
    config.update((name, value) for name, value in options.items() if name.isupper())
    if threads:
        config["INFERENCE_NUM_THREADS"] = threads
    return config


def _read(files):
    """Read a model of the two formats whose files are all known: OpenVINO looks for others."""
    graph = files["graph"]
    if graph.endswith(".xml"):
        return openvino.Core().read_model(graph, file_of(files, "weights", "MODEL.bin"))
    if graph.endswith(".onnx"):
        return openvino.Core().read_model(graph)
    raise ValueError("%s is neither .onnx nor .xml, which are read here" % graph)


def _compiled(source, config):
    return openvino.Core().compile_model(source, "CPU", config)


def _open(model):
    """Compile the model with the outputs of all nodes as outputs."""
    source = model.source.clone()
    names = []
    hidden = []
    for node in source.get_ordered_ops():
        if node.get_type_name() in _NOT_COMPUTED:
            continue
        value = node.output(0)
        if not value.names:
            continue
        names.append(value.any_name)
        if not _is_output(value):
            hidden.append(value)
    source.add_outputs(hidden)
    return _Opened(_compiled(source, model.config), names)


def _is_output(value):
    """True if a value is an output of the model already."""
    readers = [target.get_node() for target in value.get_target_inputs()]
    return any(reader.get_type_name() == "Result" for reader in readers)


def _seconds_of_nodes(request) -> Dict[Tuple[str, str], float]:
    """Return the seconds of each (name, type) of the nodes that run, in order.

    They are whole microseconds. A node that takes less is NOT_RUN with 0 to OpenVINO, so that
    whether a node runs is told by its implementation: one that was fused into another has none.
    """
    found = {}
    for info in request.get_profiling_info():
        if info.exec_type != "undef" and info.node_type not in _NOT_COMPUTED:
            node = (info.node_name, info.node_type)
            found[node] = info.real_time.total_seconds()
    return found


def _bound(loaded, request, arrays):
    """Return a call that runs ``request`` on these arrays without copying them."""
    kept = []
    for number, given in enumerate(in_order(loaded.inputs, arrays)):
        array = numpy.ascontiguousarray(given)
        request.set_input_tensor(number, openvino.Tensor(array, shared_memory=True))
        kept.append(array)
    output = request.get_output_tensor
    numbers = range(len(loaded.outputs))

    def call(infer=request.infer, kept=kept):  # a request doesn't keep the arrays alive
        infer(share_inputs=True, share_outputs=True)
        return [output(number).data for number in numbers]

    return call


def _tensors(ports, side):
    """Return the ports as Tensors; one without a name is called ``side``, with its number."""
    found = []
    for number, port in enumerate(ports):
        name = side if len(ports) == 1 else "%s_%d" % (side, number)
        if port.names:
            name = port.any_name
        dtype = name_of_type(numpy.dtype(port.element_type.to_dtype()))
        found.append(Tensor(name, dtype, _shape(port.partial_shape)))
    return found


def _shape(partial):
    """Return the axes, None for free ones; empty where even their number is unknown."""
    if not partial.rank.is_static:
        return ()
    return tuple(None if axis.is_dynamic else axis.get_length() for axis in partial)
