"""A framework of one model, whose first output is the mean of each input row in every place."""

import time

import numpy
from mlms_predictors import Loaded, Tensor
from mlms_predictors._run.checks import refuse_unknown

SIZE = 256


def versions():
    return {"onnxruntime": "0.0", "numpy": numpy.__version__}


def devices():
    return ["cpu"]


def load(request):
    refuse_unknown(request.options, {})
    if request.device != "cpu":
        raise ValueError("no device %s" % request.device)
    with open(request.files["graph"], "rb"):
        inputs = [Tensor("x", "float32", (None, SIZE))]
    outputs = [Tensor("y", "float32", (None, SIZE)), Tensor("rows", "int64", (None,))]
    return Loaded(None, "cpu", request.threads, inputs, outputs)


def predict(loaded, arrays):
    x = arrays.get("x")
    if x is None or x.dtype != numpy.float32 or x.ndim != 2 or x.shape[1] != SIZE:
        raise ValueError("the model takes float32 of any x %d" % SIZE)
    time.sleep(5e-5)
    mean = x.mean(axis=1, keepdims=True, dtype="float32")
    return [numpy.repeat(mean, SIZE, axis=1), numpy.arange(len(x))]
