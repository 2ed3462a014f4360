"""The replay compares outputs as the gate does."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_mlms.evaluate.agreement import Tolerance, differences
from pytest_mlms.evaluate.closeness import rounding_share
from pytest_mlms.repro.replay.compare import ROUNDING_SHARE, largest_difference
from pytest_mlms.repro.replay.environments import THREAD_VARIABLES
from pytest_mlms.repro.replay.intervals import student_interval
from pytest_mlms.repro.replay.rounds import shown
from pytest_mlms.stacks.launch import THREAD_VARIABLES as OURS
from pytest_mlms.statistics import student_interval as reference_interval
from pytest_mlms.upgrade.output_check import check_outputs

GENERATOR = np.random.default_rng(3)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "float64"])
def test_the_deviation_is_that_of_an_upgrade(dtype: str) -> None:
    reference = (100 * GENERATOR.normal(size=(4, 3, 5))).astype(dtype)
    ours = reference + np.array(GENERATOR.normal(size=(4, 3, 5)) * 3).astype(dtype)
    found = largest_difference({"y": ours}, {"y": reference}, 0.0, None)
    compared = check_outputs({"y": reference}, {"y": ours})
    assert found["deviation"] == pytest.approx(compared.ratio)


def test_a_tolerance_is_that_of_an_agreement() -> None:
    reference = GENERATOR.normal(size=(4, 5))
    ours = reference + 0.01
    found = largest_difference({"y": ours}, {"y": reference}, 0.01, 0.001)
    expected = differences(ours, reference, Tolerance(0.01, 0.001)).deviation
    assert found["deviation"] == pytest.approx(expected.max())
    assert expected[tuple(found["place"])] == expected.max()


def test_shapes_that_differ_are_told() -> None:
    found = largest_difference({"y": np.ones(3)}, {"y": np.ones(4)}, 0.0, None)
    assert found["problem"] == "'y' is (3,), and (4,) of the other side"


@pytest.mark.parametrize("count", [2, 5, 12, 31])
def test_the_interval_is_student_s(count: int) -> None:
    values = list(1000 + GENERATOR.normal(size=count))  # an interval of times ends at 0
    found = student_interval(values)
    expected = reference_interval(values, 0.998)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=2e-3)


def test_the_rounding_and_the_threads_are_those_of_agents() -> None:
    assert rounding_share(np.dtype("float32")) == ROUNDING_SHARE
    assert THREAD_VARIABLES == OURS


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (5.178e-5, "s", "51.78 µs"),
        (0.25, "s", "250 ms"),
        (3 << 20, "B", "3 MiB"),
        (12.5, "/s", "12.5 /s"),
        (0.0, "s", "0 µs"),
    ],
)
def test_values_are_shown_with_their_unit(value: float, unit: str, text: str) -> None:
    assert shown(value, unit) == text
