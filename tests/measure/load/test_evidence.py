from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.measure.load.evidence import Criterion, Outcome, judge_rate, multiple_to_decide
from tests.support.queues import Queue, poisson

RATE = 100.0
CRITERION = Criterion(limit=0.001, share=0.99, precision=0.05)  # hardly any query waits


def flags(queries: int, over: int) -> np.ndarray:
    """Return flags of which ``over`` are set, at equal distances."""
    values = np.zeros(queries, bool)
    values[np.linspace(0, queries - 1, over).astype(int)] = True
    return values


def test_independent_queries_are_judged_by_early_stopping() -> None:
    assert judge_rate([flags(459, 0)], RATE, CRITERION) is Outcome.GOOD
    assert judge_rate([flags(458, 0)], RATE, CRITERION) is Outcome.UNDECIDED
    assert judge_rate([flags(5000, 400)], RATE, CRITERION) is Outcome.BAD


def test_no_queries_decide_nothing() -> None:
    assert judge_rate([], RATE, CRITERION) is Outcome.UNDECIDED


def test_runs_at_a_rate_count_together() -> None:
    halves = [flags(300, 0), flags(300, 0)]
    assert judge_rate(halves[:1], RATE, CRITERION) is Outcome.UNDECIDED
    assert judge_rate(halves, RATE, CRITERION) is Outcome.GOOD


def test_a_queue_that_grows_is_bad_by_the_first_run() -> None:
    criterion = Criterion(0.05, 0.99, 0.05)
    queue = Queue(service=0.01)
    rng = np.random.default_rng(0)
    queries = criterion.first_queries(200)
    over = queue.latencies(poisson(200, queries, rng), rng) > criterion.limit
    assert judge_rate([over], 200, criterion) is Outcome.BAD


def test_late_queries_in_one_burst_are_no_proof() -> None:
    burst = flags(2000, 0)
    burst[1000:1060] = True
    assert judge_rate([burst], RATE, CRITERION) is Outcome.UNDECIDED
    assert judge_rate([flags(2000, 60)], RATE, CRITERION) is Outcome.BAD


def test_more_queries_are_needed_where_many_wait_together() -> None:
    assert Criterion(0.1, 0.99, 0.05).least_queries(RATE) > CRITERION.least_queries(RATE)
    fine = Criterion(0.1, 0.99, 0.01).least_queries(RATE)
    assert fine > Criterion(0.1, 0.99, 0.05).least_queries(RATE)


@given(st.integers(1, 3000), st.floats(0, 1), st.sampled_from([0.5, 0.9, 0.99]))
def test_more_load_of_the_same_kind_never_turns_a_decision(
    queries: int, part: float, share: float
) -> None:
    criterion = Criterion(0.001, share, 0.05)
    run = flags(queries, int(part * queries))
    opposite = {Outcome.GOOD: Outcome.BAD, Outcome.BAD: Outcome.GOOD}
    first = judge_rate([run], RATE, criterion)
    if first in opposite:
        assert judge_rate([run] * 4, RATE, criterion) is not opposite[first]


def test_the_load_that_would_decide_is_a_multiple() -> None:
    run = flags(800, 4)
    assert judge_rate([run], RATE, CRITERION) is Outcome.UNDECIDED
    multiple = multiple_to_decide([run], RATE, CRITERION)
    assert multiple is not None
    assert judge_rate([run] * 2 * multiple, RATE, CRITERION) is Outcome.GOOD
    assert multiple_to_decide([flags(1000, 10)], RATE, CRITERION) is None


@pytest.mark.parametrize(("factor", "wrong"), [(0.9, Outcome.BAD), (1.1, Outcome.GOOD)])
def test_a_rate_beside_the_peak_is_hardly_ever_taken_for_the_other_side(
    factor: float, wrong: Outcome
) -> None:
    queue = Queue(service=0.005, servers=4)
    criterion = Criterion(0.015, 0.99, 0.05)
    rate = factor * 609.2  # times the peak of this queue
    queries = 2 * criterion.least_queries(rate)
    mistakes = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        over = queue.latencies(poisson(rate, queries, rng), rng) > criterion.limit
        mistakes += judge_rate([over], rate, criterion) is wrong
    assert mistakes <= 1
