"""What is kept of an agreement, and what is said of its layers where they can't be had."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_mlms.agent.process import Refused
from pytest_mlms.errors import AgentError, Unavailable
from pytest_mlms.evaluate.agreement import Tolerance, compare
from pytest_mlms.evaluate.reference import Inputs, Reference
from pytest_mlms.recorder import Recorder
from pytest_mlms.records import Place
from pytest_mlms.report import agreement as differences

USUAL = Tolerance(1e-4, 1e-5)
LAYERS = [("conv", np.ones((1, 2, 4, 4))), ("dense", np.ones((1, 3)))]
CASE: Any = SimpleNamespace(stack=SimpleNamespace(label="mxnet", framework="mxnet"), device="cpu")


class Model:
    """A predictor that gives these layers, or raises this."""

    def __init__(self, layers: Any) -> None:
        self.layers = layers

    def inner(self, batch: Any) -> Any:
        if isinstance(self.layers, Exception):
            raise self.layers
        return self.layers


def reference(outputs: Any, model: Model | Exception | None = None) -> Reference:
    @contextlib.contextmanager
    def open_() -> Iterator[Any]:
        if isinstance(model, Exception):
            raise model
        yield model

    inputs = Inputs(None, {"x": np.zeros((len(outputs), 1), np.float32)}, len(outputs))
    case: Any = SimpleNamespace(
        stack=SimpleNamespace(label="onnxruntime", framework="onnxruntime"), device="cpu"
    )
    return Reference(case, inputs, {"y": outputs}, {"onnxruntime": "1.30"}, Path("log"), open_)


def test_outputs_of_the_worst_inputs_are_kept_where_not_all_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = np.zeros((5, 2), np.float32)
    ours = expected + np.array([[0], [3], [1], [2], [0]], np.float32)
    monkeypatch.setattr(differences, "_MOST_BYTES", 2 * expected.nbytes * 2 // 5)
    recorder = Recorder("item", tmp_path, Place(Path("m.yaml"), 1))
    found = compare({"y": ours}, {"y": expected}, USUAL)
    differences.keep_differences(recorder, {"y": ours}, reference(expected), found, None)
    kept = np.load(recorder.folder / "outputs.npz")
    assert kept["input"].tolist() == [1, 3]
    assert kept["y"][:, 0].tolist() == [3, 2]
    assert kept["reference_y"].shape == (2, 2)
    lines = (recorder.folder / "differences.csv").read_text().splitlines()
    assert lines[0] == "input,label,deviation,difference,relative_difference"
    assert len(lines) == 6


@pytest.mark.parametrize(
    ("ours", "theirs", "says"),
    [
        (LAYERS, LAYERS, "of the layers that can be matched, none does"),
        ([("other", np.ones(7))], LAYERS, "of the layers that can be matched, none does"),
        (Refused("no", "NotImplementedError"), LAYERS, "not known: mxnet does not show its layers"),
        (
            LAYERS,
            Refused("no", "NotImplementedError"),
            "not known: onnxruntime does not show its layers",
        ),
        (
            AgentError("the agent (process 7) was killed"),
            LAYERS,
            "not known: the agent (process 7) was killed",
        ),
    ],
)
def test_layers_that_can_not_be_compared_say_why(ours: Any, theirs: Any, says: str) -> None:
    model: Any = Model(ours)
    text = differences.explain_layers(
        CASE, model, reference(np.zeros((1, 1)), Model(theirs)), 0, USUAL
    )
    assert says in text


def test_a_reference_that_is_gone_does_not_hide_the_failure() -> None:
    model: Any = Model(LAYERS)
    gone = reference(np.zeros((1, 1)), Unavailable("no memory left on the device"))
    assert "not known: no memory left" in differences.explain_layers(CASE, model, gone, 0, USUAL)


def test_the_layer_that_departs_is_named_with_both_names() -> None:
    model: Any = Model([("a", LAYERS[0][1]), ("b", LAYERS[1][1] + 1)])
    text = differences.explain_layers(
        CASE, model, reference(np.zeros((1, 1)), Model(LAYERS)), 0, USUAL
    )
    assert (
        text
        == "  first layer that departs: 'dense' (here 'b'), by up to 1 of 1; those up to 'conv' (here 'a') agree"
    )
