"""A predictor that works as much as the environment says: what a stack is, tests of upgrades can
say by its env.

Its process has clocks of its own, which go on as it works and sleeps, however busy the machine is;
LABOUR_CLOCK=real leaves it those of the machine.

LABOUR_WORK: units of work a call, of a millisecond each (default 1); LABOUR_SLEEP: seconds that a
call sleeps; LABOUR_HOARD: MiB that the model takes; LABOUR_SLOW: seconds that loading sleeps;
LABOUR_EVENTS: seconds that a device of its own says each call took; LABOUR_FAULT: wrong, nan, die
and killed (in the 30th call), drift and stay (from the third process on, counted in LABOUR_COUNT:
other outputs, loading without end), deaf (no schedstat), threads, device, load, untold (no layers),
profiler (ends the process), child (starts one).
"""

import os
import signal
import subprocess
import sys
import time

import numpy
from mlms_predictors import Layer, Loaded, Profile, Tensor
from mlms_predictors._run import process, scenarios

FAULT = os.environ.get("LABOUR_FAULT", "")
EVENTS = float(os.environ.get("LABOUR_EVENTS", "0"))
WORK = int(os.environ.get("LABOUR_WORK", "1"))
REAL = os.environ.get("LABOUR_CLOCK") == "real"

if FAULT == "deaf":
    process.QueueWait.__init__ = lambda self: self.__dict__.update(_file=None, available=False)


class Clock:
    worked = slept = 0.0

    def cpu(self):
        return self.worked

    def wall(self):
        return self.worked + self.slept


clock = Clock()
if not REAL:
    time.perf_counter, scenarios.cpu_time = clock.wall, clock.cpu
    scenarios._loop.__defaults__ = (clock.wall,)
    process.QueueWait.read = lambda self: 0.0


def versions():
    return {"labour": os.environ.get("LABOUR_VERSION", "1.0")}


def devices():
    return ["cpu"] if FAULT or not EVENTS else ["cpu", "cuda:0"]


def load(request):
    _sleep(0.1 + float(os.environ.get("LABOUR_SLOW", "0")))
    if FAULT == "load":
        raise ValueError("an operator that this version lacks")
    hoard = numpy.ones(int(os.environ.get("LABOUR_HOARD", "0")) << 17)
    inputs, outputs = (
        [Tensor("image", "float32", (None, 1, 8, 8))],
        [Tensor("logits", "float32", (None, 10))],
    )
    model = {"calls": 0, "hoard": hoard}
    if FAULT in ("drift", "stay"):
        with open(os.environ["LABOUR_COUNT"], "a") as file:
            file.write("x")
        model["number"] = os.path.getsize(os.environ["LABOUR_COUNT"])
        time.sleep(3600 if FAULT == "stay" and model["number"] > 2 else 0)
    if FAULT == "child":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    device = "cuda:0" if FAULT == "device" else request.device
    return Loaded(model, device, 7 if FAULT == "threads" else request.threads, inputs, outputs)


def predict(loaded, arrays):
    model = loaded.model
    model["calls"] += 1
    if model["calls"] == 30 and FAULT in ("die", "killed"):
        os._exit(7) if FAULT == "die" else os.kill(os.getpid(), signal.SIGKILL)
    _work(WORK)
    _sleep(float(os.environ.get("LABOUR_SLEEP", "0")))
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
        _work(units)
        times.append(time.perf_counter())
    made = [
        Layer(name, "MatMul", *times[i : i + 2], None, None)
        for i, name in enumerate(["common", "extra"])
    ]
    return Profile(times[0], times[-1], made)


def _work(units):
    end = time.process_time() + units * 1e-3
    while REAL and time.process_time() < end:
        pass
    clock.worked += units * 1e-3


def _sleep(seconds):
    time.sleep(seconds if REAL else 0)
    clock.slept += seconds
