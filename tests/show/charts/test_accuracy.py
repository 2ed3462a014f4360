"""Charts of estimates against limits."""

from __future__ import annotations

from pytest_mlms.core.records import Verdict
from pytest_mlms.show.charts.accuracy import intervals_charts
from pytest_mlms.show.views.measured import EstimateView, LimitView
from tests.support.svg import marks, titles


def test_quantities_of_one_unit_share_a_chart_with_their_limits() -> None:
    estimates = {
        "top1": EstimateView(0.9, 0.85, 0.95, "fraction", 0.95, 600, "inputs"),
        "top5": EstimateView(0.99, 0.98, 1.0, "fraction", 0.95, 600, "inputs"),
        "psnr": EstimateView(30.0, 28.0, 32.0, "dB", 0.95, 600, "inputs"),
        "f1_macro": EstimateView(None, unit="fraction", lacking="nothing"),
    }
    limits = [LimitView("top1", Verdict.FAILED, min=0.97, place="m.yaml:8")]
    (shares, first), (decibels, _) = intervals_charts(estimates, limits)
    assert shares == "FAILED: top1 at least 97.00 %, set in m.yaml:8"
    assert decibels == "no limits on these"
    assert any(title.startswith("limit on top1") for title in titles(first))


def test_estimates_without_an_interval_are_dots() -> None:
    ((_, chart),) = intervals_charts({"top1": EstimateView(0.5, unit="fraction")}, [])
    assert len(marks(chart, "circle")) == 1
