"""A predictor whose calls take time by the length of their input, LENGTHS_LONG times for long ones.

Inputs of 13 values are refused. LENGTHS_SPIN starts a thread that works for this share of its time.
"""

import os
import threading
import time

import numpy
from mlms_predictors import Loaded, Tensor

LONG = float(os.environ.get("LENGTHS_LONG", "1"))
SPIN = float(os.environ.get("LENGTHS_SPIN", "0"))


def versions():
    return {"lengths": "1.0"}


def devices():
    return ["cpu"]


def load(request):
    if SPIN:
        threading.Thread(target=_spin, daemon=True).start()
    inputs = [Tensor("ids", "float32", (None, None))]
    outputs = [Tensor("sum", "float32", (None, 1))]
    return Loaded(None, request.device, request.threads, inputs, outputs)


def predict(loaded, arrays):
    ids = arrays["ids"]
    if ids.shape[1] == 13:
        raise ValueError("no input is 13 long")
    seconds = 2e-4 if ids.shape[1] < 100 else 1e-3 * LONG
    _work(seconds)
    return [ids.sum(axis=1, keepdims=True)]


def _work(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def _spin():
    while True:
        _work(0.01 * SPIN)
        time.sleep(0.01 * (1 - SPIN))


assert numpy
