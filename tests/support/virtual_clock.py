"""A clock of nanoseconds that sleeping and reading advance, for code that waits."""

from __future__ import annotations

import time

import pytest
from mlms_predictors._run import arrivals

_TICK = 10  # ns that a reading takes, so that a loop of readings ends


class VirtualClock:
    """The time of ``mlms_predictors._run.arrivals`` while a test runs."""

    def __init__(self, patches: pytest.MonkeyPatch) -> None:
        self.now = 0
        self.slept: list[float] = []
        patches.setattr(arrivals, "clock", self.read)
        patches.setattr(time, "sleep", self.sleep)

    def read(self) -> int:
        self.now += _TICK
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += round(seconds * 1e9)
