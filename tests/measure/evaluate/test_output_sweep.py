"""The comparison of outputs, on made-up ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from pytest_mlms.measure.evaluate.closeness import Rule
from pytest_mlms.measure.evaluate.output_sweep import OutputSweep
from pytest_mlms.measure.evaluate.rounding import nearby_outputs

Outputs = Mapping[str, Any]
IMAGE = {"image": np.linspace(0.1, 0.9, 64, dtype=np.float32)[np.newaxis]}
LIMIT = IMAGE["image"][0, 40]
"""A pixel that is just too dark for a box."""


def detector(limit: Any) -> Callable[[Outputs], dict[str, Any]]:
    """Return a model that gives a box and a score for each pixel that is brighter."""

    def predict(batch: Outputs) -> dict[str, Any]:
        (places,) = (batch["image"][0] > limit).nonzero()
        boxes = np.repeat(places[:, np.newaxis], 4, axis=1).astype(np.float32)
        return {"boxes": boxes, "scores": batch["image"][0, places]}

    return predict


def swept(a: Callable[[Outputs], Outputs], b: Callable[[Outputs], Outputs]) -> OutputSweep:
    sweep = OutputSweep({"boxes": Rule(), "scores": Rule()})
    sweep.add(a(IMAGE), b(IMAGE), ["a picture"], lambda: nearby_outputs(a, IMAGE))
    return sweep


def test_a_box_more_is_not_judged_where_rounding_decides_it() -> None:
    found = swept(detector(LIMIT), detector(np.nextafter(LIMIT, np.float32(0))))
    assert (found.problem, found.beyond) == ("", 0)
    assert found.unjudged == ["a picture"]


@pytest.mark.parametrize("limit", [LIMIT - np.float32(0.02), 2.0])
def test_boxes_that_rounding_does_not_make_are_wrong(limit: Any) -> None:
    found = swept(detector(LIMIT), detector(limit))
    assert found.problem.startswith("'boxes' is")
    assert found.beyond == 1


def test_a_model_whose_boxes_vary_from_call_to_call_excuses_no_other_number() -> None:
    calls: list[int] = []

    def vary(batch: Outputs) -> dict[str, Any]:
        calls.append(0)
        return detector(LIMIT - np.float32(1e-3) * (len(calls) % 2))(batch)

    assert swept(vary, detector(LIMIT)).problem


def test_a_detector_that_finds_nothing_on_both_sides_agrees() -> None:
    found = swept(detector(1), detector(1))
    assert (found.problem, found.inputs, found.beyond) == ("", 1, 0)
    assert swept(detector(1), detector(LIMIT)).problem == (
        "'boxes' is (23, 4), and (0, 4) of the baseline, for a picture"
    )


def off_by_a_tenth(values: Any, rule: Rule) -> int:
    """Return how many of some inputs differ where the first value of each is off by a tenth."""
    other = values.copy()
    other[..., 0] *= np.float32(0.9)
    sweep = OutputSweep({"y": rule})
    sweep.add({"y": values}, {"y": other}, [""] * len(values))
    return sweep.beyond


LARGEST = {kind: float(np.finfo(kind).max) for kind in (np.float16, np.float32, np.float64)}
FILLS = [
    (kind, fill)
    for kind, largest in LARGEST.items()
    for fill in (1e4, -5e4, 1e9, -2e9, -1e30, -largest, -largest / 2)
    if abs(fill) <= largest
]


@pytest.mark.parametrize("shape", [(1, 9), (8, 9), (8, 3, 9)])
@pytest.mark.parametrize(("kind", "fill"), FILLS)
def test_what_a_mask_is_filled_with_hides_no_fault(shape: Any, kind: Any, fill: float) -> None:
    values = np.random.default_rng(0).uniform(1, 40, shape).astype(kind)
    values[..., 0] = 5
    values[..., 5:] = fill
    assert off_by_a_tenth(values, Rule()) == len(values)
    near = values.copy()
    near[..., 5:] *= kind(1 - 1e-5)
    sweep = OutputSweep({"y": Rule()})
    sweep.add({"y": values}, {"y": near}, [""] * len(values))
    assert sweep.beyond == 0, "a fill may be off by rounding, too"


def test_a_large_result_is_a_measure_of_those_beside_it() -> None:
    values = np.random.default_rng(0).uniform(1, 9, (8, 9)).astype(np.float32)
    for large in (123456.7, 2e8 / 3):
        values[:, 5] = large
        assert off_by_a_tenth(values, Rule()) == 0
