"""Tests of the checks that outputs are finite."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_mlms.core.errors import OutputError
from pytest_mlms.measure.evaluate.outputs import check_finite, finite_rows


def test_a_row_is_finite_where_all_of_it_is() -> None:
    values = np.array([[[1.0, 2.0]], [[np.nan, 2.0]], [[1.0, np.inf]]])
    assert finite_rows(values).tolist() == [True, False, False]


def test_a_single_number_is_a_row() -> None:
    assert finite_rows(np.array(3.0)).tolist() == [True]


@pytest.mark.parametrize("shape", [(0,), (0, 4), (0, 4, 0)])
def test_an_output_without_rows_has_none_that_is_not_finite(shape: tuple[int, ...]) -> None:
    found = finite_rows(np.zeros(shape))
    assert found.tolist() == []
    check_finite("boxes", found)


def test_the_error_names_the_first_input_that_is_not_finite() -> None:
    message = "'y' has NaN or infinity for 2 of 4 inputs, first for number 1; check"
    with pytest.raises(OutputError, match=message):
        check_finite("y", np.array([True, False, False, True]))


def test_finite_outputs_are_no_error() -> None:
    check_finite("y", np.array([True, True]))


def test_the_error_names_the_input_by_what_it_is_called() -> None:
    with pytest.raises(OutputError, match=r"first for number 1, b\.png; check"):
        check_finite("y", np.array([True, False]), ["a.png", "b.png"].__getitem__)
