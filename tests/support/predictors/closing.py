"""A predictor that writes what is loaded and closed into the file MLMS_CLOSING.

The graph says what else it does: ``hang`` (in predict), ``fail`` (in close).
"""

import os
import time

import numpy
from mlms_predictors import Loaded, Tensor


def versions():
    return {"closing": "1.0"}


def devices():
    return ["cpu"]


def load(request):
    with open(request.files["graph"]) as file:
        model = file.read()
    if model == "broken":
        raise ValueError("a broken file")
    _note("load", model)
    outputs = [Tensor("y", "float64", ())]
    return Loaded(model, request.device, request.threads, [], outputs)


def predict(loaded, arrays):
    if loaded.model == "hang":
        _note("predict", loaded.model)
        time.sleep(600)
    return [numpy.zeros(1)]


def close(loaded):
    _note("close", loaded.model)
    if loaded.model == "fail":
        raise RuntimeError("it can't be freed")


def _note(kind, model):
    with open(os.environ["MLMS_CLOSING"], "a") as file:
        file.write("%s %s\n" % (kind, model))
