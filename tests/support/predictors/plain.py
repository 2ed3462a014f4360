"""A predictor of ONNX files in plain numpy, by onnx's own evaluator.

The option ``off`` names a layer whose bias is 0.5 off, and ``rows`` is the number of classes that
it returns. Under another file name it is another framework, so that a copy can be compared with it.
"""

import sys

import numpy
import onnx
from mlms_predictors import Loaded, Tensor
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

NAME = __name__.rpartition(".")[2]


def versions():
    return {NAME: "1.0", "onnx": onnx.__version__}


def devices():
    return ["cpu"]


def load(request):
    sys.stderr.write("loading\n")  # so that there is a log
    model = onnx.load(request.files["graph"])
    if "off" in request.options:
        _shift_bias(model, "%s_bias" % request.options["off"])
    rows = request.options.get("rows", 10)
    names = [node.output[0] for node in model.graph.node]
    loaded = (ReferenceEvaluator(model), names, rows)
    inputs = [Tensor("image", "float32", (None, 1, 8, 8))]
    outputs = [Tensor("logits", "float32", (None, rows))]
    return Loaded(loaded, request.device, request.threads, inputs, outputs)


def predict(loaded, arrays):
    evaluator, _, rows = loaded.model
    logits = evaluator.run(None, arrays)[0]
    return [logits[:, :rows]]


def inner(loaded, arrays):
    evaluator, names, _ = loaded.model
    if "mute" in NAME:
        raise NotImplementedError("no layers here")
    return list(zip(names, evaluator.run(names, arrays)))


def _shift_bias(model, name):
    for tensor in model.graph.initializer:
        if tensor.name == name:
            shifted = numpy_helper.to_array(tensor) + numpy.float32(0.5)
            tensor.CopyFrom(numpy_helper.from_array(shifted, name))
