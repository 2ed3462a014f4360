"""The way back from the model's input to the picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.pipeline.geometry import Geometry, geometry_of
from pytest_mlms.measure.pipeline.inputs import preprocess


def image_input(*steps: Any) -> Input:
    fields = {"name": "x", "type": "image", "layout": "NHWC", "element_type": "float32"}
    return Input.model_validate({**fields, "steps": list(steps)})


STEPS: dict[str, list[Any]] = {
    "none": [],
    "resize": [{"resize": {"size": [50, 40], "method": "box"}}],
    "cover and crop": [
        {"resize": {"size": [60, 60], "method": "box", "keep_aspect_ratio": True}},
        {"crop": {"size": [56, 50]}},
    ],
    "crop and resize": [
        {"crop": {"size": [90, 91]}},
        {"resize": {"size": [45, 40], "method": "bilinear"}},
        {"normalize": {"scale": 255}},
    ],
    "letterbox": [
        {"resize": {"size": [64, 64], "fit": "contain", "method": "box"}},
        {"pad": {"size": [64, 64]}},
    ],
    "sides and a ratio": [
        {"resize": {"shortest": 90, "method": "box"}},
        {"crop": {"ratio": 0.9}},
        {"pad": {"border": 3}},
    ],
}


@pytest.mark.parametrize("name", STEPS)
def test_a_bright_box_is_found_where_it_was(name: str) -> None:
    """Paint a box, run the steps, look where it is, and go back."""
    picture = np.zeros((100, 120, 1), np.uint8)
    box = np.array([30, 20, 80, 60])
    picture[box[1] : box[3], box[0] : box[2]] = 200
    spec = image_input(*STEPS[name])
    made = preprocess([picture], spec)[0, :, :, 0]
    geometry = geometry_of(spec.steps, 100, 120)
    assert geometry.size == made.shape
    rows = made.sum(axis=1) / made.sum(axis=1).max()
    columns = made.sum(axis=0) / made.sum(axis=0).max()
    found = np.array([[*edges(columns), *edges(rows)]])[:, [0, 2, 1, 3]]
    assert geometry.to_picture(found)[0] == pytest.approx(box, abs=0.75)


def edges(values: Any) -> tuple[float, float]:
    """Return where a profile begins and ends, to a fraction of a pixel."""
    inside = np.flatnonzero(values > 0.5)
    first, last = int(inside[0]), int(inside[-1])
    before = values[first - 1] if first else 0
    after = values[last + 1] if last + 1 < len(values) else 0
    return first + (1 - values[first]) - before, last + values[last] + after


def test_padding_moves_a_picture() -> None:
    geometry = Geometry((10, 20)).resized(20, 40).moved(-5, 0, 30, 40)
    assert geometry.size == (30, 40)
    assert geometry.to_picture(np.array([[0.0, 5, 40, 25]])).tolist() == [[0, 0, 20, 10]]


def test_a_step_without_a_way_back_is_an_error() -> None:
    class Other:
        name = "twirl"

    with pytest.raises(DatasetError, match="boxes can't be put back through step 'twirl'"):
        geometry_of([Other()], 10, 10)  # type: ignore[list-item]
