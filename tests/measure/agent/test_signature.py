"""Tests of a model's signature."""

from __future__ import annotations

import re

import numpy as np
import pytest
from mlms_predictors import Tensor

from pytest_mlms.core.errors import OutputError
from pytest_mlms.measure.agent.signature import check_signature, ordered_batch
from tests.support.cases import digits_case

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
