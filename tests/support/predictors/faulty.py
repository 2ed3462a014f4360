"""A predictor that goes wrong as its graph says, and otherwise gives a constant answer.

The graph is JSON: {"at": "load" or "predict", "fault": …}, with the faults of FAULTS, or "nan" and
"drift" (other outputs). Others of its keys: "layers" (a fault of the profiler, or "stepwise"),
"answer", "seconds" (of a call), "device" and "threads" (that it says it uses), "options" (that it
must get).
"""

import ctypes
import json
import mmap
import os
import signal
import subprocess
import sys
import time

import numpy
from mlms_predictors import Layer, Loaded, Profile, Tensor
from mlms_predictors._run.steps import between

PAGE = 4096  # bytes


def versions():
    return {"faulty": "1.2.3", "numpy": numpy.__version__}


def devices():
    if os.environ.get("MLMS_HOST") == "mlms2":
        return ["cpu", "cuda:0"]
    return ["cpu"]


def load(request):
    graph = request.files["graph"]
    with open(graph) as file:
        spec = json.load(file)
    if "options" in spec:
        assert request.options == spec["options"], request.options
    if spec.get("at") == "load":
        _fault(spec["fault"], spec)
    if spec.get("fault") == "drift":
        spec["loads"] = _count(graph + ".loads")
    device = spec.get("device", request.device)
    threads = spec.get("threads", request.threads)
    inputs = [Tensor("image", "float32", (None, 1, 8, 8))]
    outputs = [Tensor("logits", "float32", (None, 10))]
    return Loaded(spec, device, threads, inputs, outputs)


def predict(loaded, arrays):
    spec = loaded.model
    count = len(arrays["image"])
    fault = spec.get("fault")
    if spec.get("at") == "predict":
        _fault(fault, spec)
    logits = numpy.zeros((count, 10), numpy.float32)
    logits[:, spec.get("answer", 3)] = 1
    if fault == "nan":
        logits[count // 2 :] = numpy.nan
    if fault == "drift":  # every process computes something else
        logits *= spec["loads"]
    time.sleep(spec.get("seconds", 0))
    return [logits]


def layers(loaded, arrays):
    spec = loaded.model
    if "layers" not in spec:
        raise NotImplementedError("no layer profiler")
    fault = spec["layers"]
    if fault == "raise":
        raise RuntimeError("another profiler is active")
    if fault == "killed later":
        spec["seen"] = spec.get("seen", 0) + 1
        fault = "stepwise" if spec["seen"] < 10 else "killed"
    if fault == "stepwise":
        return _stepwise(spec)
    return _fault(fault, spec)


def _count(path):
    with open(path, "a") as file:
        file.write("x")
        return file.tell()


def _stepwise(spec):
    """Run two layers, each by itself; the second touches pages that the process didn't have."""
    start = time.perf_counter()
    found = []
    for name, size in (("small", 1), ("large", spec["pages"] * PAGE)):
        between()
        begin = time.perf_counter()
        _touch(size)
        found.append(Layer(name, "touch", begin, time.perf_counter(), None, None))
    between()
    return Profile(start, time.perf_counter(), found)


def _touch(size):
    with mmap.mmap(-1, size) as memory:
        for place in range(0, size, PAGE):
            memory[place] = 1


def _fault(name, spec):
    if name in FAULTS:
        FAULTS[name](spec)


def _read_address_0(spec):
    _say("about to read address 0\n")
    ctypes.string_at(0)


def _hang(spec):
    _say("waiting for nothing\n")
    child_code = "import os, time; os.setsid(); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", child_code])
    with open(spec["pids"], "w") as file:
        file.write("%d %d" % (os.getpid(), child.pid))
    time.sleep(600)


def _say(text):
    sys.stderr.write(text)
    sys.stderr.flush()


def _chatter(spec):
    print("{chatter on standard output}" * 1000)
    os.write(1, b"and on its descriptor\n")


def _flood(spec):
    line = b"x" * 65535 + b"\n"
    for _ in range(200):
        os.write(2, line)
    os.write(2, b"the last words\n")


def _run_out_of_memory(spec):
    numpy.ones(1 << 58)  # more than any address


def _kill_itself(spec):
    os.kill(os.getpid(), signal.SIGKILL)


def _exit(spec):
    sys.exit("this framework gives up")


def _vanish(spec):
    os._exit(7)


def _write_garbage(spec):
    for descriptor in range(3, 20):
        try:
            os.write(descriptor, b"this is no frame\n")
        except OSError:
            pass


FAULTS = {
    "segv": _read_address_0,
    "hang": _hang,
    "stdout": _chatter,
    "flood": _flood,
    "memory": _run_out_of_memory,
    "killed": _kill_itself,
    "exit": _exit,
    "vanish": _vanish,
    "garbage": _write_garbage,
}
