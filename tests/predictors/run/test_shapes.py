"""Shapes have None for axes that are free, however a framework says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mlms_predictors._run.shapes import shape_of, smallest


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ([], ()),
        ([2, 3], (2, 3)),
        ([-1, 3], (None, 3)),
        (["batch", 3, None], (None, 3, None)),
        (np.array([-1, 8], np.int32), (None, 8)),
        ([0, 4], (0, 4)),
    ],
)
def test_an_axis_without_a_size_is_free(sizes: Any, shape: tuple[int | None, ...]) -> None:
    assert shape_of(sizes) == shape


def test_sizes_are_plain_numbers_that_json_takes() -> None:
    (size,) = shape_of(np.array([8], np.int64))
    assert type(size) is int


def test_the_smallest_shape_has_one_for_each_free_axis() -> None:
    assert smallest((None, 3, None)) == (1, 3, 1)
