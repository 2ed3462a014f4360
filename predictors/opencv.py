"""OpenCV's dnn module: ``graph`` is an ONNX file, or a prototxt of Caffe with ``weights``.

Versions: 4.5 and later; 5 does not read Caffe's files; tested with 4.14 and 5.0.

Devices: cpu.

Synchronises: ``forward`` returns when its outputs are in host memory.

Options: ``backend`` and ``target`` as in setPreferableBackend and setPreferableTarget; a pair that
this build hasn't is refused. ``engine`` of OpenCV 5: auto, classic or new. ``fusion`` and
``winograd``: whether layers are fused, and convolutions use Winograd's algorithm. The number of
threads is that of the process.

Layer times: OpenCV's own (getPerfProfile), which are always on. They are durations without start
times, so the layers are placed one after another. A layer that was fused into another has no time
and is left out. OpenCV 5 does not tell the shapes of layers. Inner outputs: those of every layer,
of the network read again without fusion; in OpenCV 5, by its classic engine.
"""

import time
from typing import Any, Dict, List, NamedTuple

import cv2
import numpy
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
from mlms_predictors._opencv_files import caffe_inputs, onnx_signature
from mlms_predictors._run.checks import file_of, in_order, refuse_gpu, refuse_unknown
from mlms_predictors._run.products import prod
from mlms_predictors._run.shapes import shape_of, smallest
from mlms_predictors._run.timeline import in_turn

OPTIONS = {
    "backend": (
        "default",
        "opencv",
        "openvino",
        "halide",
        "vkcom",
        "cuda",
        "webnn",
        "timvx",
        "cann",
    ),
    "target": ("cpu", "cpu_fp16", "opencl", "opencl_fp16", "vulkan", "npu"),
    "engine": ("auto", "classic", "new"),
    "fusion": "bool",
    "winograd": "bool",
}
_BACKENDS = {"openvino": "DNN_BACKEND_INFERENCE_ENGINE"}
"""Backends whose constants have another name than DNN_BACKEND_ and theirs."""
_ONNX_PREFIX = "onnx_node!"
"""Prefix that the reader of ONNX files puts before the names of layers."""
_FLOAT_BYTES = 4


class _Model(NamedTuple):
    """A network, its files and options; ``unfused`` has one element once ``inner`` has run."""

    net: Any
    files: Dict[str, str]
    options: Dict[str, Any]
    unfused: List[Any]


def versions() -> Versions:
    """Return the versions of the framework and of numpy."""
    return {"opencv": cv2.__version__, "numpy": numpy.__version__}


def devices() -> Devices:
    """Return the devices that a model can be loaded on in this process."""
    return ["cpu"]


def load(request: Load) -> Loaded:
    """Read a network.

    Raises ValueError or cv2.error where it can't. OpenCV 4 also raises it where weights don't fit
    their layers, if the batch is the only free axis.
    """
    refuse_gpu(request.device, "OpenCV")
    options = refuse_unknown(request.options, OPTIONS)
    if request.threads:
        cv2.setNumThreads(request.threads)
    inputs, outputs = _signature(request.files)
    net = _read(request.files, options=options)
    if all(None not in tensor.shape[1:] for tensor in inputs):
        shapes = _shapes(net, [smallest(tensor.shape) for tensor in inputs])
        outputs = outputs or _outputs(net, shapes)
    model = _Model(net, request.files, options, [])
    default = _default_output(net, options)
    return Loaded(model, "cpu", cv2.getNumThreads(), inputs, outputs, default)


def predict(loaded: Loaded, arrays: Arrays) -> Outputs:
    """Run one batch; return the outputs in the model's order."""
    return bind(loaded, arrays)()


def bind(loaded: Loaded, arrays: Arrays) -> Call:
    """Return ``predict`` on these arrays as a call without arguments, for the timed loop."""
    names = [tensor.name for tensor in loaded.outputs]
    return _bound(loaded, loaded.model.net, arrays, names)


def layers(loaded: Loaded, arrays: Arrays) -> Profile:
    """Run one batch and return how long each layer took."""
    net = loaded.model.net
    call = bind(loaded, arrays)
    start = time.perf_counter()
    call()
    end = time.perf_counter()
    ticks = net.getPerfProfile()[1].ravel()
    given = in_order(loaded.inputs, arrays)
    shapes = _shapes(net, [array.shape for array in given])
    ran = []
    for name, seconds in zip(net.getLayerNames(), ticks / cv2.getTickFrequency()):
        if seconds > 0:
            ran.append(_layer(net, name, float(seconds), shapes.get(name)))
    return in_turn(start, end, ran)


def inner(loaded: Loaded, arrays: Arrays) -> InnerOutputs:
    """Run one batch without fusing and return what each layer gave."""
    if not loaded.model.unfused:
        net = _read(loaded.model.files, by_layers=True, options=loaded.model.options)
        net.enableFusion(False)
        loaded.model.unfused.append(net)
    net = loaded.model.unfused[0]
    names = list(net.getLayerNames())
    call = _bound(loaded, net, arrays, names)
    in_model = [_name_in_model(name) for name in names]
    return list(zip(in_model, call()))


def _bound(loaded, net, arrays, names):
    """Return a call that gives the outputs of the layers named."""
    set_input = net.setInput
    forward = net.forward
    pairs = []
    for tensor, array in zip(loaded.inputs, in_order(loaded.inputs, arrays)):
        pairs.append((numpy.ascontiguousarray(array), tensor.name))

    def call_all():
        for pair in pairs:
            set_input(*pair)
        return forward(names)

    if len(pairs) != 1:
        return call_all
    array, only = pairs[0]

    def call():
        set_input(array, only)
        return forward(names)

    return call


def _read(files, options, by_layers=False):
    """Return a network as asked; one that is run ``by_layers`` gives the output of each of them."""
    engine = options.get("engine")
    is_new = hasattr(cv2.dnn, "ENGINE_NEW") and engine != "classic" and not by_layers
    for name in ("fusion", "winograd"):
        if is_new and name in options:
            raise ValueError("%s is of the classic engine; write 'engine: classic', too" % name)
    net = _read_graph(files, engine, by_layers)
    if "backend" in options or "target" in options:
        _place(net, options.get("backend", "default"), options.get("target", "cpu"))
    if "fusion" in options:
        net.enableFusion(options["fusion"])
    if "winograd" in options:
        net.enableWinograd(options["winograd"])
    return net


def _place(net, backend, target):
    """Choose the backend and the target; raises ValueError for a pair that this build hasn't."""
    name = _BACKENDS.get(backend, "DNN_BACKEND_%s" % backend.upper())
    places = [
        getattr(cv2.dnn, name, None),
        getattr(cv2.dnn, "DNN_TARGET_%s" % target.upper(), None),
    ]
    offered = cv2.dnn.DNN_BACKEND_OPENCV if backend == "default" else places[0]
    if None in places or places[1] not in cv2.dnn.getAvailableTargets(offered):
        text = "OpenCV %s has no backend %s with target %s here; write others"
        raise ValueError(text % (cv2.__version__, backend, target))
    net.setPreferableBackend(places[0])
    net.setPreferableTarget(places[1])


def _read_graph(files, engine, by_layers):
    graph = files["graph"]
    is_caffe = graph.endswith(".prototxt")
    if not is_caffe:
        has_engines = hasattr(cv2.dnn, "ENGINE_CLASSIC")
        if engine and not has_engines:
            raise ValueError("OpenCV %s has one engine; leave the option out" % cv2.__version__)
        if by_layers and has_engines:
            engine = "classic"
        engines = [getattr(cv2.dnn, "ENGINE_%s" % engine.upper())] if engine else []
        return cv2.dnn.readNetFromONNX(graph, *engines)
    if not hasattr(cv2.dnn, "readNetFromCaffe"):
        advice = "use 4, or an ONNX file"
        raise ValueError("OpenCV %s reads no files of Caffe; %s" % (cv2.__version__, advice))
    return cv2.dnn.readNetFromCaffe(graph, file_of(files, "weights", "MODEL.caffemodel"))


def _signature(files):
    """Return inputs and outputs; a prototxt doesn't say its outputs, so there are none."""
    graph = files["graph"]
    if graph.endswith(".prototxt"):
        return caffe_inputs(graph), []
    return onnx_signature(graph)


def _outputs(net, shapes):
    """Return the outputs of a network whose file doesn't say them."""
    found = []
    for name in net.getUnconnectedOutLayersNames():
        shape = (None,) + shapes[name][1:]
        found.append(Tensor(name, "float32", shape))
    return found


def _default_output(net, options):
    """Return what ``forward`` gives without names: the last layer's output, in the classic engine.

    "" in the new one, which doesn't tell it.
    """
    if hasattr(cv2.dnn, "ENGINE_NEW") and options.get("engine") != "classic":
        return ""
    names = net.getLayerNames()
    return _name_in_model(names[-1]) if len(names) else ""


def _shapes(net, inputs):
    """Return the shape of each layer's first output by the layer's name, for these inputs.

    It is None for a layer without a known shape. There are none where OpenCV doesn't tell them.
    """
    if not hasattr(net, "getLayersShapes"):
        return {}
    ids, _, outputs = net.getLayersShapes([list(shape) for shape in inputs])
    by_number = {}
    for number, shapes in zip(ids.ravel(), outputs):
        if len(shapes):
            by_number[int(number)] = shape_of(shapes[0])
    names = net.getLayerNames()
    return {name: by_number.get(net.getLayerId(name)) for name in names}


def _layer(net, name, seconds, shape):
    """Return a layer as an argument of ``in_turn``."""
    kind = net.getLayer(net.getLayerId(name)).type
    size = None
    if shape:
        size = _FLOAT_BYTES * prod(shape)
    return _name_in_model(name), kind, seconds, size, shape


def _name_in_model(name):
    if name.startswith(_ONNX_PREFIX):
        return name[len(_ONNX_PREFIX) :]
    return name
