"""The load of a round: its figures, on made-up times of queries."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_mlms.core.records import Verdict
from pytest_mlms.decide.upgrade.decision import compare_rounds, is_decided, verdict_of
from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.load_round import LoadRound
from pytest_mlms.decide.upgrade.round_load import SideLoad
from pytest_mlms.measure.agent.load import LoadRun
from pytest_mlms.measure.evaluate.load_process import QueryTimes, load_record
from tests.support.upgrades import alike, changed, find

MILLISECOND = 1_000_000
QUERIES = 200
GATES = ("query_latency",)
SCATTER = (0.01, -0.02, 0.0, 0.02, -0.01, 0.01, 0.0, -0.01)


def side(latency: float, delay: float = 0.0) -> SideLoad:
    """Return 200 queries, 10 ms apart, that take ``latency`` ms and are issued ``delay`` ms late.

    The last quarter takes twice as long.
    """
    scheduled = 10 * MILLISECOND * np.arange(QUERIES, dtype=np.int64)
    issued = scheduled + round(delay * MILLISECOND)
    factors = np.where(np.arange(QUERIES) >= 0.75 * QUERIES, 2, 1)
    done = scheduled + round(latency * MILLISECOND) * factors
    times = QueryTimes(scheduled, issued, done, 0)
    run = LoadRun(
        queries=np.arange(QUERIES),
        scheduled=scheduled,
        issued=issued,
        started=issued,
        done=done,
        batch_sizes=np.ones(QUERIES, np.int64),
        readings={"at": np.zeros(1), "cpu": np.zeros(1), "wait": np.zeros(1)},
        complete=True,
        instances=1,
    )
    return SideLoad(times, load_record(run, times, None, seed=7, runs=1))


def test_the_percentile_of_the_scenario_is_compared() -> None:
    for share, factor in ((0.5, 1), (0.9, 2)):
        figure = LoadRound({"a": side(4), "b": side(5)}, share).figures()["query_latency"]
        assert figure.a == pytest.approx(0.004 * factor)
        assert figure.b == pytest.approx(0.005 * factor)
        assert figure.value == pytest.approx(math.log(1.25))
        assert (figure.error, figure.calls) == (0, QUERIES)


def test_the_rate_is_that_of_queries_that_were_done() -> None:
    figure = LoadRound({"a": side(4), "b": side(5)}, 0.9).figures()["query_rate"]
    assert figure.a == pytest.approx((QUERIES - 1) / 1.998)
    assert figure.b < figure.a


@pytest.mark.parametrize(
    ("delay", "limit", "late"),
    [
        (0.49, 0.010, False),
        (0.51, 0.010, True),
        (0.51, 0.100, False),
        (0.39, None, False),  # 5 % of the p90, which is 8 ms
        (0.41, None, True),
    ],
)
def test_a_late_load_says_nothing_of_the_model(
    delay: float, limit: float | None, late: bool
) -> None:
    for a, b in ((side(4, delay), side(9)), (side(4), side(4, delay))):
        made = LoadRound({"a": a, "b": b}, 0.9, limit)
        assert made.late is late
        assert math.isinf(made.figures()["query_latency"].error) is late


def rounds_of(change: float, latency: float = 0.0) -> list[dict[str, Figure]]:
    """Return rounds whose queries take exp(``change``) times as long, and calls ``latency``."""
    rounds = alike(latency)
    for figures, scatter in zip(rounds, SCATTER, strict=True):
        figures["query_latency"] = changed(change + scatter, 0.0)
    return rounds


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (0.0, Verdict.PASSED),
        (0.25, Verdict.REGRESSED),
        (0.08, Verdict.INCONCLUSIVE),
        (-0.25, Verdict.IMPROVED),
    ],
)
def test_the_latency_of_queries_decides_an_upgrade_under_load(
    change: float, verdict: Verdict
) -> None:
    comparisons = compare_rounds(rounds_of(change), {}, GATES)
    assert find(comparisons, "query_latency").verdict is verdict
    assert verdict_of(comparisons) is verdict
    assert is_decided(comparisons, 8) is (verdict is not Verdict.INCONCLUSIVE)


def test_slower_calls_fail_an_upgrade_under_load_too() -> None:
    comparisons = compare_rounds(rounds_of(0.0, latency=0.1), {}, GATES)
    assert verdict_of(comparisons) is Verdict.REGRESSED


def test_late_rounds_do_not_count() -> None:
    rounds = rounds_of(0.0)
    for figures in rounds[:3]:
        figures["query_latency"] = changed(1.0, math.inf)
    compared = find(compare_rounds(rounds, {}, GATES), "query_latency")
    assert compared.lacking == "needs 6 rounds, had 5"
    assert compared.verdict is Verdict.INCONCLUSIVE
    assert compared.ratio == pytest.approx(1.0, abs=0.05)
