"""Charts of an upgrade."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import pytest

from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.decide.upgrade.layer_diff import LayerChange
from pytest_mlms.show.pages.upgrade import PairRatios, forest_chart, layers_chart, rounds_chart

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
