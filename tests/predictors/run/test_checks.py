"""Checks of a request that all predictors share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors import Tensor
from mlms_predictors._run.checks import (
    check,
    file_of,
    in_order,
    read_tensors,
    refuse_gpu,
    refuse_unknown,
)

NAMES = st.from_regex(r"[A-Za-z_][\w./:]{0,20}", fullmatch=True)
DTYPES = st.sampled_from(["float32", "int64", "bool"])
SHAPES = st.lists(st.none() | st.integers(0, 10**6), max_size=5).map(tuple)
TENSORS = st.builds(Tensor, NAMES, DTYPES, SHAPES)

IMAGE = Tensor("image", "float32", (None, 1, 8, 8))


def written(tensor: Tensor) -> str:
    sizes = ["?" if size is None else str(size) for size in tensor.shape]
    return f"{tensor.name} {tensor.dtype}[{','.join(sizes)}]"


@given(st.lists(TENSORS, min_size=1, max_size=4))
def test_tensors_are_read_as_they_are_written(tensors: list[Tensor]) -> None:
    text = "; ".join(written(tensor) for tensor in tensors)
    assert read_tensors(text) == tensors


def test_a_name_alone_is_enough() -> None:
    assert read_tensors("logits") == [Tensor("logits", "", ())]


@pytest.mark.parametrize(
    "text", ["", "image float32[a]", "image float32[1", "image;", "a b c", "image float32[-1]"]
)
def test_text_that_is_no_tensor_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no tensor; write it as: image float32\[\?,1,8,8\]"):
        read_tensors(text)


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no option 'mood'; this predictor knows mode, threads"):
        refuse_unknown({"mood": 1}, ("mode", "threads"))
    with pytest.raises(ValueError, match="this predictor knows none"):
        refuse_unknown({"mood": 1}, ())
    assert refuse_unknown({"mode": 1}, ("mode",)) == {"mode": 1}


def test_another_device_than_the_cpu_is_refused() -> None:
    refuse_gpu("cpu", "Caffe")
    with pytest.raises(ValueError, match="asked for cuda:0; Caffe runs on the cpu here"):
        refuse_gpu("cuda:0", "Caffe")


def test_a_missing_file_is_refused_with_what_it_should_be() -> None:
    files = {"graph": "net.prototxt"}
    assert file_of(files, "graph", "a prototxt") == "net.prototxt"
    with pytest.raises(ValueError, match="into the manifest's model: 'weights: a caffemodel'"):
        file_of(files, "weights", "a caffemodel")


@pytest.mark.parametrize(
    ("tensor", "shape"), [(IMAGE, (3, 1, 8, 8)), (Tensor("image", "float32", ()), (3,))]
)
def test_an_array_that_fits_is_taken(tensor: Tensor, shape: tuple[int, ...]) -> None:
    check([tensor], {"image": np.zeros(shape, np.float32)})


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((3, 1, 8), "float32"), ((3, 1, 8, 9), "float32"), ((3, 1, 8, 8), "float64")],
)
def test_an_array_of_another_shape_or_type_is_refused(shape: tuple[int, ...], dtype: str) -> None:
    with pytest.raises(ValueError, match="the model takes float32 any x 1 x 8 x 8"):
        check([IMAGE], {"image": np.zeros(shape, dtype)})


def test_a_missing_array_is_refused_with_the_names_that_were_given() -> None:
    expected = r"there is no array for input 'image'; given were \['picture'\]"
    with pytest.raises(ValueError, match=expected):
        check([IMAGE], {"picture": np.zeros(1)})


def test_arrays_come_in_the_order_of_the_inputs() -> None:
    mask = Tensor("mask", "bool", (2,))
    arrays = {"mask": np.zeros(2, bool), "image": np.zeros((1, 1, 8, 8), np.float32)}
    image, second = in_order([IMAGE, mask], arrays)
    assert image is arrays["image"]
    assert second is arrays["mask"]
    with pytest.raises(ValueError, match="there is no array for input 'image'"):
        in_order([IMAGE], {"mask": arrays["mask"]})
