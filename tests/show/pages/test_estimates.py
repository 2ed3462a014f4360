"""Charts of estimates against limits."""

from __future__ import annotations

from pytest_mlms.core.records import Verdict
from pytest_mlms.keep.results.line import EstimateRecord, LimitRecord
from pytest_mlms.show.pages.estimates import intervals_figures
from tests.support.svg import marks, titles


def test_quantities_of_one_unit_share_a_chart_with_their_limits() -> None:
    estimates = {
        "top1": EstimateRecord(0.9, 0.85, 0.95, 0.95, 600, "inputs", unit="fraction"),
        "top5": EstimateRecord(0.99, 0.98, 1.0, 0.95, 600, "inputs", unit="fraction"),
        "psnr": EstimateRecord(30.0, 28.0, 32.0, 0.95, 600, "inputs", unit="dB"),
        "f1_macro": EstimateRecord(None, unit="fraction", lacking="nothing"),
    }
    limits = [LimitRecord(quantity="top1", verdict=Verdict.FAILED, min=0.97, place="m.yaml:8")]
    (shares, first), (decibels, _) = intervals_figures(estimates, limits)
    assert shares == "FAILED: top1 at least 97.00 %, set in m.yaml:8"
    assert decibels == "no limits on these"
    assert any(title.startswith("limit on top1") for title in titles(first))


def test_estimates_without_an_interval_are_dots() -> None:
    ((_, chart),) = intervals_figures({"top1": EstimateRecord(0.5, unit="fraction")}, [])
    assert len(marks(chart, "circle")) == 1
