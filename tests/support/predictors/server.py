"""A predictor whose calls take a fixed time, for loads; its options say how.

seconds   of a call (default 0), asleep, so that other threads run
hold      "python" (a loop in Python) or "lock" (one call that keeps Python's lock), not asleep
stall     the number of a call that sleeps 100 ms more
die       the number of a call in which the process ends
fault     the number of a call that raises
axis      the size of the batch axis, free by default
single    loading a second copy raises
hoard     MiB that the model takes
gpu       MiB that the model takes on its device, by the framework's counter

In the environment SERVER_FACTOR multiplies the seconds, SERVER_RACE makes calls beside another one
wrong, and SERVER_MIX those of larger batches than its number.

The output is the input's mean over each row, which tells what was joined.
"""

import ctypes
import os
import time

import numpy
from mlms_predictors import Loaded, Tensor

STALL = 0.1  # seconds
_LOADS = []
_RUNNING = []


def versions():
    return {"server": "1.0"}


def devices():
    return ["cpu"]


def load(request):
    options = dict(request.options)
    if options.get("single") and _LOADS:
        raise RuntimeError("one model in a process")
    _LOADS.append(request)
    model = {"options": options, "calls": 0, "hoard": numpy.ones(options.get("hoard", 0) << 17)}
    axis = options.get("axis")
    inputs = [Tensor("x", "float32", (axis, 2))]
    outputs = [Tensor("y", "float32", (axis,))]
    return Loaded(model, request.device, request.threads, inputs, outputs)


def device_memory(loaded):
    taken = sum(dict(request.options).get("gpu", 0) for request in _LOADS)
    return {"server.peak": taken << 20} if taken else {}


def predict(loaded, arrays):
    model = loaded.model
    options = model["options"]
    model["calls"] += 1
    number = model["calls"]
    if number == options.get("die"):
        os._exit(7)
    if number == options.get("fault"):
        raise RuntimeError("call %d is one too many" % number)
    factor = float(os.environ.get("SERVER_FACTOR", "1"))
    _RUNNING.append(number)
    is_beside = len(_RUNNING) > 1
    _spend(factor * options.get("seconds", 0), options.get("hold"))
    _RUNNING.pop()
    if number == options.get("stall"):
        time.sleep(STALL)
    means = arrays["x"].mean(axis=1)
    if is_beside and "SERVER_RACE" in os.environ:
        means = means + 1
    if len(means) > int(os.environ.get("SERVER_MIX", len(means))):
        means = means[::-1]
    return [means]


def _spend(seconds, hold):
    if hold == "python":
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
    elif hold == "lock":
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    elif seconds:
        time.sleep(seconds)
