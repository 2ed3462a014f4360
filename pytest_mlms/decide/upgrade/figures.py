"""Quantities of one round, computed from its raw measurements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
from mlms_predictors._run.replies import DeviceBytes

from pytest_mlms.core.quantities import upgrade_rules
from pytest_mlms.core.serialization import NullAs, plain_as_list
from pytest_mlms.core.statistics import (
    persistence,
    ratio_of_means,
    samples_for_percentile,
    signed_rank,
    weighted_percentile,
)
from pytest_mlms.decide.upgrade.rounds import Array, Clock, Round, RoundInputs, available_clocks

Statistic = Callable[[Array], Any]

OF_PROCESS = {
    "start_time": "start_seconds",
    "first_inference": "first_seconds",
    "warm_up_time": "warm_up_seconds",
    "late_latency": "late_seconds",
    "idle_cpu": "idle_cpu",
    "load_time": "load_seconds",
    "peak_memory": "model_bytes",
    "import_memory": "import_bytes",
    "device_memory": "device_memory",
    "memory_growth": "growth",
    "energy_per_input": "joules",
}
"""Quantity that a process has once -> the attribute of Side."""

STALLED = 3
"""A call that takes so many times the median of its group has stalled."""

_SLOW = 1.1
"""A call that takes so many times the median of its group is later than a percentile may be."""

_TICK = 1e-10  # seconds; the readings of a clock are good to less
_COARSE = 0.001  # of a call
_TOO_COARSE = 0.005  # of a turn
_ERRORS_IN_INTERVAL = 3.92  # a 95 % interval is so many standard errors wide


@plain_as_list
class Figure(NamedTuple):
    """A quantity in one round.

    ``a`` and ``b`` are the values of both sides, and ``value`` is log(b / a). ``error`` is its
    standard error within the round: 0 where that isn't estimated, infinite where the round says
    nothing of the quantity. ``calls`` is the number of calls of a side that were measured for it.
    """

    a: float
    b: float
    value: float
    error: Annotated[float, NullAs(math.inf)]
    calls: int = 0


class _Calls(NamedTuple):
    """Seconds of the calls of both sides, as turns x calls.

    ``inputs`` are those of the calls where these are of several groups.
    """

    a: Array
    b: Array
    inputs: RoundInputs | None = None

    @property
    def advance(self) -> bool:
        """True if the clock advanced in every call; a coarse one stands still between readings."""
        return bool(self.a.min() > 0 and self.b.min() > 0)

    @property
    def is_coarse(self) -> bool:
        """True if the median of calls may be off by the step of the clock.

        The mean of a turn is not: its calls begin anywhere between two steps.
        """
        sides = (self.a, self.b)
        return any(clock_step(side) > _COARSE * np.median(side) for side in sides)

    @property
    def is_too_coarse(self) -> bool:
        """True if the mean of a turn may be off, too."""
        share = _TOO_COARSE * self.a.shape[1]
        return any(clock_step(side) > share * np.median(side) for side in (self.a, self.b))

    def figure(self, statistic: Statistic, value: float, error: float) -> Figure:
        """Return the figure of a statistic of the calls, whose change is ``value``."""
        a = statistic(self.a)
        b = statistic(self.b)
        return Figure(float(a), float(b), value, error, self.a.size)


def figures_of(
    measured: Round, clock: Clock, batch_size: int, inputs: RoundInputs | None = None
) -> dict[str, Figure]:
    """Return the quantities of a round by name; ``clock`` times latency and throughput.

    Percentiles, and quantities that a process has once, such as its time to load, have an error of
    0: the rounds are their samples. Where ``inputs`` are of several groups, each has its share in
    what is computed, however many of its calls were timed.
    """
    mixed = inputs if inputs is not None and inputs.is_mixed else None
    calls = _calls(measured, clock)._replace(inputs=mixed)
    wall = _calls(measured, "wall")._replace(inputs=mixed)
    cpu = _calls(measured, "cpu")
    if mixed is not None and mixed.numbers.shape[1] == 1:
        cpu = cpu._replace(inputs=mixed)
    figures = {
        "latency": _centre(calls),
        "cpu_time": _mean(cpu) if cpu.advance and not cpu.is_too_coarse else _unknown(cpu),
        "wall_time": _centre(wall),
    }
    if clock == "cpu":
        calls = wall  # CPU time is known for a whole turn, and percentiles need each call
    if calls.advance:
        mean = _mean(calls)
        figures["throughput"] = mean._replace(
            a=batch_size / mean.a, b=batch_size / mean.b, value=-mean.value
        )
        figures["stalls"] = _stalls(calls, measured)
    if calls.advance and not calls.is_coarse:
        figures["latency_p90"] = _percentile(calls, 90)
        figures["latency_p95"] = _percentile(calls, 95)
        if calls.a.size >= samples_for_percentile(99):
            figures["latency_p99"] = _percentile(calls, 99)
    figures.update(_of_tokens(measured, mixed))
    figures.update(_of_process(measured))
    unmeasured = {*measured.a.unmeasured, *measured.b.unmeasured}
    return {name: figure for name, figure in figures.items() if name not in unmeasured}


def group_figures(measured: Round, clock: Clock, inputs: RoundInputs) -> dict[str, Figure]:
    """Return the latency of each group of inputs that has calls in the round."""
    calls = _calls(measured, clock)
    if clock == "cpu" and inputs.numbers.shape[1] > 1:
        calls = _calls(measured, "wall")
    found = {}
    for group, name in enumerate(inputs.mix.names):
        figure = _centre_of(calls, inputs.of_group(group))
        if figure is not None:
            found[name] = figure
    return found


def _calls(measured: Round, clock: Clock) -> _Calls:
    return _Calls(measured.a.times(clock), measured.b.times(clock))


def _centre(calls: _Calls) -> Figure:
    """Compare the median calls of all pairs of turns: the centre of log(b / a).

    Of several groups it is the change of the mean over groups of their medians, by their shares. By
    a coarse clock medians are means.
    """
    if calls.inputs is not None:
        whole = before = after = 0.0
        for group, share in enumerate(calls.inputs.mix.shares):
            figure = _centre_of(calls, calls.inputs.of_group(group))
            if figure is not None:
                whole += share
                before += share * figure.a
                after += share * figure.a * math.exp(figure.value)
        if not before:
            return Figure(0.0, 0.0, 0.0, math.inf, calls.a.size)
        return Figure(before / whole, after / whole, math.log(after / before), 0.0, calls.a.size)
    turns = _Calls(*seconds_of_turns(calls.a, calls.b))
    if not turns.advance or calls.is_too_coarse:
        return _unknown(calls)
    ratios = np.log(turns.b / turns.a)
    centre, error = centre_of(ratios)
    return calls.figure(np.mean if calls.is_coarse else np.median, centre, error)


def seconds_of_turns(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the seconds of both sides' turns, given their calls' as turns x calls.

    They are medians, or means by a coarse clock.
    """
    statistic = np.mean if _Calls(a, b).is_coarse else np.median
    return statistic(a, axis=1), statistic(b, axis=1)


def clock_step(times: Array) -> float:
    """Return the step in which a clock advances: what most times differ by that are seen twice.

    It is 0 where most are seen once, so that the step is far below what they differ by.
    """
    ticks, counts = np.unique(np.rint(times / _TICK), return_counts=True)
    tied = ticks[counts > 1]
    if len(tied) < 2 or counts[counts > 1].sum() < times.size / 2:
        return 0.0
    return float(np.diff(tied).min() * _TICK)


def centre_of(ratios: Array) -> tuple[float, float]:
    """Return the centre of the logs of b / a of pairs of turns, and its standard error.

    A few pairs have no interval by their ranks; their error is that of their mean.
    """
    centre, low, high = signed_rank(ratios)
    error = (high - low) / _ERRORS_IN_INTERVAL
    if math.isinf(error) and len(ratios) > 1:
        error = float(np.std(ratios, ddof=1)) / math.sqrt(len(ratios))
    return centre, error * persistence(ratios)


def _unknown(calls: _Calls) -> Figure:
    return calls.figure(np.mean, 0.0, math.inf)


def _mean(calls: _Calls) -> Figure:
    """Compare the means, to which the few turns count in which the candidate's threads compute."""
    if calls.inputs is not None:
        weights = calls.inputs.weights()
        a = float((weights * calls.a).sum() / weights.sum())
        b = float((weights * calls.b).sum() / weights.sum())
        return Figure(a, b, math.log(b / a), 0.0, calls.a.size)
    value, error = ratio_of_means(calls.b.mean(axis=1), calls.a.mean(axis=1))
    return calls.figure(np.mean, value, error)


def _centre_of(calls: _Calls, chosen: Array) -> Figure | None:
    """Return the centre of log(b / a) of the chosen calls, by turns; None where there are none."""
    has_any = chosen.any(axis=1)
    if not has_any.any():
        return None
    statistic = np.nanmean if calls.is_coarse else np.nanmedian
    a, b = (
        statistic(np.where(chosen[has_any], side[has_any], np.nan), axis=1)
        for side in (calls.a, calls.b)
    )
    if min(a.min(), b.min()) <= 0:
        return None
    centre = signed_rank(np.log(b / a)).value
    count = int(chosen.sum())
    return Figure(float(np.median(a)), float(np.median(b)), centre, 0.0, count)


def _percentile(calls: _Calls, percent: float) -> Figure:
    if calls.inputs is None:
        a = float(np.percentile(calls.a, percent))
        b = float(np.percentile(calls.b, percent))
    else:
        weights = calls.inputs.weights()
        a = weighted_percentile(calls.a, weights, percent)
        b = weighted_percentile(calls.b, weights, percent)
    return Figure(a, b, math.log(b / a), error=0.0, calls=calls.a.size)


def _stalls(calls: _Calls, measured: Round) -> Figure:
    """Return the shares of calls that took several times the median of their group.

    The calls are those of turns, and those up to the late ones if the round has them. Neighbours
    count once: what disturbs one side's turn makes many short calls slow.
    """
    size = calls.a.size
    a, b = (_slower(each, STALLED) for each in _by_usual(calls))
    if measured.a.all_times is not None and measured.b.all_times is not None:
        size += min(len(side.all_times) for side in measured if side.all_times is not None)
        a += count_stalls(measured.a.all_times)
        b += count_stalls(measured.b.all_times)
    return Figure(a / size, b / size, math.log((b + 0.5) / (a + 0.5)), 0.0, size)


def count_stalls(times: Array) -> int:
    """Return how many calls took several times their median, neighbours once."""
    usual = float(np.median(times))
    return _slower(times[None] / usual, STALLED) if usual > 0 else 0


def slow_calls(measured: Round, inputs: RoundInputs) -> tuple[int, int]:
    """Return how many calls of each side are among those that percentiles are about.

    That is beyond the middle of both sides' p95, so that those of a side whose slow calls are as
    many as the other's, but slower, are more.
    """
    clock = available_clocks(measured)[0]
    calls = _calls(measured, "wall" if clock == "cpu" else clock)
    a, b = _by_usual(calls._replace(inputs=inputs if inputs.is_mixed else None))
    middle = math.sqrt(float(np.percentile(a, 95)) * float(np.percentile(b, 95)))
    later = max(_SLOW, middle)
    return _slower(a, later), _slower(b, later)


def _by_usual(calls: _Calls) -> tuple[Array, Array]:
    """Return the times of the calls of each side as multiples of the median of their group."""
    found = []
    for seconds in (calls.a, calls.b):
        usual = np.full(seconds.shape, np.median(seconds))
        if calls.inputs is not None:
            for group in range(len(calls.inputs.mix.names)):
                chosen = calls.inputs.of_group(group)
                if chosen.any():
                    usual[chosen] = np.median(seconds[chosen])
        found.append(np.divide(seconds, usual, out=np.ones(seconds.shape), where=usual > 0))
    return found[0], found[1]


def _slower(calls: Array, times: float) -> int:
    """Return how many calls took more than so many times the usual, neighbours once."""
    slow = calls > times
    slow[:, 1:] &= ~slow[:, :-1].copy()
    return int(slow.sum())


def by_one_counter(
    a: DeviceBytes | None, b: DeviceBytes | None
) -> tuple[int, int] | tuple[None, None]:
    """Return the bytes of both sides by the first counter of A that B has, too.

    Counters count different things: a framework's its pool, NVML also the context of CUDA.
    """
    if a is not None and b is not None:
        for counter, held in a.counters.items():
            if counter in b.counters:
                return held, b.counters[counter]
    return None, None


def _of_tokens(measured: Round, inputs: RoundInputs | None) -> dict[str, Figure]:
    """Return the quantities of generated tokens, less the wait for a core where it is counted.

    There are none where nothing is generated.
    """
    a, b = (side.tokens for side in measured)
    if a is None or b is None:
        return {}
    form = measured.a.wall.shape
    found = {"ttft": _centre(_Calls(a.first.reshape(form), b.first.reshape(form), inputs))}
    each = _Calls(a.each.reshape(form), b.each.reshape(form), inputs)
    has_each = np.isfinite(each.a) & np.isfinite(each.b)
    of_each = _centre(each) if has_each.all() else _centre_of(each, has_each)
    if of_each is not None:
        found["tpot"] = of_each
    if min(len(a.gaps), len(b.gaps)) >= samples_for_percentile(99):
        late = a.gap_percentile(99), b.gap_percentile(99)
        if min(late) > 0:
            found["itl"] = Figure(*late, math.log(late[1] / late[0]), 0.0, len(a.gaps))
    seconds = [float(side.times("adj").sum()) for side in measured]
    if min(seconds) > 0:
        rates = a.count / seconds[0], b.count / seconds[1]
        found["output_rate"] = Figure(*rates, math.log(rates[1] / rates[0]), 0.0, a.first.size)
    return found


def _of_process(measured: Round) -> dict[str, Figure]:
    figures = {}
    rules = upgrade_rules()
    for name, attribute in OF_PROCESS.items():
        a = getattr(measured.a, attribute)
        b = getattr(measured.b, attribute)
        if name == "device_memory":
            a, b = by_one_counter(a, b)
        base = rules[name].base
        if a is None or b is None or min(a, b) < 0:  # less the wait for a core, it may be below 0
            continue
        if min(a, b) + base > 0:
            value = math.log((b + base) / (a + base))
            figures[name] = Figure(float(a), float(b), value, error=0.0)
    return figures
