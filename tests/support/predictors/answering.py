"""Generates tokens that take as long as the environment says, which the test sets by stack.

ANSWERING_FIRST and ANSWERING_EACH are the seconds to the first token and for each further one.
Every 50th token takes ANSWERING_STALL seconds longer. A prompt's token is repeated. With
ANSWERING_CLOCK=own the process has a clock that counts these seconds, however busy the machine is.
"""

import os
import time
from typing import Iterator, List

from mlms_predictors import Arrays, Load, Loaded, Outputs, Tensor, Token, Versions
from mlms_predictors._run import generation, process, scenarios

_FIRST = float(os.environ.get("ANSWERING_FIRST", "2e-3"))
_EACH = float(os.environ.get("ANSWERING_EACH", "2e-4"))
_STALL = float(os.environ.get("ANSWERING_STALL", "0"))
_PERIOD = 50
_OWN = os.environ.get("ANSWERING_CLOCK") == "own"
_worked = [0.0]


def _clock() -> float:
    return _worked[0]


if _OWN:
    time.perf_counter = scenarios.cpu_time = process.cpu_time = _clock
    scenarios._loop.__defaults__ = (False, _clock)
    generation._generated.__defaults__ = (_clock,)
    _waited = process.QueueWait().read()  # readings never fall
    process.QueueWait.read = lambda self: _waited


def versions() -> Versions:
    return {"answering": "1.0"}


def devices() -> List[str]:
    return ["cpu"]


def load(request: Load) -> Loaded:
    inputs = [Tensor("prompt", "int64", (None, None)), Tensor("past", "float32", (None, None))]
    outputs = [
        Tensor("logits", "float32", (None, None, None)),
        Tensor("present", "float32", (None, None)),
    ]
    return Loaded([0], request.device, request.threads, inputs, outputs)


def predict(loaded: Loaded, arrays: Arrays) -> Outputs:
    raise NotImplementedError("it only generates")


def generate(loaded: Loaded, arrays: Arrays, limit: int) -> Iterator[Token]:
    for number in range(limit):
        loaded.model[0] += 1
        stall = _STALL if loaded.model[0] % _PERIOD == 0 else 0.0
        _work((_EACH if number else _FIRST) + stall)
        yield int(arrays["prompt"][0, number % arrays["prompt"].shape[1]]), None


def _work(seconds: float) -> None:
    _worked[0] += seconds
    end = time.thread_time() + seconds
    while not _OWN and time.thread_time() < end:
        pass
