"""Doubts about the processes of a performance item, and decisions that wait for them.

An interval over processes is only as good as they are: they must have settled, and they must show
what other processes would, which they don't where one of them stands apart. Where that fails, a
decision is INCONCLUSIVE and says why. The same doubts decide whether a process is timed longer
before it counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Decision, Estimate, Limit, Verdict
from pytest_mlms.measure.evaluate.limits import scale_of
from pytest_mlms.measure.evaluate.performance_plan import (
    ENOUGH,
    ROOM,
    PerformancePlan,
    are_promising,
    has_room,
    needed_room,
)
from pytest_mlms.measure.evaluate.process_result import ProcessResult, estimate_performance
from pytest_mlms.measure.evaluate.steadiness import Reach

_LEAST_GAP = math.log(1.1)  # between two kinds of processes
_APART = 4  # the gap between two kinds over what is inside of them: Dixon's ratio of 0.8


class ProcessKinds(NamedTuple):
    """Two kinds of processes: how many are of the slower (larger) one, and how much larger it is.

    ``larger`` is 0 where no two of the processes agree; ``ratio`` is then the largest value over
    the smallest.
    """

    larger: int
    processes: int
    ratio: float

    def __str__(self) -> str:
        times = f"{self.ratio:.3g} times"
        if self.larger == 0:
            return f"no two of {self.processes} processes agree (the largest is {times} the least)"
        alone = f"1 of {self.processes} processes stands apart"
        if self.larger == self.processes - 1:
            return f"{alone} (the others have {times} its value)"
        if self.larger == 1:
            return f"{alone} (it has {times} the value of the others)"
        return f"{self.larger} of {self.processes} processes have {times} the value of the others"


def find_kinds(values: Sequence[float], error: float = 0.0) -> ProcessKinds | None:
    """Return the two kinds that processes are of; None where they are of one, as far as they show.

    ``error`` is the relative standard error of a process's value. The kinds are parted at the
    largest gap between neighbours, which is at least 10 % wide, and 4 times what is inside of
    either kind and of the error. For a single outlier that is Dixon's ratio of gap to range at 0.8
    (1951, Annals of Mathematical Statistics 22:68), and it holds for a group of them as well.
    """
    if len(values) < 3 or min(values) <= 0:
        return None
    ordered = sorted(map(math.log, values))
    gaps = [after - before for before, after in itertools.pairwise(ordered)]
    least = max(_LEAST_GAP, _APART * error)
    widest = max(gaps)
    if widest < least:
        return None
    split = gaps.index(widest) + 1
    lower = ordered[:split]
    upper = ordered[split:]
    if widest >= _APART * max(_width(lower), _width(upper)):
        difference = fmean(upper) - fmean(lower)
        return ProcessKinds(len(upper), len(values), math.exp(difference))
    if min(gaps) >= least:
        return ProcessKinds(0, len(values), math.exp(_width(ordered)))
    return None


def _width(ordered: Sequence[float]) -> float:
    return ordered[-1] - ordered[0]


_DECIDED = (Verdict.PASSED, Verdict.FAILED)


def withhold(decisions: Iterable[Decision], results: Sequence[ProcessResult]) -> list[Decision]:
    """Return the decisions; those that the processes can't bear are INCONCLUSIVE, with the reason.

    A decision is not borne where calls still get faster or slower and may cross the limit if that
    goes on, nor where there are fewer than six processes and the limit is close.
    """
    reaches = [result.settling.reach for result in results]
    reach = Reach(
        lowest=fmean(reach.lowest for reach in reaches),
        highest=fmean(reach.highest for reach in reaches),
    )
    return [_reconsider(decision, results, reach) for decision in decisions]


def _reconsider(decision: Decision, results: Sequence[ProcessResult], reach: Reach) -> Decision:
    if decision.verdict in _DECIDED:
        reason = _objection(decision, results, reach)
        if not reason:
            return decision
        return replace(decision, verdict=Verdict.INCONCLUSIVE, reason=reason)
    if decision.verdict is Verdict.INCONCLUSIVE and not decision.estimate.lacking:
        return replace(decision, reason=_explanation(decision.limit, results))
    return decision


def _objection(decision: Decision, results: Sequence[ProcessResult], reach: Reach) -> str:
    """Return the reason why a decision is not borne; "" where it is."""
    limit = decision.limit
    estimate = decision.estimate
    if is_touched(limit, estimate.low, estimate.high, reach):
        return _unsettled(results)
    if len(results) < ENOUGH and not has_room(limit, estimate.low, estimate.high, ROOM):
        return (
            f"{len(results)} processes can't show whether others are slower or faster, and the "
            f"limit is within {100 * ROOM - 100:.0f} %; raise --mlms-processes or --mlms-budget"
        )
    return ""


def _explanation(limit: Limit, results: Sequence[ProcessResult]) -> str:
    """Return why a limit is inside the interval, where the processes show it."""
    if is_of_calls(limit) and not all(result.settling.is_settled for result in results):
        return _unsettled(results)
    kinds = kinds_of(limit.quantity, results)
    if kinds is None:
        return ""
    return (
        f"{kinds}; find what differs between processes (cores, memory, caches), or raise "
        f"--mlms-processes"
    )


def is_touched(limit: Limit, low: float, high: float, reach: Reach) -> bool:
    """Return whether an interval on one side of a limit may cross it if its processes go on.

    ``reach`` is the factor that times may still fall by, and the one that they may rise by.
    """
    if not is_of_calls(limit):
        return False
    if scale_of(limit).bound == "min":
        lower = low / reach.highest
        upper = high / reach.lowest
        return lower < limit.value <= low or high < limit.value <= upper
    lower = low * reach.lowest
    upper = high * reach.highest
    return high <= limit.value < upper or lower <= limit.value < low


def is_of_calls(limit: Limit) -> bool:
    """Return whether a limit is on a quantity of the timed calls."""
    estimator = QUANTITIES[limit.quantity].estimator
    return estimator is not None and estimator.of_calls


def _unsettled(results: Sequence[ProcessResult]) -> str:
    return f"{_describe_unsettled(results)}; raise --mlms-duration, so that they settle"


def _describe_unsettled(results: Sequence[ProcessResult]) -> str:
    """Return how many processes changed while they were timed, and how much the worst of them."""
    changes = [result.settling.change for result in results if result.settling.change != 1]
    directions = []
    if min(changes) < 1:
        directions.append("faster")
    if max(changes) > 1:
        directions.append("slower")
    most = max(max(change, 1 / change) for change in changes)
    share = f"{100 * (most - 1):.2g} %" if most < 2 else f"a factor of {most:.2g}"
    return (
        f"{len(changes)} of {len(results)} processes still got {' or '.join(directions)} while "
        f"they were timed, by up to {share}"
    )


def kinds_of(quantity: str, results: Sequence[ProcessResult]) -> ProcessKinds | None:
    """Return the kinds that processes are of by one of their quantities, None where it is one.

    It is also None for quantities of queries under load, which depend on their arrivals.
    """
    estimator = QUANTITIES[quantity].estimator
    if estimator is None:
        return None
    values = [estimator.value(result) for result in results]
    error = max(result.error for result in results) if estimator.of_calls else 0.0
    return find_kinds(values, error)


def describe_doubts(results: Sequence[ProcessResult]) -> str:
    """Return a person's reason not to rely on the latency of processes, or ""."""
    if not all(result.settling.is_settled for result in results):
        return _describe_unsettled(results)
    kinds = kinds_of("latency_p50", results)
    return f"latency_p50: {kinds}" if kinds else ""


MOST_RUNS = 8
"""Runs in full of a process that still gets faster."""

_LARGE_FALL = 0.9  # a factor; other programs on a machine cause smaller ones as well


def is_promising(plan: PerformancePlan, result: ProcessResult) -> bool:
    """Return whether a short process can bear a decision on every limit.

    It is steady, or its calls change so little that no limit is within reach. And it is not far
    beyond a limit of its calls: they may meet it once a long warm-up is over, which a short time
    can't show.
    """
    if result.settling.is_settled and not result.record.steady:
        return False
    if min(_rooms(plan, result), default=math.inf) < 1 / ROOM:
        return False
    room = max(needed_room(result.run.latencies), result.settling.reach.room)
    return are_promising(plan.limits, _estimates_of(plan, result), room)


def may_settle(plan: PerformancePlan, result: ProcessResult, runs: int) -> bool:
    """Return whether a process that was timed in full so many times is worth another run.

    While its calls get faster it is, as the warm-up isn't over; but not for a small change where
    every limit is met with room. Which side of a close limit a process is on doesn't matter: to
    repeat the runs of those beyond it alone would pass by chance. Other changes have one more run,
    where a limit is within reach.
    """
    if _is_warming_up(plan, result):
        return runs < MOST_RUNS
    return runs == 1 and _touches_a_limit(plan, result)


def _is_warming_up(plan: PerformancePlan, result: ProcessResult) -> bool:
    settling = result.settling
    if settling.is_settled or settling.change > 1:
        return False
    if settling.change < _LARGE_FALL or not plan.limits:
        return True
    return min(_rooms(plan, result), default=math.inf) < ROOM


def _rooms(plan: PerformancePlan, result: ProcessResult) -> list[float]:
    """Return by what factor a process meets each limit on its calls; below 1 it breaks it."""
    estimates = _estimates_of(plan, result)
    rooms = []
    for limit in filter(is_of_calls, plan.limits):
        value = estimates[limit.quantity].value
        if scale_of(limit).bound == "min":
            rooms.append(value / limit.value if limit.value else math.inf)
        else:
            rooms.append(limit.value / value if value else math.inf)
    return rooms


def _touches_a_limit(plan: PerformancePlan, result: ProcessResult) -> bool:
    estimates = _estimates_of(plan, result)
    reach = result.settling.reach
    for limit in plan.limits:
        value = estimates[limit.quantity].value
        if is_touched(limit, value, value, reach):
            return True
    return False


def _estimates_of(plan: PerformancePlan, result: ProcessResult) -> dict[str, Estimate]:
    return estimate_performance([result], plan.early_confidence)
