"""The blocks of a soak, of a process that is none."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mlms_predictors._run.replies import UsageReply

from pytest_mlms.measure.agent.predictor import ScenarioRun
from pytest_mlms.measure.evaluate.closeness import Rule
from pytest_mlms.measure.evaluate.soak import SoakRun
from pytest_mlms.measure.evaluate.soak_estimates import estimate_soak
from tests.support.processes import scenario_run

BATCH = {"x": np.full((2, 3), 0.3, np.float32) + np.arange(3, dtype=np.float32)}


def chaos(x: Any) -> Any:
    return np.sin(1e9 * x.astype(np.float64)).astype(np.float32)


class Model:
    """A predictor whose blocks after the first give what ``later`` returns."""

    def __init__(self, later: Callable[[Any], Any], again: Callable[[Any], Any] = chaos) -> None:
        self._outputs: list[Callable[[Any], Any]] = [chaos]
        self._later = later
        self._again = again

    def run(self, scenario: str, **limits: Any) -> ScenarioRun:
        outputs = {"y": self._outputs.pop()(BATCH["x"])}
        self._outputs.append(self._later)
        return replace(scenario_run([0.001]), outputs=outputs)

    def predict(self, batch: Any) -> dict[str, Any]:
        return {"y": self._again(batch["x"])}

    def usage(self, collect: bool) -> UsageReply:
        return UsageReply(1, None, 1, 1)


def off(x: Any) -> Any:
    return chaos(x + np.float32(1e-6))


@pytest.mark.parametrize(
    ("model", "least", "most"),
    [
        (Model(chaos), 0, 0),
        (Model(off), 0, 0),
        (Model(off, again=off), 100, 1e6),
        (Model(lambda x: chaos(x) + 10), 1000, 1e6),
        (Model(lambda x: x[:1]), np.inf, np.inf),
    ],
)
def test_outputs_of_later_blocks_differ_by_more_than_rounding_decides(
    model: Any, least: float, most: float
) -> None:
    soak = SoakRun({"b": lambda: contextlib.nullcontext(model)}, BATCH, 0.001)
    found = soak.series["b"].difference
    while len(found) < 2:
        soak.run()
    assert found[0] == 0
    assert least <= max(found[1:]) <= most


def test_scores_that_drift_beside_boxes_in_pixels_are_beyond_rounding() -> None:
    """Rules of the case were not asked: 1 % of a score is less than rounding of its box."""
    boxes = np.tile(np.array([300.0, 200, 640, 480, 0.9], np.float32), (2, 3, 1))
    later = boxes * np.array([1, 1, 1, 1, 0.99], np.float32)
    model: Any = Model(lambda x: later, again=lambda x: boxes)
    model._outputs = [lambda x: boxes]
    rules = {"y": Rule(unlike=-1)}
    soak = SoakRun({"b": lambda: contextlib.nullcontext(model)}, BATCH, 0.001, lambda: rules)
    found = soak.series["b"]
    while len(found.calls) < 2:
        soak.run()
    assert found.difference[1] > 10


@pytest.mark.parametrize("draws", [True, False])
def test_calls_in_a_row_tell_a_model_that_draws_numbers(draws: bool) -> None:
    numbers = np.random.default_rng(1)

    def drawn(x: Any) -> Any:
        return numbers.normal(size=x.shape).astype(np.float32)

    model: Any = Model(drawn, again=drawn if draws else lambda x: chaos(x) + 10)
    soak = SoakRun({"b": lambda: contextlib.nullcontext(model)}, BATCH, 0.001)
    found = soak.series["b"]
    while len(found.repeat) < 2:
        soak.run()
    assert found.difference[1] > 100
    assert found.repeat[0] == 0
    assert (found.repeat[1] > 100) is draws


@pytest.mark.parametrize("draws", [True, False])
def test_calls_in_a_row_tell_a_model_that_draws_how_much_it_finds(draws: bool) -> None:
    counts = itertools.cycle([1, 2, 0])

    def drawn(x: Any) -> Any:
        return chaos(x)[: next(counts)]

    model: Any = Model(drawn, again=drawn if draws else lambda x: chaos(x)[:1])
    soak = SoakRun({"b": lambda: contextlib.nullcontext(model)}, BATCH, 0.001)
    found = soak.series["b"]
    while len(found.repeat) < 3:
        soak.run()
    assert found.form[0] == 0
    assert max(found.form) == (2 if draws else 1)


def test_a_model_that_draws_how_many_numbers_has_another_form_wherever_it_is_infinitely_far() -> (
    None
):
    """A rounded input's outputs may by chance have the form of these, which rounding then decides."""
    numbers = np.random.default_rng(2)

    def drawn(x: Any) -> Any:
        return numbers.normal(size=x.shape)[:, : numbers.integers(2, 4)].astype(np.float32)

    model: Any = Model(drawn, again=drawn)
    soak = SoakRun({"b": lambda: contextlib.nullcontext(model)}, BATCH, 0.001)
    found = soak.series["b"]
    while len(found.repeat) < 200:
        soak.run()
    of_first_form = np.array(found.form) == 0
    assert np.isfinite(np.array(found.difference)[of_first_form]).all()
    assert len(set(found.form)) == 3


class Leaking(Model):
    """A model that draws numbers, and leaks a kilobyte in each call: a block has one."""

    held = 0

    def run(self, scenario: str, **limits: Any) -> ScenarioRun:
        self.held += 1000
        return super().run(scenario, **limits)

    def predict(self, batch: Any) -> dict[str, Any]:
        self.held += 1000
        return super().predict(batch)

    def usage(self, collect: bool) -> UsageReply:
        return UsageReply(self.held, None, 1, 1)


def test_calls_between_blocks_count_for_what_a_call_leaks() -> None:
    numbers = np.random.default_rng(1)

    def drawn(x: Any) -> Any:
        return numbers.normal(size=x.shape).astype(np.float32)

    model: Any = Leaking(drawn, again=drawn)
    soak = SoakRun({"b": lambda: contextlib.nullcontext(model)}, BATCH, 0.001)
    while len(soak.series["b"].repeat) < 40:
        soak.run()
    growth = estimate_soak(soak.series["b"].arrays())["soak_growth"]
    assert growth.value == pytest.approx(1000)
