"""A predictor that compiles for each size of a batch, for 0.2 s, unless its cache has it already.

The cache is COMPILING_CACHE, else a folder beside the graph. With COMPILING_FORGET nothing is kept.
"""

import os
import time

from mlms_predictors import Loaded, Tensor

CACHES = {"env": {"COMPILING_CACHE": "{caches}/kernels"}}


def versions():
    return {"compiling": "1.0"}


def devices():
    return ["cpu"]


def load(request):
    own = os.path.join(os.path.dirname(request.files["graph"]), "kernels")
    model = {"cache": os.environ.get("COMPILING_CACHE", own), "compiled": set()}
    inputs = [Tensor("x", "float32", (None, 2))]
    outputs = [Tensor("y", "float32", (None, 2))]
    return Loaded(model, request.device, request.threads, inputs, outputs)


def predict(loaded, arrays):
    x = arrays["x"]
    if len(x) not in loaded.model["compiled"]:
        _compile(loaded.model, len(x))
    return [x * 2]


def _compile(model, size):
    path = os.path.join(model["cache"], "of-%d" % size)
    if not os.path.exists(path):
        time.sleep(0.2)
        if "COMPILING_FORGET" not in os.environ:
            os.makedirs(model["cache"], exist_ok=True)
            with open(path, "w") as file:
                file.write("kernel")
    model["compiled"].add(size)
