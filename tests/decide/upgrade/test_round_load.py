"""The load of a round on made-up times of queries, and peaks on queues whose capacity is known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.errors import MlmsError, OutputError
from pytest_mlms.core.records import PeakRecord, TriedRate, Verdict
from pytest_mlms.decide.upgrade.decision import compare_rounds, is_decided, verdict_of
from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.round_load import (
    LoadRound,
    PeakSearches,
    RoundLoad,
    SideLoad,
    peak_figures,
    without_peak,
)
from pytest_mlms.decide.upgrade.rounds import SideName
from pytest_mlms.manifest.scenarios import Peak
from pytest_mlms.measure.agent.load import LoadLost, LoadRun
from pytest_mlms.measure.evaluate.load_process import QueryTimes, load_record
from tests.support.queue_pair import QueuePair, peak_plan
from tests.support.queues import Queue
from tests.support.upgrades import alike, changed, find

MILLISECOND = 1_000_000
QUERIES = 200
GATES = ("query_latency",)
LIMITS = {"latency": "100 ms", "ttft": "20 ms", "tpot": "4 ms"}
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
    return SideLoad(times, load_record(run, times, seed=7, runs=1))


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


CALL = 0.005
LIMIT = 10 * CALL
SECONDS = 60.0  # of load in a round
ORDER: tuple[SideName, SideName] = ("b", "a")


def pair_of(slower: float, seed: int = 0) -> QueuePair:
    """Return two queues, of which B's calls take ``slower`` times as long."""
    sides: dict[SideName, Queue] = {"a": Queue(CALL), "b": Queue(slower * CALL)}
    return QueuePair(sides, np.random.default_rng(seed))


def searches(limit: float = LIMIT, seconds: float = SECONDS) -> PeakSearches:
    return PeakSearches(peak_plan(limit, 0.99, budget=10 * seconds), seconds)


def peaks_of_rounds(
    pair: QueuePair, count: int, strategy: PeakSearches | None = None
) -> list[RoundLoad]:
    """Run the load of so many rounds."""
    strategy = strategy or searches()
    return [strategy.run(pair.runner(), ORDER, draw) for draw in range(count)]


def test_sides_that_are_alike_have_the_same_peak_on_the_same_arrivals() -> None:
    for measured in peaks_of_rounds(pair_of(1.0), 3):
        figure = measured.figures["peak_rate"]
        assert figure.a == figure.b
        assert (figure.value, figure.error) == (0, 0)
        runs = measured.runs
        assert [run.record.seed for run in runs.values()] == [runs["a"].record.seed] * len(runs)
        assert np.array_equal(runs["a"].times.scheduled, runs["b"].times.scheduled)


def test_less_capacity_is_a_lower_peak() -> None:
    pair = pair_of(1.176)
    found = [measured.figures["peak_rate"] for measured in peaks_of_rounds(pair, 4)]
    for figure in found:
        assert 0.5 / CALL < figure.a < 1 / CALL
        assert -0.35 < figure.value < math.log(1 / 1.176)


def test_rounds_after_the_first_begin_where_that_ended() -> None:
    first, *later = peaks_of_rounds(pair_of(1.0), 4)
    assert max(len(measured.runs) for measured in later) <= 2 * 6
    peak = first.figures["peak_rate"].a
    assert later[0].peaks["a"].tried[0].rate == pytest.approx(peak, rel=1e-4)
    for measured in later:
        queries = {len(run.times) for run in measured.runs.values()}
        assert queries == {measured.figures["peak_rate"].calls}


def test_sides_take_turns_run_by_run() -> None:
    pair = pair_of(1.0)
    peaks_of_rounds(pair, 1)
    sides = [side for side, _ in pair.rates]
    assert sides[:4] == ["b", "a", "b", "a"]


def test_every_run_is_recorded_with_its_arrays() -> None:
    pair = pair_of(1.1)
    runner = pair.runner()
    measured = searches().run(runner, ORDER, 3)
    tried = [each for peak in measured.peaks.values() for each in peak.tried]
    assert len(measured.records) == len(tried) == len(pair.rates)
    assert set(measured.records) >= {"a", "a2", "b", "b2"}
    arrays = runner.arrays()
    assert len(arrays) == 3 * len(tried)
    latencies = np.sort(arrays["query_done_b2"] - arrays["query_scheduled_b2"])
    assert latencies[int(0.99 * len(latencies))] * 1e-9 == measured.peaks["b"].tried[1].latency


def test_a_budget_that_is_too_small_says_what_it_takes() -> None:
    strategy = searches(seconds=10)
    with pytest.raises(MlmsError) as error:
        strategy.run(pair_of(1.0).runner(), ORDER, 0)
    text = str(error.value)
    assert "model.yaml:7: p99 takes 662 queries in each run of load" in text
    assert "19.9 s at 200 /s, of which --mlms-budget allows 10 s; raise it to 199" in text
    searches(seconds=19.9).run(pair_of(1.0).runner(), ORDER, 0)


def test_a_candidate_whose_calls_alone_break_the_limit_has_regressed_at_once() -> None:
    pair = pair_of(11.0)
    (measured,) = peaks_of_rounds(pair, 1)
    assert not pair.rates
    text = "the fastest call takes A 5.00 ms, B 55.0 ms: B meets the limit of 50.0 ms at no rate"
    assert measured.without_peak == text
    compared = without_peak(measured.without_peak, 0.08)
    assert (compared.verdict, compared.gate) == (Verdict.REGRESSED, True)


def test_a_baseline_whose_calls_alone_break_the_limit_is_an_error() -> None:
    strategy = searches(limit=0.9 * CALL)
    with pytest.raises(MlmsError, match=r"below the baseline's fastest call \(5\.00 ms\)"):
        strategy.run(pair_of(0.5).runner(), ORDER, 0)


def test_a_late_generator_is_tried_twice_and_then_the_round_says_nothing() -> None:
    pair = pair_of(1.0)
    pair.delay = lambda rate: 0.06 * LIMIT
    (measured,) = peaks_of_rounds(pair, 1)
    tried = [each.rate for each in measured.peaks["a"].tried]
    assert tried[::2] == tried[1::2]
    assert math.isinf(measured.figures["peak_rate"].error)


def peak(good: float, bad: float, rate: float = 0.0, late: float = math.nan) -> PeakRecord:
    tried = [TriedRate(each, 1.0, each == late) for each in (good, bad)]
    return PeakRecord(rate or bad, good, bad, tried)


def figure_of(a: PeakRecord, b: PeakRecord) -> Figure:
    return peak_figures({"a": a, "b": b}, 662)["peak_rate"]


def test_a_side_without_an_end_of_its_peak_is_compared_where_the_other_one_has_it() -> None:
    figure = figure_of(peak(100, 110, 105), peak(0, 20))
    assert figure.value == pytest.approx(math.log(20 / 105))
    assert figure.error == 0
    none = figure_of(peak(0, 20), peak(0, 20))
    assert math.isinf(none.error)
    without_end = peak(100, math.inf, 100)
    assert math.isinf(figure_of(without_end, without_end).error)
    assert figure_of(peak(100, 110, 105), without_end).error == 0


def test_only_the_ends_of_a_peak_must_be_in_time() -> None:
    in_time = peak(100, 110, 105)
    assert math.isinf(figure_of(in_time, peak(100, 110, 105, late=110)).error)
    assert figure_of(in_time, peak(100, 110, 105, late=90)).error == 0


def test_what_was_served_until_a_load_is_lost_is_kept() -> None:
    pair = pair_of(1.0)
    pair.dies = 5
    runner = pair.runner()
    with pytest.raises(LoadLost, match="ended"):
        searches().run(runner, ORDER, 0)
    assert len(runner.runs) == 4
    arrays = runner.arrays()
    assert len(arrays) == 3 * 5
    whole = len(arrays["query_done_b"])
    assert len(arrays["query_done_b3"]) == whole // 2


def test_a_peak_is_searched_by_the_limit_that_is_nearest_to_being_broken() -> None:
    keys: dict[str, Any] = {**LIMITS, "percentile": 90}
    plan = replace(peak_plan(0.1, 0.9), load=Peak(**keys))
    given = side(10)
    times = given.times
    first = times.scheduled + 6 * MILLISECOND
    for each, excess in ((MILLISECOND, 0.3), (2 * MILLISECOND, 0.5), (8 * MILLISECOND, 2.0)):
        of_tokens = QueryTimes(*times[:5], first, np.full(QUERIES, each, np.int64))
        assert SideLoad(of_tokens, given.record).excess(plan) == pytest.approx(excess)
    none = QueryTimes(*times[:5], first, np.full(QUERIES, -1, np.int64))
    with pytest.raises(OutputError, match="model.yaml:7: no answer has a second token"):
        SideLoad(none, given.record).excess(plan)


def test_a_run_for_first_tokens_has_more_queries_than_there_are_instances() -> None:
    """64 answers of 1.25 s at once: fewer queries never wait, at whatever rate."""
    pair = QueuePair({"a": Queue(1.0), "b": Queue(1.25)}, np.random.default_rng(0))
    load = Peak(ttft="2 ms", percentile=90)
    plan = replace(peak_plan(0.1, 0.9), load=load, instances=64)
    with pytest.raises(MlmsError, match="p90 takes 640 queries in each run of load"):
        PeakSearches(plan, 10.0).run(pair.runner(), ORDER, 0)
