"""The verdict on a run under load."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.load.early_stopping import fails, least_within
from pytest_mlms.load.percentiles import loadgen_percentile
from pytest_mlms.records import Verdict

__all__ = ["LATE_SHARE", "RunVerdict", "judge_run"]

LATE_SHARE = 0.05
"""Share of the limit that the p99 of the delay of issuing may take."""

_LATE_PERCENTILE = 0.99


class RunVerdict(NamedTuple):
    """The verdict on a run, and what it rests on; times are in nanoseconds.

    Attributes:
        verdict: PASSED, FAILED, INVALID, or INCONCLUSIVE where more queries may decide.
        queries: The queries of the run.
        over: Those with a latency over the limit.
        missing: Queries that would make it PASSED if all were within the limit; 0 for PASSED.
        percentile: LoadGen's percentile of the latencies.
        issue_delay: The p99 of the delay between a query's scheduled time and its issue.
    """

    verdict: Verdict
    queries: int
    over: int
    missing: int
    percentile: int
    issue_delay: int


def judge_run(
    latencies: NDArray[np.int64], issue_delays: NDArray[np.int64], limit: int, share: float
) -> RunVerdict:
    """Judge a run of queries whose percentile ``share`` must be within ``limit`` nanoseconds.

    PASSED and FAILED are each shown at LoadGen's confidence. INVALID where the queries were issued
    so late that the load generator, and not the model, may have caused the latencies. A run
    without queries is INCONCLUSIVE.
    """
    queries = len(latencies)
    over = int(np.count_nonzero(latencies > limit))
    missing = max(0, least_within(over, share) + over - queries)
    if queries == 0:
        return RunVerdict(Verdict.INCONCLUSIVE, 0, 0, missing, 0, 0)
    percentile = loadgen_percentile(np.sort(latencies), share)
    delay = loadgen_percentile(np.sort(issue_delays), _LATE_PERCENTILE)
    verdict = Verdict.INCONCLUSIVE
    if delay > LATE_SHARE * limit:
        verdict = Verdict.INVALID
    elif missing == 0 and percentile <= limit:
        verdict = Verdict.PASSED
    elif fails(queries, over, share):
        verdict = Verdict.FAILED
    return RunVerdict(verdict, queries, over, missing, percentile, delay)
