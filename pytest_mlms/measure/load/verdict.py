"""The verdict on a run under load."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.records import Verdict
from pytest_mlms.measure.load.bounds import bounds_of
from pytest_mlms.measure.load.early_stopping import fails, least_within
from pytest_mlms.measure.load.evidence import Criterion, Outcome, design_effect, judge_rate
from pytest_mlms.measure.load.percentiles import loadgen_percentile

LATE_SHARE = 0.05
"""Share of the limit that the p99 of the delay of issuing may take."""

_LATE_PERCENTILE = 0.99
_SECOND = 1_000_000_000  # nanoseconds
_CLEAR = 2  # times the percentile and more: a limit that far away is met
_OUTCOMES = {Verdict.PASSED: Outcome.GOOD, Verdict.FAILED: Outcome.BAD}


class RunVerdict(NamedTuple):
    """The verdict on a run, and what it rests on; times are in nanoseconds.

    Attributes:
        verdict: PASSED, FAILED, INVALID, or INCONCLUSIVE where more queries may decide.
        queries: The queries of the run.
        over: Those with a latency over the limit.
        missing: Queries that would make it PASSED if all were within the limit; 0 for PASSED.
        percentile: LoadGen's percentile of the latencies.
        issue_delay: The p99 of the delay between a query's scheduled time and its issue.
        independent: As many independent queries as these count as, where that leaves the verdict
            open; 0 otherwise.
    """

    verdict: Verdict
    queries: int
    over: int
    missing: int
    percentile: int
    issue_delay: int
    independent: int = 0


def judge_run(
    latencies: NDArray[np.int64], issue_delays: NDArray[np.int64], limit: int, share: float
) -> RunVerdict:
    """Judge a run of queries whose percentile ``share`` must be within ``limit`` nanoseconds.

    PASSED and FAILED are each shown at LoadGen's confidence. INVALID where the percentile is above
    the limit and the queries were issued so late that the load generator, and not the model, may
    have caused that. Latencies count from the schedule: a delay only makes them longer, and what is
    within the limit is so without it. A run without queries is INCONCLUSIVE.
    """
    queries = len(latencies)
    over = int(np.count_nonzero(latencies > limit))
    missing = max(0, least_within(over, share) + over - queries)
    if queries == 0:
        return RunVerdict(Verdict.INCONCLUSIVE, 0, 0, missing, 0, 0)
    percentile = loadgen_percentile(np.sort(latencies), share)
    delay = loadgen_percentile(np.sort(issue_delays), _LATE_PERCENTILE)
    verdict = Verdict.INCONCLUSIVE
    if missing == 0 and percentile <= limit:
        verdict = Verdict.PASSED
    elif delay > LATE_SHARE * limit and percentile > limit:
        verdict = Verdict.INVALID
    elif fails(queries, over, share):
        verdict = Verdict.FAILED
    return RunVerdict(verdict, queries, over, missing, percentile, delay)


def is_settled(
    verdict: RunVerdict, latencies: NDArray[np.int64], rate: float, criterion: Criterion
) -> bool:
    """Return whether a longer run of a server would say the same.

    LoadGen's rule takes queries to be independent. So a run that it decides isn't settled where
    these queries, counted as fewer independent ones, leave the limit open and close.
    """
    outcome = _OUTCOMES.get(verdict.verdict)
    if outcome is None:
        return verdict.verdict is Verdict.INVALID
    limit = criterion.limit * _SECOND
    if bounds_of(latencies, criterion.share).high * _CLEAR <= limit:
        return True
    return judge_rate([latencies > limit], rate, criterion) is outcome


def hold_back(
    verdict: RunVerdict, latencies: NDArray[np.int64], rate: float, criterion: Criterion
) -> RunVerdict:
    """Return the verdict on the last run of a server that is not settled.

    It is INCONCLUSIVE unless it also holds for as many independent queries as these count as, by
    their design effect.
    """
    over = latencies > criterion.limit * _SECOND
    effect = design_effect(over, rate, criterion.limit)
    queries = verdict.queries / effect
    late = verdict.over / effect
    if verdict.verdict is Verdict.PASSED:
        most_late = math.ceil(late)
        holds = least_within(most_late, criterion.share) + most_late <= queries
    else:
        holds = fails(math.ceil(queries), int(late), criterion.share)
    if holds:
        return verdict
    return verdict._replace(verdict=Verdict.INCONCLUSIVE, independent=max(1, int(queries)))
