"""Signatures of models, and tensors by the names of a manifest."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlms_predictors import Tensor

from pytest_mlms.core.errors import OutputError
from pytest_mlms.manifest import load
from pytest_mlms.measure.agent.signature import (
    NamedTensors,
    check_signature,
    named_tensors,
    ordered_batch,
)
from tests.support.agents import open_faulty
from tests.support.cases import digits_case, faulty_case
from tests.support.small_manifest import errors_of, small, write

IMAGE = Tensor("image", "float32", (None, 1, 8, 8))
MASK = Tensor("mask", "bool", (None, 8))
LOGITS = Tensor("logits", "float32", (None, 10))


def test_a_batch_is_put_into_the_order_of_the_model() -> None:
    arrays = {"mask": np.zeros((2, 8), bool), "image": np.zeros((2, 1, 8, 8), np.float32)}
    batch = ordered_batch([IMAGE, MASK], arrays)
    assert [name for name, _ in batch] == ["image", "mask"]


def test_a_model_that_declares_no_shape_takes_any() -> None:
    tensor = Tensor("x", "float32", ())
    batch = ordered_batch([tensor], {"x": np.zeros((2, 3), np.float32)})
    assert batch[0][1].shape == (2, 3)


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((2, 1, 8), np.float32, "float32 2 x 1 x 8, and the model takes float32 any x 1 x 8 x 8"),
        ((2, 1, 8, 9), np.float32, "make float32 2 x 1 x 8 x 9, and the model"),
        ((2, 1, 8, 8), np.float64, "make float64 2 x 1 x 8 x 8, and the model takes float32"),
    ],
)
def test_an_array_that_does_not_fit_is_shown_beside_what_does(
    shape: tuple[int, ...], dtype: type, message: str
) -> None:
    with pytest.raises(OutputError, match=message):
        ordered_batch([IMAGE], {"image": np.zeros(shape, dtype)})


def test_a_missing_array_is_named_with_those_that_are_there() -> None:
    with pytest.raises(OutputError, match=r"no array for input 'image'; given were \['picture'\]"):
        ordered_batch([IMAGE], {"picture": np.zeros(1, np.float32)})


def test_a_signature_that_the_framework_does_not_tell_is_shown_as_unknown() -> None:
    script = Tensor("input", "float32", ())
    output = Tensor("output", "", ())
    with pytest.raises(OutputError, match=r"input \(float32 of unknown shape\)"):
        check_signature(digits_case().loaded, [script], [output])
    with pytest.raises(OutputError, match=r"output \(type and shape unknown\)"):
        check_signature(digits_case().loaded, [IMAGE], [output])


@pytest.mark.parametrize("dtype", ["seq(map(int64,tensor(float)))", "string"])
def test_an_output_that_is_no_array_is_refused_with_an_advice(dtype: str) -> None:
    output = Tensor("logits", dtype, ())
    message = rf"output 'logits' is {re.escape(dtype)}, not an array .*'zipmap': False"
    with pytest.raises(OutputError, match=message):
        check_signature(digits_case().loaded, [IMAGE], [output])
    check_signature(digits_case().loaded, [IMAGE], [LOGITS, Tensor("label", dtype, ())])


def test_an_output_of_texts_is_compared_as_it_is_and_nothing_else(tmp_path: Path) -> None:
    texts = Tensor("y", "string", (None,))
    for steps, task, is_taken in (([], "inference", True), (["softmax"], "inference", False)):
        outputs = [{"name": "y", "type": "tensor", "steps": steps}]
        loaded = load(write(tmp_path, small(outputs=outputs, task=task, thresholds={})))
        inputs = [Tensor(spec.name, spec.element_type, ()) for spec in loaded.manifest.inputs]
        with (
            contextlib.nullcontext() if is_taken else pytest.raises(OutputError, match="as they a")
        ):
            check_signature(loaded, inputs, [texts])


def test_a_model_may_have_more_outputs_than_the_manifest() -> None:
    check_signature(digits_case().loaded, [IMAGE], [LOGITS, MASK])


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ([IMAGE, MASK], [LOGITS], "the model has other inputs than the manifest"),
        ([MASK], [LOGITS], r"the model:    mask \(bool any x 8\)"),
        ([IMAGE], [MASK], "the model has other outputs than the manifest"),
    ],
)
def test_other_names_than_the_manifests_are_refused(
    inputs: list[Tensor], outputs: list[Tensor], message: str
) -> None:
    with pytest.raises(OutputError, match=message):
        check_signature(digits_case().loaded, inputs, outputs)


A = Tensor("a", "float32", (None, 3))
B = Tensor("b", "int64", ())


def outputs_of(folder: Path, *outputs: tuple[str, int | None]) -> NamedTensors:
    """Return the tensors a and b by the names of a manifest with these outputs."""
    parts = []
    for name, position in outputs:
        place = {} if position is None else {"position": position}
        parts.append({"name": name, "type": "tensor", **place})
    loaded = load(write(folder, small(outputs=parts)))
    return named_tensors(loaded, "outputs", [A, B])


def test_a_position_gives_a_tensor_the_name_of_the_manifest(tmp_path: Path) -> None:
    tensors, own_names = outputs_of(tmp_path, ("second", 1))
    assert tensors == (A, B._replace(name="second"))
    assert own_names == {"second": "b"}


def test_names_may_be_exchanged(tmp_path: Path) -> None:
    tensors, own_names = outputs_of(tmp_path, ("a", 1), ("b", 0))
    assert [(tensor.name, tensor.dtype) for tensor in tensors] == [("b", "float32"), ("a", "int64")]
    assert own_names == {"a": "b", "b": "a"}


def test_a_name_that_is_right_stays(tmp_path: Path) -> None:
    assert outputs_of(tmp_path, ("a", 0), ("b", None)) == ((A, B), {})


def test_a_name_of_another_tensor_is_refused(tmp_path: Path) -> None:
    message = r"m\.yaml:\d+: the model has 'a' at another position of its outputs; choose another"
    with pytest.raises(OutputError, match=message):
        outputs_of(tmp_path, ("a", 1))


def test_a_position_that_the_model_does_not_have_is_an_error_of_its_line(tmp_path: Path) -> None:
    message = r"m\.yaml:\d+: the model has no 2 among its outputs; write one of 0 \(a\), 1 \(b\)"
    with pytest.raises(OutputError, match=message):
        outputs_of(tmp_path, ("c", 2))


@pytest.mark.parametrize(
    ("second", "message"),
    [(0, "'x' has this position, too; correct one of them"), (-1, "greater than or equal to 0")],
)
def test_positions_are_distinct_numbers_from_0(tmp_path: Path, second: int, message: str) -> None:
    form: dict[str, Any] = {"type": "tensor", "element_type": "float32"}
    inputs = [{"name": "x", "position": 0, **form}, {"name": "y", "position": second, **form}]
    (error,) = errors_of(tmp_path, small(inputs=inputs))
    assert message in error


def test_requests_have_the_names_of_the_model(tmp_path: Path) -> None:
    case = faulty_case()
    manifest = case.loaded.manifest
    changed = manifest.model_copy(
        update={
            "inputs": [manifest.inputs[0].model_copy(update={"name": "x", "position": 0})],
            "outputs": [manifest.outputs[0].model_copy(update={"name": "y", "position": 0})],
        }
    )
    case = replace(case, loaded=replace(case.loaded, manifest=changed))
    batch = {"x": np.zeros((4, 1, 8, 8), np.float32)}
    with open_faulty(tmp_path, case, answer=7, layers="stepwise", pages=1) as predictor:
        assert predictor.predict(batch)["y"].argmax(axis=1).tolist() == [7, 7, 7, 7]
        run = predictor.run("offline", [batch], seconds=0.0, least=2, longest=60.0)
        assert list(run.outputs) == ["y"]
        predictor.bind([batch])
        assert list(predictor.turn(outputs=True).outputs) == ["y"]
        assert [len(profile.layers) for profile in predictor.profile(batch, 2)] == [2, 2]
