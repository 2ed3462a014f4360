"""Tests of the verdict on a run under load, and of how often it is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_mlms.core.records import Verdict
from pytest_mlms.measure.load.evidence import (
    Criterion,
    RunVerdict,
    hold_back,
    is_settled,
    judge_run,
)

LIMIT = 1_000_000
FAST = LIMIT // 2
SLOW = LIMIT + 1
CRITERION = Criterion(limit=LIMIT / 1e9, share=0.99, precision=0.05)
RATE = 1000.0


def latencies_of(fast: int, slow: int) -> np.ndarray:
    return np.repeat(np.array([FAST, SLOW]), [fast, slow])


def verdict_of(fast: int, slow: int, share: float = 0.99, delay: int = 0) -> Verdict:
    latencies = latencies_of(fast, slow)
    return judge_run(latencies, np.full(len(latencies), delay), LIMIT, share).verdict


def test_a_run_passes_with_the_queries_that_loadgen_asks_for() -> None:
    assert verdict_of(459, 0) is Verdict.PASSED
    assert verdict_of(458, 0) is Verdict.INCONCLUSIVE
    assert verdict_of(661, 1) is Verdict.PASSED
    assert verdict_of(660, 1) is Verdict.INCONCLUSIVE


def test_a_run_fails_with_more_over_the_limit_than_chance_allows() -> None:
    # P[Bin(100, 0.01) >= 5] is 0.0034, and of 4 or more 0.018
    assert verdict_of(95, 5) is Verdict.FAILED
    assert verdict_of(96, 4) is Verdict.INCONCLUSIVE


def test_a_latency_at_the_limit_is_within_it() -> None:
    latencies = np.full(500, LIMIT)
    assert judge_run(latencies, np.zeros(500, np.int64), LIMIT, 0.99).verdict is Verdict.PASSED


def test_queries_that_were_issued_late_make_a_run_invalid_that_does_not_meet_its_limit() -> None:
    assert verdict_of(0, 1000, delay=LIMIT // 20) is Verdict.FAILED
    assert verdict_of(0, 1000, delay=LIMIT // 20 + 1) is Verdict.INVALID
    assert verdict_of(950, 50, delay=LIMIT) is Verdict.INVALID


def test_a_delay_of_ours_within_the_limit_leaves_the_verdict_as_it_is() -> None:
    assert verdict_of(1000, 0, delay=LIMIT // 10) is Verdict.PASSED
    assert verdict_of(458, 0, delay=LIMIT // 10) is Verdict.INCONCLUSIVE


def test_an_undecided_run_says_how_many_more_queries_would_pass_it() -> None:
    latencies = latencies_of(500, 1)
    verdict = judge_run(latencies, np.zeros(len(latencies), np.int64), LIMIT, 0.99)
    assert (verdict.queries, verdict.over, verdict.missing) == (501, 1, 161)


def test_a_run_without_queries_is_open() -> None:
    none = np.empty(0, np.int64)
    verdict = judge_run(none, none, LIMIT, 0.99)
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert verdict.missing == 459


@pytest.mark.parametrize("share", [0.9, 0.99])
def test_independent_queries_at_the_limit_are_rarely_decided(share: float) -> None:
    """At the edge each verdict is wrong in 1 % of runs at most, which 5 sigma of 4,000 allow for."""
    generator = np.random.default_rng(1)
    queries = 2000
    runs = 4000
    counts = generator.binomial(queries, 1 - share, runs).tolist()
    verdicts = [verdict_of(queries - over, over, share) for over in counts]
    most = 0.01 * runs + 5 * (0.01 * runs) ** 0.5
    assert verdicts.count(Verdict.PASSED) < most
    assert verdicts.count(Verdict.FAILED) < most
    assert verdicts.count(Verdict.PASSED) > 0
    assert verdicts.count(Verdict.FAILED) > 0


def spread(late: int, *, in_bursts_of: int) -> np.ndarray:
    """Return 4,000 latencies of which ``late`` are over the limit, in bursts at equal distances."""
    latencies = np.full(4000, FAST)
    for start in np.linspace(0, 3000, late // in_bursts_of).astype(int):
        latencies[start : start + in_bursts_of] = SLOW
    return latencies


def held_back(latencies: np.ndarray) -> RunVerdict:
    verdict = judge_run(latencies, np.zeros(1, np.int64), LIMIT, 0.99)
    return hold_back(verdict, latencies, RATE, CRITERION)


@pytest.mark.parametrize(("late", "verdict"), [(16, Verdict.PASSED), (80, Verdict.FAILED)])
def test_late_queries_of_one_burst_leave_the_last_run_open(late: int, verdict: Verdict) -> None:
    assert held_back(spread(late, in_bursts_of=1)).verdict is verdict
    burst = held_back(spread(late, in_bursts_of=late))
    assert burst.verdict is Verdict.INCONCLUSIVE
    assert 0 < burst.independent < 400


def test_a_run_with_no_late_query_or_only_such_is_not_held_back() -> None:
    assert held_back(latencies_of(500, 0)).verdict is Verdict.PASSED
    assert held_back(latencies_of(0, 500)).verdict is Verdict.FAILED


def test_a_limit_that_is_far_away_is_settled_whatever_depends_on_what() -> None:
    far = spread(16, in_bursts_of=16)
    close = np.where(far == FAST, int(0.9 * LIMIT), far)
    verdicts = [judge_run(each, np.zeros(1, np.int64), LIMIT, 0.99) for each in (far, close)]
    assert [verdict.verdict for verdict in verdicts] == [Verdict.PASSED] * 2
    assert is_settled(verdicts[0], far, RATE, CRITERION)
    assert not is_settled(verdicts[1], close, RATE, CRITERION)
