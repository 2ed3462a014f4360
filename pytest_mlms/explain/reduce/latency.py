"""The latency of one model on both sides, by turns, and the layers that became slower."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from pytest_mlms.core.errors import AgentError, MlmsError
from pytest_mlms.core.quantities import upgrade_rules
from pytest_mlms.decide.upgrade.layer_diff import changed_layers
from pytest_mlms.explain.bisect.search import Outcome
from pytest_mlms.explain.reduce.judging import ModelJudgement
from pytest_mlms.explain.reduce.network import Network
from pytest_mlms.explain.reduce.sides import Sides
from pytest_mlms.explain.repro.bundle import Expectation
from pytest_mlms.explain.repro.replay.record import RATIO
from pytest_mlms.measure.agent.predictor import Predictor

Array = NDArray[Any]
Arrays = Mapping[str, Array]

_LOOKS = (24, 72, 216)  # pairs of turns; more of them where fewer don't decide
_TURN_SECONDS = 0.004
_MOST_CALLS = 400  # in a turn
_WARM_UP = 3  # turns of each side
_CONFIDENCE = 0.997  # of each look, about 0.99 of all
_ROUNDS = 2  # of fresh processes, that must agree on a failure
_PROFILED = 10  # calls
_LEAST_CHANGE = upgrade_rules()["latency"].least_change


@dataclass(frozen=True)
class LatencyJudge:
    """The failure is that calls take longer by more than a share, ``tolerance``.

    The sides are timed by turns, a pair of turns after the other, in changing order. The interval
    of the mean of the logarithms of their ratios decides: what straddles the tolerance says
    nothing. A failure must be seen in two processes of each side, as memory lies elsewhere in each.
    """

    sides: Sides
    expected: Expectation
    tolerance: float

    def __call__(self, model: Path, inputs: Arrays) -> ModelJudgement:
        """Time both sides by turns."""
        measured = []
        try:
            for number in range(_ROUNDS):
                if number:
                    self.sides.old.close()
                    self.sides.new.close()
                measured.append(_measure(self.sides, model, inputs, self._limit))
                if measured[-1].low <= self._limit(measured[-1].old):
                    break
        except AgentError as error:
            return ModelJudgement(Outcome.UNDECIDED, str(error).splitlines()[0])
        least = min(measured, key=lambda one: one.low)
        outcome = _outcome(least, self._limit(least.old))
        if outcome is not Outcome.BAD:
            return ModelJudgement(outcome, str(least))
        return ModelJudgement(outcome, str(least), (), self._expected(least))

    def _limit(self, old: float) -> float:
        """Return the logarithm of what is allowed, as the gate and a replay of the part have it."""
        return math.log1p(max(self.tolerance, _LEAST_CHANGE / old))

    def _expected(self, found: _Measured) -> Expectation:
        return self.expected._replace(
            kind=RATIO,
            quantity="latency",
            summary=str(found),
            a=found.old,
            b=found.new,
            unit="s",
            ratio=math.exp(found.mean),
            low=math.exp(found.low),
            high=math.exp(found.high),
            tolerance=self.tolerance,
            better="lower",
            least_change=_LEAST_CHANGE,
        )


class _Measured(NamedTuple):
    """Median seconds a call of both sides, and the logarithm of their ratio with its interval."""

    old: float
    new: float
    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        interval = f"{math.exp(self.low):.3f} to {math.exp(self.high):.3f}"
        return f"latency ×{math.exp(self.mean):.3f} ({interval})"


def _outcome(found: _Measured, limit: float) -> Outcome:
    if found.low > limit:
        return Outcome.BAD
    if found.high < limit:
        return Outcome.GOOD
    return Outcome.UNDECIDED


def _measure(
    sides: Sides, model: Path, inputs: Arrays, limit: Callable[[float], float]
) -> _Measured:
    """Time both sides by turns, until their ratio is decided or turns are used up.

    Raises AgentError.
    """
    timers = [_timer(side.load(model), inputs) for side in sides]
    for _ in range(_WARM_UP):
        for timer in timers:
            timer.seconds()
    pairs: list[tuple[float, float]] = []
    for count in _LOOKS:
        while len(pairs) < count:
            pairs.append(_pair(timers, len(pairs) % 2))
        found = _summary(np.array(pairs))
        if _outcome(found, limit(found.old)) is not Outcome.UNDECIDED:
            break
    return found


def _pair(timers: Sequence[_Timer], first: int) -> tuple[float, float]:
    """Return the seconds of a turn of each side; ``first`` has the first one."""
    took = {first: timers[first].seconds()}
    took[1 - first] = timers[1 - first].seconds()
    return took[0], took[1]


class _Timer(NamedTuple):
    """A bound model, and the calls of a turn."""

    predictor: Predictor
    calls: int

    def seconds(self) -> float:
        """Return the median seconds a call of a turn."""
        times = self.predictor.turn(self.calls).times
        return float(np.median(times["end"] - times["start"]))


def _timer(predictor: Predictor, inputs: Arrays) -> _Timer:
    predictor.bind([inputs])
    single = _Timer(predictor, 1)
    single.seconds()
    calls = math.ceil(_TURN_SECONDS / max(single.seconds(), 1e-6))
    return _Timer(predictor, min(calls, _MOST_CALLS))


def _summary(pairs: Array) -> _Measured:
    """Return the mean logarithm of the ratios of pairs, with Student's interval."""
    ratios = np.log(pairs[:, 1] / pairs[:, 0])
    mean = float(ratios.mean())
    error = float(ratios.std(ddof=1)) / math.sqrt(len(ratios))
    half = float(stats.t.ppf((1 + _CONFIDENCE) / 2, len(ratios) - 1)) * error
    old, new = np.median(pairs, axis=0)
    return _Measured(float(old), float(new), mean, mean - half, mean + half)


def slower_layers(sides: Sides, model: Path, inputs: Arrays) -> list[str]:
    """Return the layers that take longer on the new side, the largest change first.

    None where a framework has no profiler.
    """
    try:
        old, new = (side.load(model).profile(inputs, _PROFILED) for side in sides)
    except MlmsError:
        return []
    changes = changed_layers(old, new)
    return [layer.name for layer in changes if layer.type and layer.change > 0]


def slower_nodes(network: Network, layers: Sequence[str]) -> list[int]:
    """Return the nodes of layers, which a framework may have fused and renamed.

    A fused layer has the name of one of its nodes in its own, or that of a tensor they write.
    """
    found: dict[int, None] = {}
    for layer in layers:
        number = _node_of(network, layer)
        if number is not None:
            found[number] = None
    return list(found)


def _node_of(network: Network, layer: str) -> int | None:
    """Return the node whose name, or whose tensor's name, is the longest in a layer's name."""
    best: tuple[int, int] | None = None
    for number, node in enumerate(network.nodes):
        for name in (node.name, *node.writes):
            if name == layer:
                return number
            if name in layer and (best is None or len(name) > best[0]):
                best = (len(name), number)
    return None if best is None else best[1]
