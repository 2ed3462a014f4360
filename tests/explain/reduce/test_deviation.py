"""Tests of deviations of tensors, and of the first layer that departs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pytest_mlms.explain.reduce.deviation import (
    Deviation,
    departing_rows,
    deviation,
    first_departure,
)
from pytest_mlms.explain.reduce.network import read_network
from pytest_mlms.measure.evaluate.closeness import Rule, Tolerance
from tests.support.reductions import deep_network

NUMBERS = st.floats(-1e6, 1e6, width=32)
ANY = st.floats(width=32)


@given(arrays.arrays(np.float32, (3, 2), elements=ANY))
def test_a_tensor_agrees_with_itself_whatever_is_in_it(tensor: np.ndarray) -> None:
    assert deviation(tensor, tensor.copy(), Rule())[:2] == (0.0, 0.0)
    assert departing_rows(tensor, tensor, Rule(Tolerance(0.0, 0.0))).size == 0


@given(
    arrays.arrays(np.float32, (3, 2), elements=NUMBERS),
    arrays.arrays(np.float32, (3, 2), elements=NUMBERS),
)
def test_a_tensor_departs_exactly_where_numpy_says_it_is_not_close(
    old: np.ndarray, new: np.ndarray
) -> None:
    rule = Rule(Tolerance(rtol=0.01, atol=0.5))
    close = np.isclose(new.astype(float), old.astype(float), rtol=0.01, atol=0.5)
    assert deviation(old, new, rule).departs == (not close.all())
    rows = departing_rows(old, new, rule)
    assert set(rows) == set(np.flatnonzero(~close.all(axis=1)))


@pytest.mark.parametrize("other", [np.nan, np.inf])
def test_nan_or_infinity_of_one_side_departs(other: float) -> None:
    old = np.array([1.0, 2.0], np.float32)
    new = np.array([1.0, other], np.float32)
    assert deviation(old, new, Rule()).departs
    assert deviation(new, old, Rule()).departs


def test_another_text_departs() -> None:
    old, new = np.array(["cat", "dog"]), np.array(["cat", "eel "])
    assert deviation(old, new, Rule()).departs
    assert not deviation(old, old.copy(), Rule()).departs
    assert departing_rows(old, new, Rule()).tolist() == [1]


def test_infinities_do_not_widen_the_tolerance() -> None:
    old = np.array([1.0, -np.inf], np.float32)  # such as a mask of attention
    assert deviation(old, np.array([2.0, -np.inf], np.float32), Rule()).departs
    assert not deviation(old, np.array([1.00005, -np.inf], np.float32), Rule()).departs


def test_other_shapes_depart_and_have_no_rows() -> None:
    old = np.zeros((3, 2))
    assert deviation(old, np.zeros((3, 1)), Rule()).departs
    assert departing_rows(old, np.zeros((3, 1)), Rule()).size == 0


def test_the_first_layer_is_the_first_one_whose_inputs_agree(tmp_path: Path) -> None:
    network = read_network(deep_network(tmp_path))
    found = dict.fromkeys(network.writers, Deviation(0.0, 0.5))
    assert first_departure(network, found) is None
    for name in ("s3", "b3", "a3", "t"):
        found[name] = Deviation(2.0, 3.0)
    layer = first_departure(network, found)
    assert layer is not None
    assert network.nodes[layer.number].writes == ("s3",)
    assert (layer.difference, layer.multiple, layer.before) == (2.0, 3.0, 0.5)


def test_the_rounding_that_is_left_of_large_values_is_no_departure(tmp_path: Path) -> None:
    network = read_network(deep_network(tmp_path))
    found = dict.fromkeys(network.writers, Deviation(0.0, 0.0, scale=100.0))
    found["s3"] = Deviation(difference=1e-5, multiple=114.0, scale=1e-5)
    assert first_departure(network, found) is None
    found["s3"] = Deviation(difference=1e-2, multiple=114.0, scale=1e-5)
    assert first_departure(network, found) is not None
