"""A predictor of a product with a matrix, which tells what it is made of.

The option ``input`` is what it declares as its input's shape: whole, free or untold. Or it is what
goes wrong where it is to tell its structure: mute, fail or die.
"""

import os
import signal

import numpy
from mlms_predictors import Loaded, Operation, Structure, Tensor

SHAPES = {"whole": (None, 3), "free": (None, None), "untold": ()}


def versions():
    return {"matrix": "1.0"}


def devices():
    return ["cpu"]


def load(request):
    weights = numpy.load(request.files["graph"])
    option = request.options.get("input", "whole")
    shape = SHAPES.get(option, SHAPES["whole"])
    inputs = [Tensor("x", "float32", shape)]
    outputs = [Tensor("y", "float32", ())]
    return Loaded((weights, option), request.device, request.threads, inputs, outputs)


def predict(loaded, arrays):
    weights, _ = loaded.model
    return [arrays["x"] @ weights]


def structure(loaded, shapes):
    weights, option = loaded.model
    if option == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if option == "fail":
        raise ValueError("a shape that it can't follow")
    if option == "mute":
        raise NotImplementedError("nothing to say")
    rows, inside = shapes["x"]
    columns = weights.shape[1]
    flops = 2 * rows * inside * columns
    tensors = [
        Tensor("x", "float32", (rows, inside)),
        Tensor("W", "float32", weights.shape),
        Tensor("y", "float32", (rows, columns)),
    ]
    product = Operation("mul", "Product", flops, ["x", "W"], ["y"])
    return Structure([product], tensors, inputs=["x"], outputs=["y"], counter="hand")
