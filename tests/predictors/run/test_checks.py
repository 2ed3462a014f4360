"""What predictors ask of a request."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors import Tensor
from mlms_predictors._run.checks import check, read_tensors, refuse_unknown

SIZES = st.lists(st.none() | st.integers(0, 10**6), max_size=5)
NAMES = st.from_regex(r"[A-Za-z_][\w./:]{0,20}", fullmatch=True)


@given(
    st.lists(
        st.tuples(NAMES, st.sampled_from(["float32", "int64", "bool"]), SIZES),
        min_size=1,
        max_size=4,
    )
)
def test_tensors_are_read_as_they_are_written(
    tensors: list[tuple[str, str, list[int | None]]],
) -> None:
    def shown(size: int | None) -> str:
        return "?" if size is None else str(size)

    text = "; ".join(
        f"{name} {dtype}[{','.join(map(shown, shape))}]" for name, dtype, shape in tensors
    )
    assert read_tensors(text) == [
        Tensor(name, dtype, tuple(shape)) for name, dtype, shape in tensors
    ]


@pytest.mark.parametrize(
    "text", ["", "image float32[a]", "image float32[1", "image;", "a b c", "image float32[-1]"]
)
def test_what_is_no_tensor_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no tensor; write it as: image float32\[\?,1,8,8\]"):
        read_tensors(text)


def test_a_name_alone_is_enough() -> None:
    assert read_tensors("logits") == [Tensor("logits", "", ())]


def test_an_option_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="no option 'mood'; this predictor knows mode, threads"):
        refuse_unknown({"mood": 1}, ("mode", "threads"))
    assert refuse_unknown({"mode": 1}, ("mode",)) == {"mode": 1}


def test_arrays_must_be_what_the_model_takes() -> None:
    inputs = [Tensor("image", "float32", (None, 1, 8, 8))]
    check(inputs, {"image": np.zeros((3, 1, 8, 8), np.float32)})
    check([Tensor("image", "float32", ())], {"image": np.zeros(3, np.float32)})
    for wrong in (
        np.zeros((3, 1, 8), np.float32),
        np.zeros((3, 1, 8, 9), np.float32),
        np.zeros((3, 1, 8, 8)),
    ):
        with pytest.raises(ValueError, match="the model takes float32 any x 1 x 8 x 8"):
            check(inputs, {"image": wrong})
    with pytest.raises(
        ValueError, match="there is no array for input 'image'; given were \\['picture'\\]"
    ):
        check(inputs, {"picture": np.zeros(1)})
