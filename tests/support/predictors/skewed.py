"""A predictor of a product with a matrix, of which a package ``skewed`` says what goes wrong.

``FACTOR`` multiplies the outputs, ``ENDING`` is a signal or a text to fail with when the model runs,
and ``SECONDS`` is how long a call takes at least.
"""

import os
import time

import numpy
import skewed
from mlms_predictors import Loaded, Tensor


def versions():
    return {"skewed": skewed.VERSION}


def devices():
    return ["cpu"]


def load(request):
    weights = numpy.load(request.files["graph"])
    inputs = [Tensor("x", "float32", (None, 3))]
    outputs = [Tensor("y", "float32", (None, weights.shape[1]))]
    return Loaded(weights, request.device, request.threads, inputs, outputs)


def predict(loaded, arrays):
    ending = getattr(skewed, "ENDING", None)
    if isinstance(ending, int):
        os.kill(os.getpid(), ending)
    if ending:
        raise ValueError(ending)
    until = time.perf_counter() + getattr(skewed, "SECONDS", 0.0)
    while time.perf_counter() < until:
        pass
    return [arrays["x"] @ loaded.model * getattr(skewed, "FACTOR", 1)]
