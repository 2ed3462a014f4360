"""A soak: one process, or one of either stack in turns, that is called for a long time.

It measures blocks of calls, and after each what the process holds; pure functions estimate its
quantities from the blocks. What was measured outlives an interruption.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from pytest_mlms.core.records import Estimate
from pytest_mlms.core.statistics import fisher_probability, theil_sen, theil_sen_interval
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.closeness import nearby_outputs, problem_of
from pytest_mlms.measure.evaluate.output_sweep import SPREADS, Nearby, OwnRules, own_sweep
from pytest_mlms.measure.evaluate.steadiness import held, latencies_less_wait

Running = Callable[[], AbstractContextManager[Predictor]]
"""Lets a side run within the context."""

_BLOCKS = 240  # of a side, where its calls are short enough
_SHORTEST = 0.05  # seconds of a block
_LONGEST = 5.0
_LONGEST_CALLS = 60.0  # seconds of a block whose call is slow


@dataclass(frozen=True)
class SoakSeries:
    """The blocks of one side: when each ended, what its calls took, and what was held after it.

    ``calls`` are those since the block before, also the few that only compare outputs.
    ``latency`` is the median of a call and ``mean`` the mean, in seconds less the wait for a core.
    ``difference`` is how far its outputs are from the first ones, in multiples of rounding; 0 where
    rounding decides them. ``repeat`` is where they differ that of two more calls in a row: a model
    that draws numbers gives something else each time. ``form`` is 1 where they have another form
    than the first ones, and 2 where two more calls in a row have other forms: both are infinite.
    """

    seconds: list[float] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)
    mean: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    difference: list[float] = field(default_factory=list)
    repeat: list[float] = field(default_factory=list)
    form: list[int] = field(default_factory=list)

    def arrays(self) -> dict[str, Array]:
        """Return the columns by name, of the blocks that are whole."""
        columns = vars(self)
        whole = min(map(len, columns.values()))
        return {name: np.array(values[:whole]) for name, values in columns.items()}


class SoakRun:
    """Blocks of calls of each side in turns, for some time; ``series`` has what was measured.

    ``batch`` is the first of those that are bound, whose outputs are compared by ``rules``.
    """

    def __init__(
        self,
        sides: Mapping[str, Running],
        batch: Mapping[str, Array],
        seconds: float,
        rules: OwnRules = dict,
    ) -> None:
        self._sides = sides
        self._rules = rules
        self._batch = batch
        self._nearby = functools.partial(nearby_outputs, batch=batch)
        self._seconds = seconds
        block = seconds / _BLOCKS / len(sides)
        self._block = min(max(block, _SHORTEST), _LONGEST)
        self._first: dict[str, Mapping[str, Array]] = {}
        self._between = dict.fromkeys(sides, 0)  # calls since the last block, which leak as others
        self.series = {side: SoakSeries() for side in sides}

    def run(self) -> None:
        """Measure until the time is over. Raises AgentError where a process dies."""
        began = time.monotonic()
        order = list(self._sides)
        while time.monotonic() - began < self._seconds:
            for side in order:
                with self._sides[side]() as predictor:
                    self._measure(side, predictor, began)
            order.reverse()

    def _measure(self, side: str, predictor: Predictor, began: float) -> None:
        run = predictor.run("single_stream", seconds=self._block, least=1, longest=_LONGEST_CALLS)
        usage = predictor.usage(collect=True)
        first = self._first.setdefault(side, run.outputs)
        series = self.series[side]
        latencies = latencies_less_wait(run.times)
        series.seconds.append(time.monotonic() - began)
        series.calls.append(len(latencies) + self._between[side])
        self._between[side] = 0
        series.latency.append(float(np.median(latencies)))
        series.mean.append(float(latencies.mean()))
        series.memory.append(held(usage))
        series.threads.append(usage.threads)
        series.descriptors.append(usage.descriptors)

        def predict(batch: Mapping[str, Array]) -> Mapping[str, Array]:
            self._between[side] += 1
            return predictor.predict(batch)

        nearby = functools.partial(self._nearby, predict)
        difference, is_other = self._difference(run.outputs, first, nearby)
        repeat, is_other_again = 0.0, False
        if difference > 1:
            again = predict(self._batch)
            repeat, is_other_again = self._difference(again, predict(self._batch))
        series.difference.append(difference)
        series.repeat.append(repeat)
        series.form.append(2 if is_other_again else int(is_other))

    def _difference(
        self,
        outputs: Mapping[str, Array],
        first: Mapping[str, Array],
        nearby: Nearby | None = None,
    ) -> tuple[float, bool]:
        """Return the largest difference from the first outputs, as a multiple of rounding.

        It is infinite where the first ones have NaN, of which nothing is known, and where outputs
        have another form, which is told, too; unless rounding decides the form, such as how many
        objects there are, and all of these are near some that it gave.
        """
        sweep = own_sweep(first, self._rules)
        sweep.add(first, outputs, [""], nearby)
        difference = math.inf if sweep.problem or sweep.nan else sweep.ratio
        forms = (problem_of(name, outputs.get(name), first[name], "the start") for name in first)
        return difference, math.isinf(difference) and any(forms)


Blocks = Mapping[str, Array]
"""The columns of ``soak.SoakSeries`` by name."""

Sides = Sequence[Blocks]
"""The blocks of B, and of A where it had turns between."""

_WARM_UP = 0.1  # share of the blocks
_LEAST_BLOCKS = 24
_PARTS = 3
_RISK = 0.0003  # that more blocks have another form by chance
_GROUPS = 13  # of neighbours, whose medians are independent enough
_CONFIDENCE = 0.99  # of the second of 12 values, from either end, it is 99.4 %


def estimate_soak(b: Blocks, a: Blocks | None = None) -> dict[str, Estimate]:
    """Return the quantities of ``b``: where ``a`` had turns between, how far they are beyond its.

    A drift is over the whole time, by Theil and Sen's slope. Growth is the median of the slopes
    between groups of neighbours, which are about independent also where memory wanders: their
    distribution-free interval leaves out the least and the largest, so that one step is no growth.
    """
    sides = [b] if a is None else [b, a]
    count, skipped = _counted(sides)
    if lacks_blocks(sides):
        needed = f"needs {_LEAST_BLOCKS} blocks of calls after the first tenth"
        lacking = f"{needed}, had {count - skipped}: soak longer"
        nothing = Estimate(math.nan, 0.0, math.inf, 1.0, count, "blocks", lacking)
        return dict.fromkeys(_QUANTITIES, nothing)
    kept = []
    for side in sides:
        kept.append({name: values[skipped:count] for name, values in side.items()})
    return {name: estimator(kept) for name, estimator in _QUANTITIES.items()}


def lacks_blocks(sides: Iterable[Blocks]) -> bool:
    """Return whether a soak has too few blocks to be judged."""
    count, skipped = _counted(sides)
    return count - skipped < _LEAST_BLOCKS


def _counted(sides: Iterable[Blocks]) -> tuple[int, int]:
    """Return the number of blocks, and of the first that don't count."""
    count = min(len(side["calls"]) for side in sides)
    return count, math.ceil(_WARM_UP * count)


def _growth(sides: Sides) -> Estimate:
    """Return the bytes that a call adds, between groups of neighbours."""
    slopes = np.sort(_beyond([_slopes(side) for side in sides]))
    return _estimate(float(np.median(slopes)), float(slopes[1]), float(slopes[-2]), sides)


def _slopes(side: Blocks) -> Array:
    calls = _medians_of_groups(np.cumsum(side["calls"]))
    memory = _medians_of_groups(side["memory"], "lower")  # halfway up a step would be two steps
    return np.asarray(np.diff(memory) / np.diff(calls))


def _added(column: str, sides: Sides) -> Estimate:
    """Return how much more a process got of something: 0 where it didn't all the time."""
    added = []
    for side in sides:
        parts = np.array_split(side[column], _PARTS)
        first, middle, last = (float(np.median(part)) for part in parts)
        is_rising = first < middle < last
        added.append(last - first if is_rising else 0.0)
    return _exactly(max(0.0, _beyond(added)), sides)


def _drift(column: str, sides: Sides) -> Estimate:
    """Return the rise of a column over the whole time, as a share."""
    time = sides[0]["seconds"]
    seconds = _medians_of_groups(time)
    values = _medians_of_groups(_beyond([np.log(side[column]) for side in sides]))
    slope = theil_sen(seconds, values)
    interval = theil_sen_interval(seconds, values, _CONFIDENCE)
    span = time[-1] - time[0]
    value, low, high = np.expm1(span * np.array([slope, *interval]))
    return _estimate(float(value), float(low), float(high), sides)


def _medians_of_groups(values: Array, of_two: Literal["linear", "lower"] = "linear") -> Array:
    groups = np.array_split(values, _GROUPS)
    return np.array([np.quantile(group, 0.5, method=of_two) for group in groups])


def _outputs(sides: Sides) -> Estimate:
    """Return the largest difference; nothing is known of outputs whose form changes by the call.

    Where it does so on both sides where there are two, blocks of the first form may still show a
    drift.
    """
    if not _change_form_by_call(sides):
        return _differences(sides)
    of_first_form = []
    for side in sides:
        has_first = side["form"] == 0
        of_first_form.append({name: values[has_first] for name, values in side.items()})
    if min(len(side["form"]) for side in of_first_form) >= _PARTS:
        found = _differences(of_first_form)
        if found.value > 1 and not found.lacking:
            return found
    lacking = "outputs change their form from call to call, which is no measure of what time does"
    return replace(_exactly(math.inf, sides), lacking=f"{lacking}; fix the model's seed")


def _change_form_by_call(sides: Sides) -> bool:
    """Return whether the model changes the form of its outputs, on both sides alike."""
    b, a = (sides[index]["form"] > 0 for index in (0, -1))
    if not b.any() or _are_more(b, a, SPREADS):
        return False
    return all(map(_is_form_drawn, sides))


def _is_form_drawn(side: Blocks) -> bool:
    """Return whether the form of outputs changes by the call, and not more often at the end.

    Where it does so too seldom to be seen at first, it is drawn if the numbers are.
    """
    first, _, last = np.array_split(side["form"], _PARTS)
    if _are_more(last > 0, first > 0):
        return False
    repeats = side["repeat"][: len(first)][first == 0]
    is_number_drawn = len(repeats) > 0 and 1 < np.median(repeats) < math.inf
    return bool(2 in first or is_number_drawn)


def _are_more(blocks: Array, others: Array, odds: float = 1.0) -> bool:
    """Return whether surely more of some blocks have another form than of others."""
    counts = (int(others.sum()), len(others), int(blocks.sum()), len(blocks))
    return fisher_probability(*counts, odds) < _RISK


def _differences(sides: Sides) -> Estimate:
    """Return the largest difference; nothing is known where calls in a row differ from the start.

    A model that draws numbers is so by design: on both sides where there are two. What is NaN, or
    ends farther off, is known. It is 0 where neither does so, and the baseline drifts as much.
    """
    difference = sides[0]["difference"]
    repeats = [np.array_split(side["repeat"], _PARTS)[0] for side in sides]
    by_call = [float(np.median(repeat)) for repeat in repeats]
    is_known = max(by_call) <= 1 or math.isinf(min(by_call))  # or NaN, on both sides alike
    if len(sides) > 1 and is_known and _drifts_as(sides[0], sides[1]):
        return _exactly(0.0, sides)

    found = _exactly(float(difference.max()), sides)
    are_drawn = all(1 < each < math.inf for each in by_call)
    last = np.array_split(difference, _PARTS)[-1]
    is_farther = np.median(last) > SPREADS * repeats[0].max()
    if not are_drawn or is_farther or np.isinf(difference).any():
        return found
    lacking = (
        f"outputs vary by {by_call[0]:.2g} times rounding from call to call, which is no measure "
        "of what time does; fix the model's seed"
    )
    return replace(found, lacking=lacking)


def _drifts_as(b: Blocks, a: Blocks) -> bool:
    """Return whether outputs of A drift, and B's no more than twice as far and as often.

    Numbers, NaN and infinities, and other forms are each allowed by their own kind only.
    """
    farthest = []
    counts = []
    for side in (b, a):
        difference = side["difference"]
        is_far = difference > 1
        is_number = np.isfinite(difference)
        is_other_form = ~is_number & (side["form"] > 0)
        is_no_number = ~is_number & ~is_other_form
        farthest.append(difference[is_far & is_number].max(initial=0.0))
        kinds = (is_number, is_no_number, is_other_form)
        counts.append(np.array([np.sum(is_far & kind) for kind in kinds]))
    is_as_far = farthest[0] <= SPREADS * farthest[1]
    is_as_often = (counts[0] <= SPREADS * counts[1]).all()
    return bool(counts[1].any() and is_as_far and is_as_often)


def _beyond(of_sides: Sequence[Any]) -> Any:
    """Return a value of the first side, less the second one's where there are two."""
    first, *others = of_sides
    return first - others[0] if others else first


def _exactly(value: float, sides: Sides) -> Estimate:
    return Estimate(value, value, value, 1.0, len(sides[0]["calls"]), "blocks")


def _estimate(value: float, low: float, high: float, sides: Sides) -> Estimate:
    return Estimate(value, low, high, _CONFIDENCE, len(sides[0]["calls"]), "blocks")


_QUANTITIES: dict[str, Callable[[Sides], Estimate]] = {
    "soak_growth": _growth,
    "soak_threads": partial(_added, "threads"),
    "soak_descriptors": partial(_added, "descriptors"),
    "soak_latency_drift": partial(_drift, "latency"),
    "soak_throughput_drift": partial(_drift, "mean"),
    "soak_outputs": _outputs,
}
"""Quantity of a soak -> its estimator."""
