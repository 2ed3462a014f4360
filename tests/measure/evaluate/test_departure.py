"""Tests of the search for the first layer that departs, and of why it can't be had."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.errors import AgentError, Unavailable
from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.measure.evaluate.closeness import Tolerance
from pytest_mlms.measure.evaluate.departure import DepartureSearch, find_departure, search_departure
from pytest_mlms.measure.evaluate.inputs import Inputs
from pytest_mlms.measure.evaluate.kept_outputs import Reference

USUAL = Tolerance(1e-4, 1e-5)
RANDOM = np.random.default_rng(7)
CONV = RANDOM.standard_normal((2, 3, 4, 4))
RELU = np.maximum(CONV, 0)
POOL = RANDOM.standard_normal((2, 3, 2, 2))
DENSE = RANDOM.standard_normal((2, 5))
REFERENCE = [("conv", CONV), ("relu", RELU), ("pool", POOL), ("dense", DENSE)]


def test_the_first_layer_that_departs_is_found_by_name() -> None:
    ours = [("conv", CONV), ("relu", RELU), ("pool", POOL + 0.5), ("dense", DENSE * 2)]
    found = find_departure(ours, REFERENCE, USUAL)
    assert found is not None
    assert found.layer == "pool"
    assert found.ours == "pool"
    assert found.after == ("relu", "relu")
    assert found.difference == pytest.approx(0.5)


def test_renamed_and_fused_layers_are_found_by_shape_and_order() -> None:
    channels_last_relu = np.moveaxis(RELU, 1, -1)
    channels_last_pool = np.moveaxis(POOL, 1, -1)
    ours = [("a", channels_last_relu), ("b", channels_last_pool), ("c", DENSE + 1)]
    found = find_departure(ours, REFERENCE, USUAL)
    assert found is not None
    assert found.layer == "dense"
    assert found.ours == "c"
    assert found.after == ("pool", "b")


@pytest.mark.parametrize("ours", [REFERENCE, [("other", np.zeros(7))], []])
def test_layers_that_agree_or_can_not_be_matched_do_not_depart(ours: Any) -> None:
    assert find_departure(ours, REFERENCE, USUAL) is None


def test_rounding_is_no_departure() -> None:
    rounded = [(name, values * (1 + 1e-6)) for name, values in REFERENCE]
    assert find_departure(rounded, REFERENCE, USUAL) is None


@given(st.integers(0, 3))
def test_whichever_layer_goes_wrong_is_found(wrong: int) -> None:
    ours = []
    for number, (name, values) in enumerate(REFERENCE):
        error = 1 + 0.1 * number if number >= wrong else 0.0
        ours.append((name, values + error))
    found = find_departure(ours, REFERENCE, USUAL)
    assert found is not None
    assert found.layer == REFERENCE[wrong][0]


LAYERS = [("conv", np.ones((1, 2, 4, 4))), ("dense", np.ones((1, 3)))]
REFUSED = Refused("no", "NotImplementedError")


class FakePredictor:
    """A predictor that returns these layers, or raises this error."""

    def __init__(self, layers: Any) -> None:
        self._layers = layers

    def inner(self, batch: Any) -> Any:
        if isinstance(self._layers, Exception):
            raise self._layers
        return self._layers


def case_of(framework: str) -> Any:
    return SimpleNamespace(stack=SimpleNamespace(label=framework), device="cpu")


def search(ours: Any, theirs: Any) -> DepartureSearch:
    """Search with predictors that return these layers; an Unavailable is raised on opening."""

    @contextlib.contextmanager
    def open_() -> Iterator[Any]:
        if isinstance(theirs, Unavailable):
            raise theirs
        yield FakePredictor(theirs)

    inputs = Inputs(None, {"x": np.zeros((1, 1), np.float32)}, 1)
    reference = Reference(case_of("onnxruntime"), inputs, {}, {}, Path("log"), open_)
    predictor: Any = FakePredictor(ours)
    return search_departure(case_of("mxnet"), lambda: predictor, reference, 0, USUAL)


@pytest.mark.parametrize(
    ("ours", "theirs", "reason"),
    [
        (LAYERS, LAYERS, "of the layers that can be matched, none does"),
        ([("other", np.ones(7))], LAYERS, "of the layers that can be matched, none does"),
        (REFUSED, LAYERS, "mxnet does not show its layers"),
        (LAYERS, REFUSED, "onnxruntime does not show its layers"),
        (AgentError("the agent was killed"), LAYERS, "the agent was killed"),
        (LAYERS, Unavailable("no memory left on the device"), "no memory left on the device"),
    ],
)
def test_a_search_that_finds_nothing_has_a_reason(ours: Any, theirs: Any, reason: str) -> None:
    assert search(ours, theirs) == DepartureSearch(None, reason)


def test_the_departure_is_found_in_the_layers_of_both_agents() -> None:
    ours = [("a", LAYERS[0][1]), ("b", LAYERS[1][1] + 1)]
    departure = search(ours, LAYERS).departure
    assert departure is not None
    assert departure.layer == "dense"
    assert departure.ours == "b"
