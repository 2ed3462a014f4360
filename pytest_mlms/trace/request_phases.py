"""A request as a user's program would make it: what of it runs on this side of the channel, and
what that counts.

Counters are read in requests of their own, so that reading them is in no phase's time.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from mlms_predictors._run.probes import enter_probe, word

from pytest_mlms.agent.predictor import Predictor
from pytest_mlms.agent.process import Array
from pytest_mlms.pipeline.observers import observe, step
from pytest_mlms.trace import LEVELS
from pytest_mlms.trace.counters import BY_PHASE, PHASES
from pytest_mlms.trace.spans import Builder, CounterSeries, Track

__all__ = ["Request", "count_phases", "run_phases"]

Request = Callable[[Predictor], tuple[Mapping[str, Array], Callable[[Mapping[str, Array]], object]]]
"""Makes one request as a user's program would.

Its arrays, and what is then done with the outputs.
"""

_CALLS = 5
_COUNTED_BY = ("perf", "io")


def run_phases(builder: Builder, predictor: Predictor, request: Request) -> None:
    """Make requests, and note when each phase and each step of the pipeline ran."""
    _run(builder, predictor, request, "application", [])


def count_phases(builder: Builder, predictor: Predictor, request: Request) -> None:
    """Make requests with the counters of this process read between their phases.

    No run where none can be read.
    """
    words: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        entered = [enter_probe(stack, name, "cpu", "hardware", None, words) for name in _COUNTED_BY]
        probes = [probe for probe in entered if probe]
        if not probes:
            return
        _run(builder, predictor, request, BY_PHASE, probes)
    builder.runs[-1]["probes"] = words + [
        word(one.name, True, "", one.missing, one.fault) for one in probes
    ]
    for probe in probes:
        for one in probe.series:
            series = CounterSeries(one.name, one.unit, len(builder.runs) - 1, one.rising)
            builder.count(series, np.array(one.times, "i8"), np.array(one.values, "f8"))


def _run(
    builder: Builder, predictor: Predictor, request: Request, level: str, probes: Sequence[Any]
) -> None:
    builder.runs.append({"level": level, "calls": _CALLS, "process": os.getpid()})
    run = len(builder.runs) - 1
    track = builder.track(Track(run, os.getpid(), threading.get_native_id(), "pytest", "thread"))
    for number in range(_CALLS):
        for probe in probes:
            probe.between()
        with _noted(builder, run, track, number, probes) as phase:
            with phase(PHASES[0]):
                arrays, finish = request(predictor)
            with phase(PHASES[1]):
                outputs = predictor.predict(arrays)
            with phase(PHASES[2]):
                finish(outputs)


@contextlib.contextmanager
def _noted(
    builder: Builder, run: int, track: int, request: int, probes: Sequence[Any]
) -> Iterator[Callable[[str], AbstractContextManager[None]]]:
    """Yield what notes a phase, and reads the counters behind it.

    The pipeline's own steps are noted, too.
    """

    def add(name: str, start: int, end: int) -> None:
        at = {"start": [start], "end": [end], "track": track, "run": run, "request": request}
        builder.add(level=LEVELS.index("application"), name=builder.text(name), **at)

    @contextlib.contextmanager
    def phase(name: str) -> Iterator[None]:
        with step(name):
            yield
        for probe in probes:
            probe.between()

    with observe(add), step("request"):
        yield phase
