"""The comparison of outputs, on made-up ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from pytest_mlms.evaluate.closeness import Rule
from pytest_mlms.evaluate.output_sweep import OutputSweep
from pytest_mlms.evaluate.rounding import nearby_outputs

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
