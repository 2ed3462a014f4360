"""Frames: what is read is what was written."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors._run.protocol import ProtocolError, encode, read_frame

DTYPES = st.sampled_from(["float32", "float64", "int8", "uint16", "int64", "bool", "complex64"])
SHAPES = st.lists(st.integers(0, 4), max_size=4)
NAMES = st.text(min_size=1, max_size=8)


def frame(header: dict[str, object], arrays: list[tuple[str, np.ndarray]]) -> bytes:
    return b"".join(bytes(buffer) for buffer in encode(header, arrays))


@given(st.lists(st.tuples(NAMES, DTYPES, SHAPES), max_size=3), st.integers())
def test_a_frame_is_read_as_it_was_written(
    specs: list[tuple[str, str, list[int]]], number: int
) -> None:
    arrays = []
    for name, dtype, shape in specs:
        array = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
        arrays.append((name, array))
    stream = io.BytesIO(frame({"type": "predict", "number": number}, arrays) + b"next")
    header, found = read_frame(stream)
    assert header == {"type": "predict", "number": number}
    assert [name for name, _ in found] == [name for name, _ in arrays]
    for (_, read), (_, written) in zip(found, arrays, strict=True):
        assert read.dtype == written.dtype
        assert np.array_equal(read, written)
    assert stream.read() == b"next"


def test_an_array_that_is_not_contiguous_is_sent_in_order() -> None:
    array = np.arange(12).reshape(3, 4).T[::2]
    _, found = read_frame(io.BytesIO(frame({"type": "x"}, [("a", array)])))
    assert np.array_equal(found[0][1], array)


def test_only_numbers_are_sent() -> None:
    with pytest.raises(ProtocolError, match="'names' has dtype <U1; frames carry numbers only"):
        encode({"type": "x"}, [("names", np.array(["a"]))])


@pytest.mark.parametrize(
    "line", [b"chatter\n", b"{}\n", b'{"type": 1, "arrays": []}\n', b"[1]\n", b"\xff\n"]
)
def test_other_output_is_no_frame(line: bytes) -> None:
    with pytest.raises(ProtocolError, match="expected a frame, found"):
        read_frame(io.BytesIO(line))


@pytest.mark.parametrize("length", [0, -1])
def test_the_end_of_the_stream_is_the_end(length: int) -> None:
    data = frame({"type": "x"}, [("a", np.zeros(3))])
    with pytest.raises(EOFError):
        read_frame(io.BytesIO(data[:length]))
