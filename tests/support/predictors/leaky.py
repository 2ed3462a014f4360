"""A predictor whose process holds more with time, as its environment says.

LEAKY_BYTES    bytes that each call leaks
LEAKY_BY       how, one or several with + between: python (objects; the default), c (malloc), reused (into what loading freed),
               threads, descriptors, cycles (which Python collects), steps (of 1 MiB, in the 40th
               and in each 3,000th call), warm (ever less, in the first 1,000 calls)
LEAKY_SECONDS  seconds of a call
LEAKY_SLOWER   share of that by which each call is slower than the one before
LEAKY_WRONG    call from which on outputs are wrong
LEAKY_DRAWS    outputs are random numbers; "form": of 9 or 10 classes, at random
LEAKY_DIES     call in which the process ends with status 3
LEAKY_KILLED   call in which the process is killed by SIGKILL
LEAKY_IMPORT   seconds that the import sleeps
LEAKY_VERSION  the version of the framework
"""

import ctypes
import os
import signal
import threading
import time

import numpy
from mlms_predictors import Loaded, Tensor

BYTES = int(os.environ.get("LEAKY_BYTES", "0"))
BY = os.environ.get("LEAKY_BY", "python").split("+")
SECONDS = float(os.environ.get("LEAKY_SECONDS", "0"))
SLOWER = float(os.environ.get("LEAKY_SLOWER", "0"))
KILLED = int(os.environ.get("LEAKY_KILLED", "0"))
DIES = int(os.environ.get("LEAKY_DIES", "0"))
WRONG = int(os.environ.get("LEAKY_WRONG", "0"))
MIB = 1 << 20

kept = []
calls = 0
time.sleep(float(os.environ.get("LEAKY_IMPORT", "0")))
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = (ctypes.c_void_p,)
libc.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)


def versions():
    return {"leaky": os.environ.get("LEAKY_VERSION", "1.0")}


def devices():
    return ["cpu"]


def load(request):
    if "reused" in BY:
        pieces = [libc.malloc(10000) for _ in range(3000)]
        kept.append(libc.malloc(10000))  # on top, so that the others stay with the process
        for piece in pieces:
            libc.memset(piece, 1, 10000)
            libc.free(piece)
    inputs = [Tensor("image", "float32", (None, 1, 8, 8))]
    outputs = [Tensor("logits", "float32", (None, 10))]
    return Loaded(None, request.device, request.threads, inputs, outputs)


def predict(loaded, arrays):
    global calls  # noqa: PLW0603
    calls += 1
    if calls == DIES:
        os._exit(3)
    if calls == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    for way in BY if BYTES else ():
        WAYS[way]()
    if SECONDS:
        time.sleep(SECONDS * (1 + SLOWER * calls))
    logits = numpy.zeros((len(arrays["image"]), 10), numpy.float32)
    logits[:, 3] = 2 if WRONG and calls >= WRONG else 1
    if "LEAKY_DRAWS" in os.environ:
        logits += numpy.random.default_rng().random(logits.shape, numpy.float32)
    if os.environ.get("LEAKY_DRAWS") == "form":
        logits = logits[:, : numpy.random.default_rng().integers(9, 11)]
    return [logits]


def _objects():
    kept.append(bytearray(BYTES))


def _malloc():
    libc.memset(libc.malloc(BYTES), 1, BYTES)


def _threads():
    if calls % BYTES == 0:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


def _descriptors():
    if calls % BYTES == 0:
        kept.append(os.dup(0))


def _cycles():
    cycle = [bytearray(BYTES)]
    cycle.append(cycle)


def _steps():
    if calls == 40 or calls % 3000 == 0:
        kept.append(b"x" * MIB)


def _warm():
    if calls < 1000:
        kept.append(b"x" * (BYTES * (1000 - calls) // 1000))


WAYS = {
    "python": _objects,
    "c": _malloc,
    "reused": _malloc,
    "threads": _threads,
    "descriptors": _descriptors,
    "cycles": _cycles,
    "steps": _steps,
    "warm": _warm,
}
