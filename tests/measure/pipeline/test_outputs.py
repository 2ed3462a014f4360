"""Output steps, the best classes, and files of labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pytest_mlms.core.errors import DatasetError, OutputError
from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.pipeline.observers import observe
from pytest_mlms.measure.pipeline.outputs import postprocess, read_labels, table_of, top_k

SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 6))
LOGITS = arrays(np.float64, SHAPES, elements=st.floats(-1e4, 1e4))


def spec(*steps: Any) -> Output:
    fields = {"name": "y", "type": "classification", "steps": list(steps)}
    return Output.model_validate(fields)


@given(LOGITS)
def test_softmax_makes_probabilities_of_logits(logits: np.ndarray) -> None:
    scores = postprocess(logits, spec("softmax"))
    assert scores.shape == logits.shape
    assert np.allclose(scores.sum(axis=-1), 1)
    assert np.all(scores >= 0)


def test_softmax_is_e_to_the_logit_as_a_share_of_all() -> None:
    scores = postprocess(np.log([[1.0, 3.0]]), spec("softmax"))
    assert scores == pytest.approx(np.array([[0.25, 0.75]]))


def test_softmax_keeps_float32() -> None:
    logits = np.zeros((1, 2), np.float32)
    assert postprocess(logits, spec("softmax")).dtype == np.float32


def test_other_steps_leave_the_scores() -> None:
    logits = np.array([[1.0, 3.0]])
    assert postprocess(logits, spec({"top_k": {"k": 1}})) is logits


def test_steps_are_observed() -> None:
    names = []
    with observe(lambda name, start, end: names.append(name)):
        postprocess(np.zeros((1, 2)), spec("softmax", {"top_k": {"k": 1}}))
    assert names == ["softmax"]


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1, 1), (2, 1, 1, 3), (2, 1, 3)])
def test_axes_of_one_are_left_out_beside_the_classes(shape: tuple[int, ...]) -> None:
    values = np.arange(6.0).reshape(shape)
    assert table_of(spec(), values, 2).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_background_is_no_class() -> None:
    values = np.array([[9.0, 1.0, 3.0], [0.0, 2.0, 1.0]])
    output = spec({"drop_background": {"index": 0}}, "softmax")
    table = table_of(output, values.reshape(2, 3, 1, 1), 2)
    assert table.tolist() == [[1, 3], [2, 1]]
    assert postprocess(table, output).sum(axis=1) == pytest.approx(np.ones(2))


def test_a_background_beyond_the_classes_is_refused() -> None:
    message = "output 'y' has 3 classes, and the background is number 3; correct it"
    with pytest.raises(OutputError, match=message):
        table_of(spec({"drop_background": {"index": 3}}), np.zeros((2, 3)), 2)


@pytest.mark.parametrize("shape", [(2,), (3, 2), (2, 3, 2), ()])
def test_another_output_is_refused_with_an_advice(shape: tuple[int, ...]) -> None:
    message = r"output 'y' of 2 inputs is \(.*\); expected inputs x classes; .*'type: tensor'"
    with pytest.raises(OutputError, match=message):
        table_of(spec(), np.zeros(shape), 2)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.bool_, np.int64, np.float16])
def test_scores_of_every_type_are_ordered(dtype: type) -> None:
    scores: Any = np.array([[0, 1, 0]]).astype(dtype)
    assert top_k(scores, 3).tolist() == [[1, 0, 2]]


@given(LOGITS, st.integers(1, 6))
def test_top_k_is_best_first_and_of_equals_the_lower_index(values: np.ndarray, k: int) -> None:
    for row, best in zip(values, top_k(values, k), strict=True):
        indices = range(len(row))
        expected = sorted(indices, key=lambda index: (-row[index], index))
        assert best.tolist() == expected[:k]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "labels.txt"


def test_labels_are_the_lines_that_are_not_empty(path: Path) -> None:
    path.write_text("cat\ndog\n\n")
    assert read_labels(path, 2) == ["cat", "dog"]


def test_labels_must_be_as_many_as_the_classes(path: Path) -> None:
    path.write_text("cat\ndog\n")
    message = r"labels\.txt has 2 labels, and the model 10 classes; write one a line"
    with pytest.raises(DatasetError, match=message):
        read_labels(path, 10)


def test_labels_that_are_not_utf_8_are_an_error(path: Path) -> None:
    path.write_bytes("crème\n".encode("latin-1"))
    message = r"labels\.txt can't be read: .*; save it as UTF-8, one label a line"
    with pytest.raises(DatasetError, match=message):
        read_labels(path, 1)
