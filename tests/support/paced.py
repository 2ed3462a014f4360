"""Upgrades of predictors whose calls take as long as a test says, by their inputs; no process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from mlms_predictors._run.scenarios import TurnRequest

from pytest_mlms.core.errors import AgentError
from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.decide.upgrade.agents import AgentPair
from pytest_mlms.decide.upgrade.criteria import Criteria
from pytest_mlms.decide.upgrade.interleave_plan import InterleavePlan
from pytest_mlms.decide.upgrade.output_check import OutputFindings
from pytest_mlms.decide.upgrade.result import UpgradeResult
from pytest_mlms.decide.upgrade.rounds import Outputs
from pytest_mlms.decide.upgrade.run import UpgradeRun
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.agent.predictor import Clocks, Predictor, Turn
from pytest_mlms.measure.evaluate.timed_inputs import TimedInputs
from pytest_mlms.measure.pipeline import Dataset
from tests.support.fake_agents import FakePredictor

Pace = Callable[[Any, int, np.random.Generator], float]
"""Returns the seconds of a call, by its input, its number in its process, and random numbers."""


class PacedPredictor(FakePredictor):
    """A predictor whose calls take what ``pace`` returns; each of its turns begins cold.

    ``start`` has the factors of the first calls of a turn.
    """

    def __init__(
        self, pid: int, pace: Pace, random: np.random.Generator, start: Sequence[float] = ()
    ) -> None:
        super().__init__(pid)
        self._pace = pace
        self._random = random
        self._start = start
        self._inputs: list[Any] = []
        self._cycle = 0

    def bind(self, batches: Sequence[Outputs], order: Sequence[int] = (), cycle: int = 0) -> Clocks:
        numbers = order or range(len(batches))
        self._inputs = [next(iter(batches[number].values())) for number in numbers]
        self._cycle = cycle or len(self._inputs)
        return self.clocks

    def turn(
        self,
        count: int,
        skip: int = 0,
        first: int = 0,
        *,
        outputs: bool = False,
        memory: bool = False,
    ) -> Turn:
        assert self.agent.running, "a stopped process was given a turn"
        request = TurnRequest(first, skip, count, self._cycle)
        ordered = request.ordered(self._inputs)
        seconds: list[float] = []
        for number in [*range(skip), *range(count)]:
            cold = self._start[len(seconds)] if len(seconds) < len(self._start) else 1.0
            pace = self._pace(ordered[number % len(ordered)], self.calls, self._random)
            seconds.append(cold * pace)
            self.calls += 1
        durations = np.array(seconds[skip:])
        end = np.cumsum(durations)
        times = {
            "start": end - durations,
            "end": end,
            "wait": np.zeros(2),
            "at": np.array([0.0, count]),
            "cpu": np.array([0.0, end[-1]]),
        }
        return Turn(times, self.outputs if outputs else {}, 1 << 20 if outputs else None)

    def profile(self, batch: Any, count: int) -> list[Any]:
        raise AgentError("it has no layers")


class _Sink:
    def __init__(self, folder: Path | None) -> None:
        self.fields: dict[str, Any] = {}
        self.folder = folder

    def note(self, **fields: Any) -> None:
        self.fields.update(fields)

    def keep(self, name: str, write: Callable[[Path], None]) -> None:
        if self.folder is not None:
            write(self.folder / name)


def tensor_input() -> Input:
    return Input(name="x", type="tensor", element_type="float32")


def dataset_of(elements: Sequence[Any]) -> Dataset:
    """Return a dataset of arrays, which may differ in shape."""
    return Dataset("arrays", (tensor_input(),), {"x": list(elements)}, None)


def paced_upgrade(
    elements: Sequence[Any],
    pace_a: Pace,
    pace_b: Pace,
    seed: int,
    *,
    pairs: int = 60,
    starts: Mapping[str, Sequence[float]] | None = None,
    tolerances: Mapping[str, float] | None = None,
    idle: tuple[float, float] = (0.0, 0.0),
    folder: Path | None = None,
) -> UpgradeResult:
    """Return the result of an upgrade over a dataset, in rounds of ``pairs`` pairs of turns.

    What it keeps goes into ``folder``.
    """
    random = np.random.default_rng(seed)
    begin = starts or {}

    @contextlib.contextmanager
    def open_pair(order: Any, cores: Any) -> Iterator[AgentPair]:
        a = PacedPredictor(1, pace_a, random, begin.get("a", ()))
        b = PacedPredictor(2, pace_b, random, begin.get("b", ()))
        a.idle_share, b.idle_share = idle
        labels: Any = {"a": "baseline old", "b": "candidate new"}
        yield AgentPair(cast(Predictor, a), cast(Predictor, b), labels)

    tolerance = {"latency": 0.03, **(tolerances or {})}
    criteria = Criteria(tolerance, tuple(tolerance))
    run = UpgradeRun(criteria, 1, lambda *outputs: OutputFindings([]), _Sink(folder))
    plan = _Pairs(seconds=0.0, budget=3600, seed=seed)
    object.__setattr__(plan, "pairs", pairs)
    timed = TimedInputs(dataset_of(elements), 1, seed=0, run_seed=seed)
    return run.run(plan, open_pair, timed)


class _Pairs(InterleavePlan):
    """A plan whose rounds have a number of pairs, however long these take."""

    pairs: int

    def is_measured(self, pairs: int, calls: int, spent: float) -> bool:
        return pairs >= self.pairs


def verdict_on(result: UpgradeResult, quantity: str) -> Verdict | None:
    """Return the verdict on a quantity; None where it isn't told."""
    found = compared_as(result, quantity)
    return found.verdict if found else None


def compared_as(result: UpgradeResult, quantity: str) -> Comparison | None:
    """Return the comparison of a quantity, if there is one."""
    for compared in result.comparisons:
        if compared.quantity == quantity:
            return compared
    return None
