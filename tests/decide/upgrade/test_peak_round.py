"""Searches of both sides' peaks, on queues whose capacity is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Verdict
from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.peak_round import PeakSearches, peak_figures, without_peak
from pytest_mlms.decide.upgrade.round_load import RoundLoad
from pytest_mlms.decide.upgrade.round_record import PeakRecord, TriedRate
from pytest_mlms.decide.upgrade.rounds import SideName
from pytest_mlms.measure.agent.load import LoadLost
from tests.support.queue_pair import QueuePair, peak_plan
from tests.support.queues import Queue

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


def rounds_of(pair: QueuePair, count: int, strategy: PeakSearches | None = None) -> list[RoundLoad]:
    """Run the load of so many rounds."""
    strategy = strategy or searches()
    return [strategy.run(pair.runner(), ORDER, draw) for draw in range(count)]


def test_sides_that_are_alike_have_the_same_peak_on_the_same_arrivals() -> None:
    for measured in rounds_of(pair_of(1.0), 3):
        figure = measured.figures["peak_rate"]
        assert figure.a == figure.b
        assert (figure.value, figure.error) == (0, 0)
        runs = measured.runs
        assert [run.record.seed for run in runs.values()] == [runs["a"].record.seed] * len(runs)
        assert np.array_equal(runs["a"].times.scheduled, runs["b"].times.scheduled)


def test_less_capacity_is_a_lower_peak() -> None:
    pair = pair_of(1.176)
    found = [measured.figures["peak_rate"] for measured in rounds_of(pair, 4)]
    for figure in found:
        assert 0.5 / CALL < figure.a < 1 / CALL
        assert -0.35 < figure.value < math.log(1 / 1.176)


def test_rounds_after_the_first_begin_where_that_ended() -> None:
    first, *later = rounds_of(pair_of(1.0), 4)
    assert max(len(measured.runs) for measured in later) <= 2 * 6
    peak = first.figures["peak_rate"].a
    assert later[0].peaks["a"].tried[0].rate == pytest.approx(peak, rel=1e-4)
    for measured in later:
        queries = {len(run.times) for run in measured.runs.values()}
        assert queries == {measured.figures["peak_rate"].calls}


def test_sides_take_turns_run_by_run() -> None:
    pair = pair_of(1.0)
    rounds_of(pair, 1)
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
    (measured,) = rounds_of(pair, 1)
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
    (measured,) = rounds_of(pair, 1)
    tried = [each.rate for each in measured.peaks["a"].tried]
    assert tried[::2] == tried[1::2]
    assert math.isinf(measured.figures["peak_rate"].error)


def peak(good: float, bad: float, rate: float = 0.0, late: float = math.nan) -> PeakRecord:
    tried = [TriedRate(each, 1.0, each == late) for each in (good, bad)]
    return PeakRecord(rate or bad, good, bad, tried)


def figure_of(a: PeakRecord, b: PeakRecord) -> Figure:
    return peak_figures({"a": a, "b": b}, 662)["peak_rate"]


def test_a_side_without_a_good_rate_is_worse_than_the_other_one() -> None:
    figure = figure_of(peak(100, 110, 105), peak(0, 20))
    assert figure.value == pytest.approx(math.log(20 / 105))
    assert figure.error == 0
    none = figure_of(peak(0, 20), peak(0, 20))
    assert math.isinf(none.error)


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
