"""Scoring of outputs, estimates from evidence, and the text of the worst inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.errors import OutputError
from pytest_mlms.core.records import Estimate
from pytest_mlms.manifest import load
from pytest_mlms.measure.evaluate.scoring import (
    UNDEFINED,
    estimate_evidence,
    figures_of,
    resampled_bounds,
    resampled_figures,
    score,
    worst_inputs,
)
from pytest_mlms.measure.pipeline import Dataset
from tests.support.scored import Means, dataset_of
from tests.support.small_manifest import DATASET, small, write

VALUES = np.array([[9.0, 3.0, 1.0], [0.0, 1.0, 5.0]])


@pytest.mark.parametrize("name", ["auc", "average_precision", "ece"])
def test_a_limit_on_a_quantity_of_probabilities_is_an_error_without_them(
    tmp_path: Path, name: str
) -> None:
    bound = "max" if name == "ece" else "min"
    message = f"thresholds: {name} can't be measured: output 'y' has no probabilities; write the"
    for limits in ({name: {bound: 0.5}}, {"upgrade": {name: 0.02}}):
        with pytest.raises(OutputError, match=message):
            scored(tmp_path, thresholds=limits)
        assert name in scored(tmp_path, "softmax", thresholds=limits)
    assert name not in scored(tmp_path, thresholds={"top1": {"min": 0.5}})


def scored(folder: Path, *steps: Any, **changes: Any) -> Any:
    """Return the figures of two inputs by a manifest whose output y has these steps."""
    outputs = [{"name": "y", "type": "classification", "steps": list(steps)}]
    written = write(folder, small(outputs=outputs, dataset=DATASET, **changes))
    manifest = load(written).manifest
    rows: Any = {"x": np.zeros((2, 3))}
    dataset = Dataset("m.yaml:1: d.npz", tuple(manifest.inputs), rows, np.array([0, 1]))
    evidence = score([{"y": VALUES}], manifest, dataset, {})
    return evidence.figures(np.ones((1, 2)))


def estimate(values: Sequence[float]) -> Estimate:
    return estimate_evidence(Means(values), seed=0)["f1_macro"]


def test_the_value_is_that_of_all_inputs() -> None:
    found = estimate([0.25, 0.5, 1.0])
    assert found.value == pytest.approx(1.75 / 3)
    assert found.low < found.value < found.high
    assert (found.replicates, found.of, found.confidence) == (3, "inputs", 0.95)


def test_the_seed_decides_the_samples() -> None:
    means = Means(np.random.default_rng(0).random(50).tolist())
    assert estimate_evidence(means, seed=1) == estimate_evidence(means, seed=1)
    assert estimate_evidence(means, seed=1) != estimate_evidence(means, seed=2)


def test_all_sides_have_the_same_samples() -> None:
    values = np.random.default_rng(0).random(50)
    a, b = resampled_figures([Means(values.tolist()), Means((values - 0.1).tolist())], seed=3)
    assert np.allclose(a["f1_macro"] - b["f1_macro"], 0.1)


def test_samples_are_drawn_in_parts_where_there_are_many_inputs() -> None:
    (found,) = resampled_figures([Means([0.0, 1.0] * 50_000)], seed=0)
    assert len(found["f1_macro"]) == 1000
    assert found["f1_macro"].std() == pytest.approx(0.5 / np.sqrt(100_000), rel=0.1)


def test_a_fraction_that_all_inputs_share_has_an_interval_all_the_same() -> None:
    found = estimate([1.0] * 600)
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(600 / (600 + 1.96**2), abs=1e-5)


def test_one_input_has_no_interval() -> None:
    assert estimate([0.5]).lacking == "an interval needs 2 inputs"


def test_a_figure_that_the_inputs_can_not_tell_is_lacking() -> None:
    assert estimate([np.nan, 1.0]).lacking == UNDEFINED


def test_figures_are_those_of_every_input_once() -> None:
    assert figures_of(Means([1.0, 3.0])) == {"f1_macro": 2.0}


@pytest.mark.parametrize("inputs", [10, 40])
def test_an_interval_holds_the_mean_of_inputs_to_come(inputs: int) -> None:
    generator = np.random.default_rng(7)
    held = 0
    for _ in range(200):
        values = generator.exponential(size=inputs)
        counts = generator.multinomial(inputs, np.full(inputs, 1 / inputs), size=500)
        low, high = resampled_bounds(counts @ values / inputs, 0.025, 0.025, inputs)
        held += low <= 1 <= high
    assert held / 200 > 0.88  # 0.79 and 0.89 by percentiles that are not expanded


LABELS = ["two\nwords", ""]


class Texts(Means):
    """Evidence of two texts that are wrong."""

    def columns(self) -> Mapping[str, Sequence[object]]:
        return {"label": LABELS, "text": ["", "heard"], "f1": [0.1 + 0.2, 1.0]}


def test_an_empty_text_is_said_to_be_none() -> None:
    lines = worst_inputs(Texts([-2, -1]), dataset_of(LABELS))
    assert lines == [
        "row 0: label two words, text (none), f1 0.3",
        "row 1: label (none), text heard, f1 1",
    ]
