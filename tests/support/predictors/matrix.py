"""A product with a matrix, which says what it is made of.

Option ``input``: the shape that it declares, or mute, fail or die.
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
    weights, told = numpy.load(request.files["graph"]), request.options.get("input", "whole")
    inputs, outputs = (
        [Tensor("x", "float32", SHAPES.get(told, (None, 3)))],
        [Tensor("y", "float32", ())],
    )
    return Loaded((weights, told), request.device, request.threads, inputs, outputs)


def predict(loaded, arrays):
    return [arrays["x"] @ loaded.model[0]]


def structure(loaded, shapes):
    weights, told = loaded.model
    if told == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if told == "fail":
        raise ValueError("a shape that it can't follow")
    if told == "mute":
        raise NotImplementedError("nothing to say")
    (rows, inside), (_, columns) = shapes["x"], weights.shape
    tensors = [
        Tensor("x", "float32", (rows, inside)),
        Tensor("W", "float32", weights.shape),
        Tensor("y", "float32", (rows, columns)),
    ]
    return Structure(
        [Operation("mul", "Product", 2 * rows * inside * columns, ["x", "W"], ["y"])],
        tensors,
        ["x"],
        ["y"],
        "hand",
    )
