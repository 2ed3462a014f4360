"""A predictor that works as much as the environment says: what a stack is, tests of upgrades can say by its env.

LABOUR_WORK: units of numpy work a call (default 1); LABOUR_SLEEP: seconds that a call sleeps; LABOUR_HOARD: MiB that the model takes; LABOUR_SLOW: seconds that
loading sleeps; LABOUR_EVENTS: seconds that a device of its own says each call took; LABOUR_FAULT: wrong, nan, die (in
the 30th call), drift (from the third process on, counted in LABOUR_COUNT), deaf (no schedstat), threads, device, load,
untold (no layers), profiler (ends the process).
"""

import os
import time

import numpy
from mlms_predictors import Layer, Loaded, Profile, Tensor
from mlms_predictors._run import process

FAULT = os.environ.get("LABOUR_FAULT", "")
EVENTS = float(os.environ.get("LABOUR_EVENTS", "0"))
WORK = int(os.environ.get("LABOUR_WORK", "1"))

if FAULT == "deaf":
    process.QueueWait.__init__ = lambda self: self.__dict__.update(_file=None, available=False)


def versions():
    return {"labour": os.environ.get("LABOUR_VERSION", "1.0")}


def devices():
    return ["cpu"] if FAULT or not EVENTS else ["cpu", "cuda:0"]


def load(request):
    time.sleep(float(os.environ.get("LABOUR_SLOW", "0")))
    if FAULT == "load":
        raise ValueError("an operator that this version lacks")
    hoard = numpy.ones(int(os.environ.get("LABOUR_HOARD", "0")) << 17)
    inputs, outputs = [Tensor("image", "float32", (None, 1, 8, 8))], [Tensor("logits", "float32", (None, 10))]
    model = {"calls": 0, "hoard": hoard, "matrix": numpy.eye(48) * 0.5}
    if FAULT == "drift":
        with open(os.environ["LABOUR_COUNT"], "a") as file:
            file.write("x")
        model["number"] = os.path.getsize(os.environ["LABOUR_COUNT"])
    device = "cuda:0" if FAULT == "device" else request.device
    return Loaded(model, device, 7 if FAULT == "threads" else request.threads, inputs, outputs)


def predict(loaded, arrays):
    model = loaded.model
    model["calls"] += 1
    if FAULT == "die" and model["calls"] == 30:
        os._exit(7)
    _work(model, 1)
    _work(model, WORK - 1)
    time.sleep(float(os.environ.get("LABOUR_SLEEP", "0")))
    logits = numpy.zeros((len(arrays["image"]), 10), numpy.float32)
    logits[:, 4 if FAULT == "wrong" else 3] = 1
    if FAULT == "nan":
        logits[0] = numpy.nan
    if FAULT == "drift" and model["number"] > 2:
        logits += 5
    return [logits]


def device_seconds(loaded):
    return EVENTS


def layers(loaded, arrays):
    if FAULT == "untold":
        raise NotImplementedError("this version tells no layers")
    if FAULT == "profiler":
        os._exit(9)
    times = [time.perf_counter()]
    for units in (1, WORK - 1):
        _work(loaded.model, units)
        times.append(time.perf_counter())
    made = [Layer(name, "MatMul", *times[i : i + 2], None, None) for i, name in enumerate(["common", "extra"])]
    return Profile(times[0], times[-1], made)


def _work(model, units):
    for _ in range(20 * units):
        model["matrix"] @ model["matrix"]
