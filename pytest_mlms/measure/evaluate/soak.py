"""A soak: one process, or one of either stack in turns, that is called for a long time.

It measures blocks of calls, and after each what the process holds; ``soak_estimates`` computes from
them. What was measured outlives an interruption.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np

from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.closeness import problem_of
from pytest_mlms.measure.evaluate.contention import latencies_less_wait
from pytest_mlms.measure.evaluate.memory_growth import held
from pytest_mlms.measure.evaluate.output_sweep import Nearby, OwnRules, own_sweep
from pytest_mlms.measure.evaluate.rounding import nearby_outputs

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
    ``difference`` is that of its outputs from the first ones, as a multiple of rounding; 0 where
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

        It is infinite where they have another form, which is told, too; unless rounding decides the
        form, such as how many objects there are, and all of these are near some that it gave.
        """
        sweep = own_sweep(first, self._rules)
        sweep.add(first, outputs, [""], nearby)
        difference = math.inf if sweep.problem else sweep.ratio
        forms = (problem_of(name, outputs.get(name), first[name], "the start") for name in first)
        return difference, math.isinf(difference) and any(forms)
