"""Frames: they are read as they were written."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors._run.protocol import ProtocolError, encode, read_frame, text_array

DTYPES = ["float32", "float64", "int8", "uint16", "int64", "bool", "complex64"]
NAMES = st.text(min_size=1, max_size=8)


@st.composite
def named_arrays(draw: Any) -> tuple[str, np.ndarray]:
    name = draw(NAMES)
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    size = int(np.prod(shape))
    return name, np.arange(size).astype(dtype).reshape(shape)


def write(header: dict[str, Any], *arrays: tuple[str, np.ndarray]) -> bytes:
    buffers = encode(header, arrays)
    return b"".join(bytes(buffer) for buffer in buffers)


@given(st.lists(named_arrays(), max_size=3), st.integers(-(2**63), 2**63 - 1))
def test_a_frame_is_read_as_it_was_written(
    arrays: list[tuple[str, np.ndarray]], number: int
) -> None:
    frame = write({"type": "predict", "number": number}, *arrays)
    stream = io.BytesIO(frame + b"next")
    header, found = read_frame(stream)
    assert header == {"type": "predict", "number": number}
    assert stream.read() == b"next"
    assert len(found) == len(arrays)
    for (read_name, read), (name, array) in zip(found, arrays, strict=True):
        assert read_name == name
        assert read.dtype == array.dtype
        assert np.array_equal(read, array)


GRID = np.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    "array",
    [
        GRID.T[::2],
        GRID[:, :1],
        GRID[:, 1],
        GRID.reshape(-1)[::-2],
        np.broadcast_to(np.float32(7), (5, 2)),
        np.asfortranarray(GRID),
        (GRID + 1j * GRID).imag,
        GRID[:0, ::2],
        np.array(3),
    ],
    ids=["transposed", "column", "row", "backwards", "repeated", "fortran", "part", "empty", "one"],
)
def test_an_array_that_is_not_contiguous_is_sent_in_order(array: np.ndarray) -> None:
    stream = io.BytesIO(write({"type": "x"}, ("a", array)))
    _, found = read_frame(stream)
    assert found[0][1].shape == array.shape
    assert np.array_equal(found[0][1], array)


@given(
    st.lists(st.text(max_size=5), min_size=1, max_size=6),
    st.sampled_from([(-1,), (1, -1), (-1, 1), (1, 1, -1)]),
)
def test_texts_are_read_as_they_were_written(texts: list[str], shape: tuple[int, ...]) -> None:
    array = np.array([text.replace("\0", "") for text in texts]).reshape(shape)
    _, [(name, found)] = read_frame(io.BytesIO(write({"type": "x"}, ("names", array))))
    assert (name, found.dtype, found.tolist()) == ("names", array.dtype, array.tolist())
    for own in (array.astype(object), np.char.encode(array, "utf-8"), array.astype(object)[:1]):
        assert text_array(own).tolist() == array[: len(own)].tolist()


def test_only_numbers_and_texts_are_sent() -> None:
    with pytest.raises(
        ProtocolError, match="'maps' has dtype object; frames carry numbers and tex"
    ):
        encode({"type": "x"}, [("maps", np.array([{}]))])
    with pytest.raises(TypeError, match="an output has a dict, not a number or a text"):
        text_array(np.array(["a", {}]))


def test_texts_that_numpy_would_change_or_cannot_read_are_none() -> None:
    assert text_array([b"\xff", "ÿ"]).tolist() == ["\udcff", "ÿ"]
    assert (text_array("").shape, text_array(np.empty((0, 2), object)).shape) == ((), (0, 2))
    with pytest.raises(ValueError, match="a text that ends in NUL"):
        text_array(["a\0"])
    frame = write({"type": "x"}, ("names", np.array(["ab"])))
    with pytest.raises(ProtocolError, match="expected a text, found the character 4294967295"):
        read_frame(io.BytesIO(frame[:-4] + b"\xff" * 4))


@pytest.mark.parametrize(
    "line", [b"chatter\n", b"{}\n", b'{"type": 1, "arrays": []}\n', b"[1]\n", b"\xff\n"]
)
def test_other_output_is_no_frame(line: bytes) -> None:
    with pytest.raises(ProtocolError, match="expected a frame, found"):
        read_frame(io.BytesIO(line))


@pytest.mark.parametrize("missing", [1, 24])
def test_a_stream_that_ends_inside_a_frame_has_ended(missing: int) -> None:
    frame = write({"type": "x"}, ("a", np.zeros(3)))
    with pytest.raises(EOFError):
        read_frame(io.BytesIO(frame[:-missing]))


def test_a_stream_without_a_frame_has_ended() -> None:
    with pytest.raises(EOFError):
        read_frame(io.BytesIO())
