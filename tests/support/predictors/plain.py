"""ONNX files in plain numpy, by onnx's own evaluator; the bias of the layer named by the option
``off`` is 0.5 off.

Under another file name it is another framework, so a copy can be compared with it.
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
    for tensor in model.graph.initializer:
        if tensor.name == "%s_bias" % request.options.get("off"):
            tensor.CopyFrom(
                numpy_helper.from_array(
                    numpy_helper.to_array(tensor) + numpy.float32(0.5), tensor.name
                )
            )
    shape = (None, 1, 8, 8)
    rows = request.options.get("rows", 10)
    evaluator = ReferenceEvaluator(model), [node.output[0] for node in model.graph.node], rows
    return Loaded(
        evaluator,
        request.device,
        request.threads,
        [Tensor("image", "float32", shape)],
        [Tensor("logits", "float32", (None, rows))],
    )


def predict(loaded, arrays):
    evaluator, _, rows = loaded.model
    return [evaluator.run(None, arrays)[0][:, :rows]]


def inner(loaded, arrays):
    evaluator, names, _ = loaded.model
    if "mute" in NAME:
        raise NotImplementedError("no layers here")
    return list(zip(names, evaluator.run(names, arrays)))
