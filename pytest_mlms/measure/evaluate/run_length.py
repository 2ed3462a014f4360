"""The rule for timing a process longer before it counts: pure functions."""

from __future__ import annotations

import math

from pytest_mlms.core.records import Estimate
from pytest_mlms.measure.evaluate.doubts import is_of_calls, is_touched
from pytest_mlms.measure.evaluate.limits import scale_of
from pytest_mlms.measure.evaluate.looks import ROOM, are_promising, needed_room
from pytest_mlms.measure.evaluate.performance_plan import PerformancePlan
from pytest_mlms.measure.evaluate.process_estimates import estimate_performance
from pytest_mlms.measure.evaluate.process_result import ProcessResult

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
