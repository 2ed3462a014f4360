"""OpenCV's dnn module: ``graph`` is an ONNX file, or a prototxt of Caffe whose caffemodel is
``weights``.

Versions: 4.5 and later; 5 has no Caffe; tried with 4.14. Devices: cpu. Synchronises: forward
returns when its outputs are in host memory.

Options: none. The number of threads is the process's.

Layer times: OpenCV's own (getPerfProfile), which it always takes. It tells how long each layer took
and not when: they are laid one after another. What was fused into another layer has no time and is
left out. Inner outputs: every layer's, of the network read again, in which nothing is fused.
"""

import time
from typing import Any, Dict, List, NamedTuple

import cv2
import numpy
from mlms_predictors import Loaded, Tensor
from mlms_predictors._opencv_files import caffe_inputs, onnx_signature
from mlms_predictors._run.checks import check, file_of, refuse_gpu, refuse_unknown
from mlms_predictors._run.timeline import in_turn


class _Model(NamedTuple):
    """The network, the files it was read from, and what ``inner`` reads again."""

    net: Any
    files: Dict[str, str]
    unfused: List[Any]


def versions():
    """Return the versions of what computes."""
    return {"opencv": cv2.__version__, "numpy": numpy.__version__}


def devices():
    """Return the devices that a model can be loaded on, here and now."""
    return ["cpu"]


def load(request):
    """Read a network; raises ValueError or cv2.error where it can't, also where its weights don't
    fit its layers.
    """
    refuse_gpu(request.device, "OpenCV")
    refuse_unknown(request.options, ())
    if request.threads:
        cv2.setNumThreads(request.threads)
    inputs, outputs = _signature(request.files)
    net = _read(request.files)
    shapes = _shapes(net, [tuple(axis or 1 for axis in tensor.shape) for tensor in inputs])
    if not outputs:
        outputs = [
            Tensor(name, "float32", (None,) + shapes[name][1:])
            for name in net.getUnconnectedOutLayersNames()
        ]
    return Loaded(_Model(net, request.files, []), "cpu", cv2.getNumThreads(), inputs, outputs)


def predict(loaded, arrays):
    """Run one batch: arrays by input name in, a list of arrays in the model's order out."""
    return bind(loaded, arrays)()


def bind(loaded, arrays):
    """Return predict as a call without arguments: what the timed loop runs."""
    return _bound(loaded, loaded.model.net, arrays, [tensor.name for tensor in loaded.outputs])


def layers(loaded, arrays):
    """Run one batch and return how long each layer took."""
    net, call = loaded.model.net, bind(loaded, arrays)
    start = time.perf_counter()
    call()
    end = time.perf_counter()
    ticks = net.getPerfProfile()[1].ravel() / cv2.getTickFrequency()
    shapes = _shapes(net, [arrays[tensor.name].shape for tensor in loaded.inputs])
    ran = [(name, seconds) for name, seconds in zip(net.getLayerNames(), ticks) if seconds > 0]
    return in_turn(
        start, end, [_layer(net, name, float(seconds), shapes[name]) for name, seconds in ran]
    )


def inner(loaded, arrays):
    """Run one batch without fusing and return what each layer gave."""
    if not loaded.model.unfused:
        net = _read(loaded.model.files)
        net.enableFusion(False)
        loaded.model.unfused.append(net)
    net = loaded.model.unfused[0]
    names = list(net.getLayerNames())
    return list(zip(map(_plain, names), _bound(loaded, net, arrays, names)()))


def _bound(loaded, net, arrays, names):
    check(loaded.inputs, arrays)
    set_input, forward = net.setInput, net.forward
    if len(loaded.inputs) == 1:
        array, only = numpy.ascontiguousarray(arrays[loaded.inputs[0].name]), loaded.inputs[0].name

        def call():
            set_input(array, only)
            return forward(names)

        return call
    pairs = [
        (numpy.ascontiguousarray(arrays[tensor.name]), tensor.name) for tensor in loaded.inputs
    ]

    def call_all():
        for pair in pairs:
            set_input(*pair)
        return forward(names)

    return call_all


def _read(files):
    if _is_caffe(files):
        if not hasattr(cv2.dnn, "readNetFromCaffe"):
            raise ValueError(
                "OpenCV %s reads no files of Caffe; use 4, or an ONNX file" % cv2.__version__
            )
        return cv2.dnn.readNetFromCaffe(
            files["graph"], file_of(files, "weights", "MODEL.caffemodel")
        )
    return cv2.dnn.readNetFromONNX(files["graph"])


def _is_caffe(files):
    return "weights" in files or files["graph"].endswith(".prototxt")


def _signature(files):
    """Return inputs and outputs; a prototxt doesn't say the outputs' shapes."""
    return (
        (caffe_inputs(files["graph"]), [])
        if files["graph"].endswith(".prototxt")
        else onnx_signature(files["graph"])
    )


def _shapes(net, inputs):
    """Return each layer's first output's shape by its name, for these shapes of the inputs."""
    ids, _, outputs = net.getLayersShapes([list(shape) for shape in inputs])
    numbers = {
        int(number): tuple(map(int, shapes[0]))
        for number, shapes in zip(ids.ravel(), outputs)
        if len(shapes)
    }
    return {name: numbers.get(net.getLayerId(name)) for name in net.getLayerNames()}


def _layer(net, name, seconds, shape):
    size = 4 * int(numpy.prod(shape)) if shape else None
    return _plain(name), net.getLayer(net.getLayerId(name)).type, seconds, size, shape


def _plain(name):
    """Return a layer's name in the model; the ONNX reader puts a word before it."""
    return name[len("onnx_node!") :] if name.startswith("onnx_node!") else name
