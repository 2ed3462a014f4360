"""A predictor that goes wrong as its graph says: {"at": "load" or "predict", "fault": …}.

Else a constant answer.
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


def versions():
    return {"faulty": "1.2.3", "numpy": numpy.__version__}


def devices():
    return ["cpu"] + (["cuda:0"] if os.environ.get("MLMS_HOST") == "mlms2" else [])


def load(request):
    with open(request.files["graph"]) as file:
        spec = json.load(file)
    if "options" in spec:
        assert request.options == spec["options"], request.options
    if spec.get("at") == "load":
        _fault(spec)
    if spec.get("fault") == "drift":
        with open(request.files["graph"] + ".loads", "a") as file:
            file.write("x")
            spec["loads"] = file.tell()
    inputs = [Tensor("image", "float32", (None, 1, 8, 8))]
    return Loaded(
        spec,
        spec.get("device", request.device),
        spec.get("threads", request.threads),
        inputs,
        [Tensor("logits", "float32", (None, 10))],
    )


def predict(loaded, arrays):
    spec, count = loaded.model, len(arrays["image"])
    if spec.get("at") == "predict":
        _fault(spec)
    logits = numpy.zeros((count, 10), numpy.float32)
    logits[:, spec.get("answer", 3)] = 1
    if spec.get("fault") == "nan":
        logits[count // 2 :] = numpy.nan
    if spec.get("fault") == "drift":  # every process computes something else
        logits *= spec["loads"]
    time.sleep(spec.get("seconds", 0))
    return [logits]


def layers(loaded, arrays):
    if "layers" not in loaded.model:
        raise NotImplementedError("no layer profiler")
    fault = loaded.model["layers"]
    if fault == "raise":
        raise RuntimeError("another profiler is active")
    if fault == "stepwise":
        return _stepwise(loaded, arrays)
    if fault == "killed later":
        loaded.model["seen"] = loaded.model.get("seen", 0) + 1
        return (
            _stepwise(loaded, arrays)
            if loaded.model["seen"] < 10
            else _fault(dict(loaded.model, fault="killed"))
        )
    return _fault(dict(loaded.model, fault=fault))


def _stepwise(loaded, arrays):
    """Two layers, each by itself; the second touches pages that the process didn't have."""
    layers, start = [], time.perf_counter()
    for name, size in (("small", 1), ("large", loaded.model["pages"] * 4096)):
        between()
        begin = time.perf_counter()
        with mmap.mmap(-1, size) as pages:
            for place in range(0, size, 4096):
                pages[place] = 1
        layers.append(Layer(name, "touch", begin, time.perf_counter(), None, None))
    between()
    return Profile(start, time.perf_counter(), layers)


def _fault(spec):
    fault = spec["fault"]
    if fault == "segv":
        sys.stderr.write("about to read address 0\n")
        sys.stderr.flush()
        ctypes.string_at(0)
    if fault == "hang":
        sys.stderr.write("waiting for nothing\n")
        sys.stderr.flush()
        child = subprocess.Popen(
            [sys.executable, "-c", "import os, time; os.setsid(); time.sleep(600)"]
        )
        with open(spec["pids"], "w") as file:
            file.write("%d %d" % (os.getpid(), child.pid))
        time.sleep(600)
    if fault == "stdout":
        print("{chatter on standard output}" * 1000)
        os.write(1, b"and on its descriptor\n")
    if fault == "flood":
        for _ in range(200):
            os.write(2, b"x" * 65535 + b"\n")
        os.write(2, b"the last words\n")
    if fault == "memory":
        numpy.ones(1 << 58)  # more than any address
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "exit":
        sys.exit("this framework gives up")
    if fault == "vanish":
        os._exit(7)
    if fault == "garbage":
        for descriptor in range(3, 20):
            try:
                os.write(descriptor, b"this is no frame\n")
            except OSError:
                pass
