"""Checks that outputs are finite, and the part that rounding decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.errors import OutputError
from pytest_mlms.measure.agent.process import Array, Refused
from pytest_mlms.measure.evaluate.closeness import (
    check_finite,
    finite_rows,
    nearby_outputs,
    rounded_inputs,
)
from pytest_mlms.measure.evaluate.output_sweep import largest_difference


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


HALVES = np.full((2, 4), 0.5, np.float32) + np.arange(4, dtype=np.float32)


def off(values: Any, **fields: Any) -> Array:
    """Return which values of a batch of one input are off."""
    batches = list(rounded_inputs({"x": np.asarray(values)}, **fields))
    if not batches:
        return np.zeros(np.shape(values), bool)
    found: Array = np.any([batch["x"] != values for batch in batches], axis=0)
    return found


def test_floats_are_off_and_whole_numbers_are_exact() -> None:
    row = np.array([[1.0, 0.5, -3.0, np.inf, np.nan]], np.float32)
    assert off(row)[0, :4].tolist() == [False, True, False, False]
    assert not off(np.arange(8).reshape(2, 4)).any()


@pytest.mark.parametrize("value", [0.0, 1.0, 255.0, 1e-40])
def test_an_input_of_one_value_is_off_by_units_of_1_at_least(value: float) -> None:
    row = np.full((2, 16), value, np.float32)
    row[1] = np.arange(16)
    found = off(row)
    assert found[0].all()
    assert not found[1].any()
    (first, *_) = rounded_inputs({"x": row})
    assert np.abs(first["x"][0] - value).max() == pytest.approx(max(1, value) * 8 * 2**-23, rel=0.1)


def test_a_mask_of_ones_beside_tokens_is_exact() -> None:
    tokens = np.arange(8).reshape(2, 4)
    assert not list(rounded_inputs({"tokens": tokens, "mask": np.ones((2, 4), np.float32)}))
    mixed: dict[str, Array] = {"x": HALVES, "mask": np.ones((2, 4), np.float32)}
    assert all((each["mask"] == 1).all() for each in rounded_inputs(mixed))


@pytest.mark.parametrize("values", [np.zeros((0, 4)), np.zeros((2, 0)), np.zeros((3, 1)), [[5.0]]])
def test_single_numbers_and_empty_inputs_are_exact(values: Any) -> None:
    assert not off(np.asarray(values, np.float32)).any()
    assert not list(rounded_inputs({}))


def test_rows_lie_along_the_axis_of_the_batch() -> None:
    values = np.arange(32, dtype=np.float32).reshape(16, 2)
    values[:, 1] = 3
    assert off(values, axes={"x": 1}).sum(axis=0).tolist() == [0, 16]
    assert not off(values, axes={"x": None}).any()


def chaos(batch: Any) -> dict[str, Array]:
    return {"y": np.sin(1e9 * batch["x"])}


def test_what_rounding_decides_is_no_difference() -> None:
    def given(name: str) -> tuple[str, str]:
        return largest_difference(others[name], expected, "it", lambda: near)

    batch = {"x": HALVES}
    expected = chaos(batch)
    near = nearby_outputs(chaos, batch)
    others = {
        "rounded": {"y": np.sin(1e9 * HALVES + np.float32(0.3))},
        "nan": {"y": np.full_like(HALVES, np.nan)},
        "far": {"y": expected["y"] + 10},
    }
    assert given("rounded") == ("", "")
    assert given("nan")[0] == given("far")[0] == "y"


def test_what_another_call_on_the_same_input_changes_is_not_taken_for_rounding() -> None:
    calls = iter(range(100))

    def race(batch: Any) -> dict[str, Array]:
        return {"y": batch["x"] * (2 if next(calls) % 3 == 0 else 1)}

    batch = {"x": HALVES}
    near = nearby_outputs(race, batch)
    name, difference = largest_difference({"y": 2 * HALVES}, {"y": HALVES}, "it", lambda: near)
    assert (name, difference) == ("y", "up to 1e+04 times what rounding explains")


def test_rounded_inputs_that_a_model_refuses_are_left_out() -> None:
    def strict(batch: Any) -> dict[str, Array]:
        if (batch["x"] != HALVES).any():
            raise Refused("no", "ValueError")
        return {"y": HALVES}

    near = nearby_outputs(strict, {"x": HALVES})
    assert (len(near.again), len(near.rounded)) == (4, 0)
    assert largest_difference({"y": 2 * HALVES}, {"y": HALVES}, "it", lambda: near)[0] == "y"
