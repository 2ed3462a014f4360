"""Both sides of an upgrade as simulated queues, which take load as agents do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from pytest_mlms.core.errors import AgentError
from pytest_mlms.core.records import Place
from pytest_mlms.decide.upgrade.agents import AgentPair, TurnPlan
from pytest_mlms.decide.upgrade.round_load import LoadRunner
from pytest_mlms.decide.upgrade.rounds import Array, SideName
from pytest_mlms.manifest.scenarios import Peak
from pytest_mlms.measure.agent.load import LoadLost, LoadPlan, LoadRun
from pytest_mlms.measure.agent.predictor import Turn
from pytest_mlms.measure.evaluate.load_plan import LoadItemPlan
from tests.support.queues import Queue

_NANO = 1e-9


def peak_plan(limit: float, share: float, budget: float = 600.0) -> LoadItemPlan:
    """Return the plan of a peak in an upgrade, whose loads are a twentieth of the budget each."""
    return LoadItemPlan(
        load=Peak(latency=f"{1e3 * limit:g} ms", percentile=100 * share),
        place=Place(Path("model.yaml"), 7),
        batch_size=1,
        processes=20,
        duration=1.0,
        budget=budget,
        limits=(),
    )


@dataclass
class QueuePair:
    """Two queues, of which a fresh process each has a state of its own.

    ``delay`` returns the seconds by which queries of a run at a rate are issued late. Run number
    ``dies`` ends in its middle.
    """

    sides: Mapping[SideName, Queue]
    rng: np.random.Generator
    delay: Callable[[float], float] = lambda rate: 0.0
    dies: int | None = None
    batches: Sequence[Any] = ({},)
    rates: list[tuple[SideName, float]] = field(default_factory=list)
    seconds: float = 0.0
    _states: dict[SideName, float] = field(init=False)

    def __post_init__(self) -> None:
        self._states = {
            side: float(self.rng.lognormal(0, queue.spread)) for side, queue in self.sides.items()
        }

    def runner(self) -> LoadRunner:
        """Return what puts load on both sides."""
        return LoadRunner(cast("AgentPair", self))

    @contextlib.contextmanager
    def running(self, side: SideName) -> Iterator[_QueueProcess]:
        yield _QueueProcess(self, side)

    def turn(self, side: SideName, plan: TurnPlan) -> Turn:
        start = np.zeros(plan.count)
        seconds = self._states[side] * self.sides[side].service
        return Turn({"start": start, "end": start + seconds}, {}, 0)

    def serve(self, side: SideName, plan: LoadPlan) -> LoadRun:
        """Serve the queries of a plan, as fast as the side's process is."""
        assert plan.scheduled is not None, "queries of a peak are scheduled"
        scheduled = plan.scheduled
        rate = (len(scheduled) - 1) / (scheduled[-1] * _NANO)
        self.rates.append((side, rate))
        latencies = self.sides[side].latencies(scheduled * _NANO, self.rng, self._states[side])
        issued = scheduled + round(self.delay(rate) / _NANO)
        done = np.maximum(scheduled + np.round(latencies / _NANO).astype(np.int64), issued)
        self.seconds += float(done.max()) * _NANO
        if len(self.rates) == self.dies:
            half = len(scheduled) // 2
            raise LoadLost(
                AgentError("it ended"), _load_run(scheduled[:half], issued[:half], done[:half])
            )
        return _load_run(scheduled, issued, done)


def _load_run(scheduled: Array, issued: Array, done: Array) -> LoadRun:
    return LoadRun(
        queries=np.arange(len(scheduled)),
        scheduled=scheduled,
        issued=issued,
        started=issued,
        done=done,
        batch_sizes=np.ones(len(scheduled), np.int64),
        readings={"at": np.zeros(1), "cpu": np.zeros(1), "wait": np.zeros(1)},
        complete=True,
        instances=1,
    )


@dataclass
class _QueueProcess:
    """The process of a side."""

    pair: QueuePair
    side: SideName

    def load_run(self, batches: Sequence[Any], plan: LoadPlan) -> LoadRun:
        return self.pair.serve(self.side, plan)
