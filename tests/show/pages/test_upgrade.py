"""Charts of an upgrade."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.files import write_arrays
from pytest_mlms.core.records import Comparison, LayerChange, PeakRecord, TriedRate, Verdict
from pytest_mlms.show.pages.html import sections_of
from pytest_mlms.show.pages.upgrade import (
    PairRatios,
    RoundChange,
    forest_chart,
    layers_chart,
    load_rounds_chart,
    rates_chart,
    rounds_chart,
)
from tests.support.report_runs import read_lines
from tests.support.result_lines import upgrade

SVG = "{http://www.w3.org/2000/svg}"

LATENCY = Comparison(
    quantity="latency",
    a=0.001,
    b=0.00108,
    unit="s",
    tolerance=0.03,
    gate=True,
    replicates=5,
    of="rounds",
    ratio=1.08,
    low=1.07,
    high=1.09,
    verdict=Verdict.REGRESSED,
)
THROUGHPUT = LATENCY.but(quantity="throughput", ratio=1.2, low=-math.inf, gate=False)
TOP1 = LATENCY.but(quantity="top1", of="inputs", ratio=-0.01, low=-0.02, high=0.0)


def marks(picture: str | None, tag: str) -> Iterator[dict[str, str]]:
    assert picture is not None
    for element in ET.fromstring(picture).iter(f"{SVG}{tag}"):
        yield element.attrib


def test_a_forest_has_a_row_and_a_tolerance_for_each_quantity() -> None:
    picture = forest_chart([LATENCY, THROUGHPUT, TOP1])
    dots = list(marks(picture, "circle"))
    bands = list(marks(picture, "rect"))
    assert len(dots) == len(bands) == 3
    assert float(dots[0]["cx"]) < float(dots[1]["cx"])
    assert float(dots[2]["cx"]) < float(dots[0]["cx"])
    slower, rate, accuracy = (float(band["x"]) for band in bands)
    assert slower < rate  # less latency is allowed without end, and more throughput
    assert accuracy < rate  # 3 % less are points of accuracy, and 1 / 1.03 of a rate


def test_a_change_beyond_the_tolerance_is_right_of_its_band() -> None:
    picture = forest_chart([LATENCY])
    (dot,) = marks(picture, "circle")
    (band,) = marks(picture, "rect")
    assert float(dot["cx"]) > float(band["x"]) + float(band["width"])
    assert dot["class"] == "f-bad"


@pytest.mark.parametrize(("ratio", "is_within"), [(0.51, True), (0.49, False)])
def test_the_band_of_a_rate_ends_where_the_rule_does(ratio: float, is_within: bool) -> None:
    half = THROUGHPUT.but(tolerance=1.0, ratio=ratio, low=ratio, high=ratio)
    picture = forest_chart([half])
    (dot,) = marks(picture, "circle")
    (band,) = marks(picture, "rect")
    assert (float(dot["cx"]) > float(band["x"])) == is_within


def test_the_agreement_of_outputs_has_no_row_as_it_is_no_change() -> None:
    agreement = LATENCY.but(quantity="agreement", of="outputs", ratio=0.01)
    assert forest_chart([agreement]) is None
    assert forest_chart([LATENCY.but(ratio=math.nan)]) is None


def test_rounds_have_a_dot_each_over_their_pairs() -> None:
    pairs = [PairRatios(1, (1.0, 1.1, 50.0)), PairRatios(2, (1.05, 1.02, 1.01))]
    picture = rounds_chart([(1, 0.05, 0.01), (3, 0.04, None)], pairs, 0.03)
    first, open_ = marks(picture, "circle")
    assert (first["class"], open_["class"]) == ("f-b", "f-muted")
    assert picture is not None
    assert "round 3: +4.08 %, doesn&#39;t count" in picture
    assert "tolerance 3 %" in picture
    assert rounds_chart([], pairs, 0.03) is None


def test_rounds_of_any_ratio_are_drawn() -> None:
    picture = rounds_chart([(1, 1000.0, 0.01), (2, -1000.0, 1e308), (3, 0.0, None)], [], 0.03)
    assert len(list(marks(picture, "circle"))) == 3


def test_layers_that_got_slower_go_right_and_faster_ones_left() -> None:
    slower = LayerChange("conv", "Conv", 1e-3, 2e-3, 1e-3, 1.0)
    faster = LayerChange("relu", "Relu", 2e-3, None, -2e-3, -2.0)
    first, second = marks(layers_chart([slower, faster]), "rect")
    assert (first["class"], second["class"]) == ("f-bad", "f-good")
    assert float(second["x"]) < float(first["x"])
    assert layers_chart([]) is None


TITLE = "Queries under load"
PEAK = {
    "a": {"rate": 110, "good": 100, "bad": 120, "tried": [{"rate": 100, "latency": 0.01}]},
    "b": {"rate": 90, "good": 0, "bad": None, "tried": [{"rate": 90, "latency": 0.03}]},
}


def section_of(folder: Path, quantity: str, **fields: Any) -> str:
    """Return the section of an upgrade whose gate is a quantity of queries; "" without one."""
    line = {**upgrade(), "against": {"name": "old"}, **fields}
    line["comparisons"] = [{**line["comparisons"][0], "quantity": quantity}]
    (item,) = read_lines(folder, [line]).items
    assert not item.unread
    return dict(sections_of(item)).get(TITLE, "")


def test_peaks_have_a_chart_of_rounds_and_one_of_rates(tmp_path: Path) -> None:
    rounds = [
        {"figures": {"peak_rate": [110, 90, -0.2, 0.0, 662]}, "peaks": PEAK},
        {"figures": {"peak_rate": [110, 90, -0.2, None, 662]}, "peaks": {}},
    ]
    load = {"latency": 0.02, "percentile": 90}
    section = section_of(tmp_path, "peak_rate", rounds=rounds, load=load)
    assert section.count("<svg") == 2
    assert "Change of the peak" in section
    assert "p90 of the latencies at 2 runs of load, limit 20.0 ms" in section


def test_queries_have_a_chart_of_rounds_and_their_distributions(tmp_path: Path) -> None:
    scheduled = np.arange(100, dtype=np.int64) * 1_000_000
    arrays = {}
    for side in ("a", "b"):
        arrays[f"query_scheduled_{side}"] = scheduled
        arrays[f"query_done_{side}"] = scheduled + 4_000_000
    write_arrays(tmp_path / "pairs-0.npz", arrays)
    section = section_of(
        tmp_path,
        "query_latency",
        rounds=[{"figures": {"query_latency": [0.004, 0.004, 0.0, 0.0, 100]}}],
        artifacts={"pairs-0.npz": "pairs-0.npz"},
        load={"latency": 0.005, "percentile": 99, "rate": 100},
    )
    assert section.count("<svg") == 2
    assert "limit on p99: 5.00 ms" in section
    assert "100 queries, median 4.00 ms" in section


def test_an_upgrade_without_load_has_no_such_section(tmp_path: Path) -> None:
    rounds = [{"figures": {"latency": [0.004, 0.004, 0.0, 0.0, 100]}}]
    assert not section_of(tmp_path, "latency", rounds=rounds)


QUERIES = LATENCY.but(quantity="query_latency", tolerance=0.08)
COMPARED_PEAK = LATENCY.but(
    quantity="peak_rate", unit="/s", tolerance=0.08, ratio=0.9, low=0.8, high=0.95
)
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


def test_rounds_of_load_of_any_ratio_are_drawn() -> None:
    picture = load_rounds_chart(QUERIES, [RoundChange(1, 1000.0), RoundChange(2, -1000.0)])
    assert len(list(marks(picture, "circle"))) == 2


def test_an_interval_without_an_end_is_left_out() -> None:
    picture = load_rounds_chart(QUERIES.but(low=0.0, high=math.inf), ROUNDS[:1])
    assert not list(marks(picture, "rect"))
    assert "doesn't count" not in picture.unescape()


def test_less_of_a_peak_is_worse() -> None:
    worse = [RoundChange(1, -0.5)]
    up = load_rounds_chart(QUERIES, worse)
    down = load_rounds_chart(COMPARED_PEAK, worse)
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
