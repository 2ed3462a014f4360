from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import softmax as scipy_softmax

from pytest_mlms.errors import DatasetError
from pytest_mlms.pipeline.outputs import read_labels, softmax, top_k

logits = arrays(
    np.float64, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=st.floats(-1e4, 1e4)
)


@given(logits)
def test_softmax_is_scipys(values: np.ndarray) -> None:
    assert np.allclose(softmax(values), scipy_softmax(values, axis=-1))


@given(logits, st.integers(1, 6))
def test_top_k_is_best_first_and_of_equals_the_lower_index(values: np.ndarray, k: int) -> None:
    for row, best in zip(values.tolist(), top_k(values, k).tolist(), strict=True):
        assert best == sorted(range(len(row)), key=lambda i: (-row[i], i))[:k]


def test_labels_must_be_as_many_as_the_classes(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text("cat\ndog\n\n")
    assert read_labels(path, 2) == ["cat", "dog"]
    with pytest.raises(
        DatasetError, match=r"labels\.txt has 2 labels, and the model 10 classes; write one a line"
    ):
        read_labels(path, 10)
    path.write_bytes("crème\n".encode("latin-1"))
    with pytest.raises(
        DatasetError, match=r"labels\.txt can't be read: .*; save it as UTF-8, one label a line"
    ):
        read_labels(path, 1)
