"""Simulation of upgrades that get slower for a part of their inputs: how often that is found.

Calls of 3 ms have noise of 2 %, one in a hundred takes up to three times as long on either side,
and processes differ by 0.5 %. Some inputs take three times as long on the candidate: those of one
shape, or any, which nothing tells from the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from gate_noise import FASTER, TURNS, pairs_at_end, plan_of
from gate_report import row_of
from numpy.typing import NDArray

from pytest_mlms.core.quantities import upgrade_rules
from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.decide.upgrade.criteria import Criteria
from pytest_mlms.decide.upgrade.decision import (
    are_gates_decided,
    compare_rounds,
    compare_stalls,
    is_decided,
    verdict_of,
)
from pytest_mlms.decide.upgrade.figures import (
    Figure,
    centre_of,
    figures_of,
    group_figures,
    slow_calls,
)
from pytest_mlms.decide.upgrade.interleave import TURNS_AGAIN
from pytest_mlms.decide.upgrade.round_estimate import MOST_ROUNDS
from pytest_mlms.decide.upgrade.rounds import Round, RoundInputs, Side
from pytest_mlms.decide.upgrade.slow_inputs import SlowInputs, groups_beside
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.evaluate.timed_inputs import (
    TimedInputs,
    cycle_of,
    elements_of,
    groups_of,
    watched_of,
)
from pytest_mlms.measure.pipeline import Dataset

__all__ = ["CELLS", "HEADER", "Cell", "decide", "workload_report"]

Array = NDArray[Any]

_CALL = 3e-3  # a turn of its own, ahead of which nothing needs to go
_PAIRS = math.ceil(FASTER * TURNS / (2 * _CALL))
_TERMS = Criteria({"latency": upgrade_rules()["latency"].tolerance})
_CHUNK = 50  # decisions of a task of a process


class Cell(NamedTuple):
    """Inputs, and the share of them that takes three times as long on the candidate."""

    inputs: int
    share: float
    one_shape: bool

    @property
    def slow(self) -> int:
        """The number of slow inputs; where there are none, one of 20 is of another shape."""
        return round(self.inputs * self.share)


CELLS = [
    *(Cell(300, share, one_shape=True) for share in (0.0, 0.01, 0.05, 0.2)),
    *(Cell(300, share, one_shape=False) for share in (0.0, 0.01, 0.05, 0.2)),
    Cell(600, 0.01, one_shape=False),
]

HEADER = ("inputs", "three times slower", "REGRESSED", "by", "rounds")


class Decision(NamedTuple):
    """The verdict on an item, the quantities that regressed, and its rounds."""

    verdict: Verdict
    regressed: Sequence[str]
    rounds: int


class _Prepared(Dataset):
    """A dataset whose elements take no preparation, so that simulating takes less time."""

    def check_size(self, size: int) -> None:
        """Do nothing: its elements are small."""

    def batch(self, indices: Sequence[int]) -> dict[str, Array]:
        """Return the elements as they are, of one shape."""
        return {"x": np.stack([np.asarray(self.elements["x"][index]) for index in indices])}


class _Sides:
    """Draws the times of both sides' calls on inputs."""

    def __init__(self, cell: Cell, random: np.random.Generator) -> None:
        self._random = random
        self.sizes = np.full(cell.inputs, 8)
        marked = random.permutation(cell.inputs)[: cell.slow or cell.inputs // 20]
        if cell.one_shape:
            self.sizes[marked] = 16
        self._factor = np.ones(cell.inputs)
        if cell.share:
            self._factor[marked] = 3

    def times(self, elements: Array) -> tuple[Array, Array]:
        """Return the seconds of the calls of a round on these elements, by side."""
        a = _CALL * self.sizes[elements] / 8
        b = a * self._factor[elements]
        return self._noisy(a), self._noisy(b)

    def _noisy(self, seconds: Array) -> Array:
        random = self._random
        process = np.exp(0.005 * random.standard_normal())
        noise = np.exp(0.02 * random.standard_normal(seconds.shape))
        rare = np.where(random.random(seconds.shape) < 0.01, random.uniform(1, 3), 1.0)
        return np.asarray(seconds * process * noise * rare)


def _round_of(times: tuple[Array, Array]) -> Round:
    sides = [
        Side(seconds, np.zeros(seconds.shape), seconds.mean(axis=1), None, 0.1, 0.01, None)
        for seconds in times
    ]
    return Round(*sides)


class _Item:
    """The rounds of a simulated upgrade so far, and the decision on them."""

    def __init__(self, cell: Cell, seed: Sequence[int]) -> None:
        random = np.random.default_rng(seed)
        self._sides = _Sides(cell, random)
        arrays: list[Any] = [np.zeros(size, np.float32) for size in self._sides.sizes]
        spec = Input(name="x", type="tensor", element_type="float32")
        dataset = _Prepared("simulated", (spec,), {"x": arrays}, None)
        self._timed = TimedInputs(dataset, 1, seed=0, run_seed=int(random.integers(1 << 32)))
        self._plan = plan_of(_TERMS)
        self._slow_inputs = SlowInputs()
        self._changes: list[float] = []
        self._slow_calls: list[tuple[int, int]] = []
        self._call_seconds: list[float] = []
        self._figures: list[Mapping[str, Figure]] = []
        self._groups: list[Mapping[str, Figure]] = []
        self.comparisons: list[Comparison] = []

    def add_round(self) -> None:
        """Measure a round, and compare all of them."""
        self._timed.watch = self._slow_inputs.watch
        batches = self._timed()
        elements = np.array(elements_of(batches))[:, 0]
        again = np.repeat(watched_of(batches), TURNS_AGAIN)[:, None]
        measured, numbers = self._turns(elements, cycle_of(batches))
        inputs = RoundInputs(
            numbers,
            groups_of(batches),
            batches.mix,
            batches.elements,
            _round_of(self._sides.times(elements[again])) if len(again) else None,
            again[:, 0].tolist(),
        )
        self._slow_calls.append(slow_calls(measured, inputs))
        self._figures.append(figures_of(measured, "adj", 1, inputs))
        groups = group_figures(measured, "adj", inputs) if inputs.is_mixed else {}
        self._groups.append(groups)
        self._slow_inputs.add(inputs, measured, "adj")
        of_rounds = compare_rounds(self._figures, {})
        of_groups = groups_beside(of_rounds, inputs.mix, self._groups, {}, _TERMS)
        found = [
            *of_rounds,
            of_groups and of_groups.worst,
            self._slow_inputs.compare(),
            compare_stalls(self._figures),
        ]
        self.comparisons = [compared for compared in found if compared is not None]

    def _turns(self, elements: Array, cycle: Array) -> tuple[Round, Array]:
        """Return the turns of a round, and the batch of each call."""
        numbers = cycle[np.arange(_PAIRS) % len(cycle)][:, None]
        a, b = self._sides.times(elements[numbers])
        ratios = np.log(b / a)[:, 0]
        spent = np.concatenate([[0.0], np.cumsum(a + b)])
        plan = self._plan.for_round(
            self._changes,
            are_gates_decided(self.comparisons),
            self._slow_calls,
            self._call_seconds,
        )
        pairs = pairs_at_end(plan, spent, lambda count: centre_of(ratios[:count])[1], 1, len(cycle))
        self._changes.append(float(np.median(ratios[:pairs])))
        self._call_seconds.append(float(spent[pairs]) / pairs)
        return _round_of((a[:pairs], b[:pairs])), numbers[:pairs]


def decide(cell: Cell, seed: Sequence[int]) -> Decision:
    """Return the decision on a simulated upgrade, after as many rounds as it takes."""
    item = _Item(cell, seed)
    for count in range(1, MOST_ROUNDS + 1):
        item.add_round()
        if is_decided(item.comparisons, count):
            break
    regressed = [each.quantity for each in item.comparisons if each.verdict is Verdict.REGRESSED]
    return Decision(verdict_of(item.comparisons), regressed, count)


def _decide_some(cell: Cell, seeds: Sequence[Sequence[int]]) -> list[Decision]:
    return [decide(cell, seed) for seed in seeds]


def workload_report(decisions: int, seed: int, processes: int | None = None) -> Iterator[str]:
    """Yield a table with a row for each cell."""
    yield row_of(HEADER)
    yield row_of(["---"] * len(HEADER))
    with ProcessPoolExecutor(processes) as pool:
        for number, cell in enumerate(CELLS):
            seeds = [[seed, number, index] for index in range(decisions)]
            chunks = [seeds[first : first + _CHUNK] for first in range(0, decisions, _CHUNK)]
            found: list[Decision] = []
            for part in pool.map(_decide_some, [cell] * len(chunks), chunks):
                found += part
            yield row_of(_cells_of(cell, found))


def _cells_of(cell: Cell, found: Sequence[Decision]) -> list[str]:
    regressed = [each for each in found if each.verdict is Verdict.REGRESSED]
    counts: dict[str, int] = {}
    for each in regressed:
        for name in each.regressed:
            counts[name] = counts.get(name, 0) + 1
    by = [name for name, count in counts.items() if 2 * count >= len(regressed)]
    where = "those of one shape" if cell.one_shape else "any"
    slow = f"{100 * cell.share:.2g} %, {where}"
    if not cell.share:
        slow = "none; two shapes" if cell.one_shape else "none; one shape"
    rounds = np.mean([each.rounds for each in found])
    return [
        f"{cell.inputs}",
        slow,
        f"{len(regressed):,} of {len(found):,}",
        ", ".join(f"`{name}`" for name in sorted(by)) or "-",
        f"{rounds:.1f}",
    ]
