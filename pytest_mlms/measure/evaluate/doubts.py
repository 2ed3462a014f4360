"""Doubts about the processes of a performance item, and decisions that wait for them.

An interval over processes is only as good as they are: they must have settled, and they must show
what other processes would. Where they don't, a decision is INCONCLUSIVE and says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from pytest_mlms.core.quantities import QUANTITIES, ProcessEstimator
from pytest_mlms.core.records import Decision, Limit, Verdict
from pytest_mlms.measure.evaluate.limits import scale_of
from pytest_mlms.measure.evaluate.looks import ENOUGH, ROOM, has_room
from pytest_mlms.measure.evaluate.process_kinds import ProcessKinds, find_kinds
from pytest_mlms.measure.evaluate.process_result import ProcessResult
from pytest_mlms.measure.evaluate.settling import Reach

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
    """Return whether a limit is on what is computed from the timed calls."""
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
    return find_kinds(values, _error(estimator, results))


def _error(estimator: ProcessEstimator, results: Sequence[ProcessResult]) -> float:
    """Return the largest standard error of a process, as a share of its value."""
    if not estimator.of_calls:
        return 0.0
    return max(result.error for result in results)


def describe_doubts(results: Sequence[ProcessResult]) -> str:
    """Return what a person should know of the processes before relying on their latency, or ""."""
    if not all(result.settling.is_settled for result in results):
        return _describe_unsettled(results)
    kinds = kinds_of("latency_p50", results)
    return f"latency_p50: {kinds}" if kinds else ""
