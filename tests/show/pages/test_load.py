"""Charts of an upgrade under load."""

from __future__ import annotations

import math

from pytest_mlms.decide.upgrade.round_record import PeakRecord, TriedRate
from pytest_mlms.show.pages.upgrade_load import RoundChange, load_rounds_chart, rates_chart
from tests.show.pages.test_upgrade import LATENCY, marks

QUERIES = LATENCY.but(quantity="query_latency", tolerance=0.08)
PEAK = LATENCY.but(quantity="peak_rate", unit="/s", tolerance=0.08, ratio=0.9, low=0.8, high=0.95)
ROUNDS = [RoundChange(1, 0.01), RoundChange(3, -0.02, counts=False)]


def heights(picture: str, tag: str, name: str) -> list[float]:
    return [float(mark[name]) for mark in marks(picture, tag)]


def test_each_round_has_a_dot_over_the_interval_of_the_mean() -> None:
    picture = load_rounds_chart(QUERIES, ROUNDS)
    assert [mark["class"] for mark in marks(picture, "circle")] == ["f-b", "f-muted"]
    assert len(list(marks(picture, "rect"))) == 1
    assert "interval of the mean: +7.0 to +9.0 %" in picture
    assert "round that doesn't count" in picture.unescape()
    assert "tolerance 8 %" in picture


def test_rounds_of_any_ratio_are_drawn() -> None:
    picture = load_rounds_chart(QUERIES, [RoundChange(1, 1000.0), RoundChange(2, -1000.0)])
    assert len(list(marks(picture, "circle"))) == 2


def test_an_interval_without_an_end_is_left_out() -> None:
    picture = load_rounds_chart(QUERIES.but(low=0.0, high=math.inf), ROUNDS[:1])
    assert not list(marks(picture, "rect"))
    assert "doesn't count" not in picture.unescape()


def test_less_of_a_peak_is_worse() -> None:
    worse = [RoundChange(1, -0.5)]
    up = load_rounds_chart(QUERIES, worse)
    down = load_rounds_chart(PEAK, worse)
    assert "change of peak rate in each round: -39.3 %" in down
    assert up != down


def test_each_run_of_load_has_a_dot_of_its_side() -> None:
    tried = [TriedRate(100.0, 0.010), TriedRate(120.0, 0.030, late=True)]
    peaks = [
        {"a": PeakRecord(110.0, 100.0, 120.0, tried)},
        {"a": PeakRecord(110.0, 100.0, 120.0, tried), "b": PeakRecord(80, 0.0, 80, tried[:1])},
    ]
    picture = rates_chart(peaks, 0.020, "p99")
    assert [mark["class"] for mark in marks(picture, "circle")].count("f-a") == 4
    assert [mark["class"] for mark in marks(picture, "circle")].count("f-b") == 1
    assert "p99 of the latencies at 5 runs of load, limit 20.0 ms" in picture
    across = heights(picture, "circle", "cx")
    assert across[0] < across[1]
