"""Tests of the files that are kept of an agreement, and of the texts on it."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.records import Place
from pytest_mlms.keep.results.recorder import Recorder
from pytest_mlms.measure.evaluate.agreement import compare, rank
from pytest_mlms.measure.evaluate.closeness import Tolerance
from pytest_mlms.measure.evaluate.inputs import Inputs
from pytest_mlms.measure.evaluate.kept_outputs import (
    Departure,
    DepartureSearch,
    OutputComparison,
    Reference,
)
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.show.report import agreement

USUAL = Tolerance(1e-4, 1e-5)


def reference_of(outputs: Any) -> Reference:
    stack = SimpleNamespace(label="onnxruntime", framework="onnxruntime")
    case: Any = SimpleNamespace(stack=stack, device="cpu")
    rows = len(outputs)
    inputs = Inputs(None, {"x": np.zeros((rows, 1), np.float32)}, rows)
    opened: Any = contextlib.nullcontext(None)
    versions = {"onnxruntime": "1.30"}
    return Reference(case, inputs, {"y": outputs}, versions, Path("log"), lambda: opened)


def test_outputs_of_the_worst_inputs_are_kept_where_not_all_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = np.zeros((5, 2), np.float32)
    ours = expected + np.array([[0], [3], [1], [2], [0]], np.float32)
    bytes_of_an_input = 2 * expected.nbytes // 5
    monkeypatch.setattr(agreement, "_MOST_BYTES", 2 * bytes_of_an_input)
    recorder = Recorder("item", tmp_path, Place(Path("m.yaml"), 1))
    found = OutputComparison(compare({"y": ours}, {"y": expected}, USUAL), None)
    agreement.keep_differences(recorder, {"y": ours}, reference_of(expected), found)
    kept = np.load(recorder.folder / "outputs.npz")
    assert kept["input"].tolist() == [1, 3]
    assert kept["y"][:, 0].tolist() == [3, 2]
    assert kept["reference_y"].shape == (2, 2)
    lines = (recorder.folder / "differences.csv").read_text().splitlines()
    assert lines[0] == "input,label,deviation,difference,relative_difference"
    assert len(lines) == 6


def test_the_table_has_the_classes_and_divergences_of_a_classification(tmp_path: Path) -> None:
    scores = np.array([[0.2, 0.8], [0.4, 0.6]])
    recorder = Recorder("item", tmp_path, Place(Path("m.yaml"), 1))
    same = (scores, scores)
    ranking = rank([(same, same)])
    found = OutputComparison(compare({"y": scores}, {"y": scores}, USUAL), ranking)
    agreement.keep_differences(recorder, {"y": scores}, reference_of(scores), found)
    header = (recorder.folder / "differences.csv").read_text().splitlines()[0]
    assert header.endswith("relative_difference,class,reference_class,kl,js,hellinger")


def test_the_worst_input_is_explained_with_its_values() -> None:
    expected = np.array([[1.0, 2.0], [3.0, 4.0]])
    ours = np.array([[1.0, 2.0], [3.0, 4.5]])
    both = (ours, expected)
    differences = compare({"y": ours}, {"y": expected}, USUAL)
    found = OutputComparison(differences, rank([(both, both)]))
    tolerance = Tolerance(1e-4, 0.1)
    text = agreement.explain_worst({"y": ours}, reference_of(expected), found, tolerance)
    count = "1 of 2 inputs differ from it by more than 0.1 + 0.0001 |reference|"
    assert text.splitlines() == [
        f"the reference is onnxruntime 1.30 on cpu; {count}",
        "  worst input: number 1, best class 1, the reference's 1",
        "    y[1] is 4.5, the reference's 4",
    ]


def test_the_worst_input_is_named_by_its_file(tmp_path: Path) -> None:
    expected = np.array([[1.0], [3.0]])
    reference = reference_of(expected)
    files = ["cats/1.png", "dogs/2.png"]
    elements: Any = {"x": expected}
    dataset = Dataset("d", (), elements, np.array([0, 1]), files)
    reference = replace(reference, inputs=Inputs(dataset, {}, 2))
    ours = np.array([[1.0], [4.0]])
    found = OutputComparison(compare({"y": ours}, {"y": expected}, USUAL), None)
    text = agreement.explain_worst({"y": ours}, reference, found, USUAL)
    assert "worst input: number 1, dogs/2.png, label 1\n" in text
    recorder = Recorder("item", tmp_path, Place(Path("m.yaml"), 1))
    agreement.keep_differences(recorder, {"y": ours}, reference, found)
    lines = (recorder.folder / "differences.csv").read_text().splitlines()
    assert lines[0].startswith("input,file,label,")
    assert lines[2].startswith("1,dogs/2.png,1,")


def test_a_departure_that_is_not_known_says_why() -> None:
    search = DepartureSearch(None, "mxnet does not show its layers")
    assert agreement.explain_departure(search) == (
        "  the first layer that departs is not known: mxnet does not show its layers"
    )


def test_the_layer_that_departs_is_named_with_both_names() -> None:
    departure = Departure("dense", "b", 1.0, 1.0, after=("conv", "a"))
    assert agreement.explain_departure(DepartureSearch(departure)) == (
        "  first layer that departs: 'dense' (here 'b'), by up to 1 of 1; "
        "those up to 'conv' (here 'a') agree"
    )


def test_the_first_layer_of_all_may_depart() -> None:
    departure = Departure("conv", "conv", 0.5, 2.0, after=None)
    text = agreement.explain_departure(DepartureSearch(departure))
    assert text.endswith("'conv', by up to 0.5 of 2; none before it agrees")
