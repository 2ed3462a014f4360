"""Tensors of the Open Inference Protocol: what is written is read, and all else is refused."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.predict.messages import MESSAGES, read_message, write_message
from pytest_mlms.predict.tensors import DATATYPES, TensorRequest, read_request, write_answer

DTYPES = [name for name in DATATYPES if name != "string"]
NUMBERS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays(dtype, array_shapes(min_dims=1, min_side=0, max_side=4))
)
TEXTS = arrays("U5", array_shapes(min_dims=1, max_side=3), elements=st.text(max_size=5))
NAMES = {"model_name": "m", "model_version": "v"}
ONE = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}


@given(array=st.one_of(NUMBERS, TEXTS), is_binary=st.booleans())
def test_what_is_answered_is_read_as_a_request_bit_for_bit(array: Any, is_binary: bool) -> None:
    request = TensorRequest("7", {}, binary=is_binary)
    body, json_bytes = write_answer(request, {"x": array}, NAMES)
    content = json.loads(body[:json_bytes])
    assert (content["id"], content["model_name"], content["model_version"]) == ("7", "m", "v")
    if not is_binary and array.dtype.kind == "f" and not np.isfinite(array).all():
        assert None in content["outputs"][0]["data"]
        return
    content["inputs"] = content.pop("outputs")
    text = json.dumps(content).encode()
    read = read_request(text + body[json_bytes or len(body) :], len(text)).inputs["x"]
    assert (read.dtype.kind, read.shape) == (array.dtype.kind, array.shape)
    assert read.tolist() == array.tolist() or read.tobytes() == array.tobytes()


@given(array=st.one_of(NUMBERS, TEXTS))
def test_a_message_is_read_as_it_was_written(array: Any) -> None:
    answer = MESSAGES["ModelInferResponse"].FromString(
        write_message(TensorRequest("7", {}), {"x": array}, NAMES)
    )
    (output,) = answer.outputs
    request = MESSAGES["ModelInferRequest"](raw_input_contents=answer.raw_output_contents)
    request.inputs.add(name=output.name, datatype=output.datatype, shape=output.shape)
    read = read_message(request.SerializeToString()).inputs["x"]
    assert (read.dtype.kind, read.shape) == (array.dtype.kind, array.shape)
    assert read.tolist() == array.tolist() or read.tobytes() == array.tobytes()


WRONG: list[tuple[Any, str]] = [
    ([], "the request is no object"),
    ({}, "'inputs' is no list"),
    ({"inputs": [1]}, "one of 'inputs' is no object"),
    ({"inputs": [{}]}, "a tensor has no name"),
    ({"inputs": [ONE, ONE]}, "two of 'inputs' have one name"),
    ({"inputs": [{**ONE, "shape": [3]}]}, r"2 values are no \[3\]"),
    ({"inputs": [{**ONE, "shape": [-2]}]}, r"its shape is \[-2\]"),
    ({"inputs": [{**ONE, "shape": [True]}]}, r"its shape is \[True\]"),
    ({"inputs": [{**ONE, "shape": [1] * 99}]}, r"its shape is \["),
    ({"inputs": [{**ONE, "shape": [0, 1 << 39, 1 << 39], "data": []}]}, r"its shape is \[0, 5"),
    ({"inputs": [{**ONE, "shape": "\ud800"}]}, r"its shape is '\\ud800'"),
    ({"inputs": [{**ONE, "datatype": "BF16"}]}, "there is no type 'BF16'"),
    ({"inputs": [{**ONE, "datatype": "UINT8", "data": [1, 256]}]}, "a value is beyond UINT8"),
    ({"inputs": [{**ONE, "data": [1, 1e39]}]}, "a value is beyond FP32"),
    ({"inputs": [{**ONE, "datatype": "FP16", "data": [1, 65520]}]}, "a value is beyond FP16"),
    ({"inputs": [{**ONE, "datatype": "INT32", "data": [1, 2.0]}]}, "there is float64"),
    ({"inputs": [{**ONE, "datatype": "INT64", "data": [1, 1 << 70]}]}, "there is object"),
    ({"inputs": [{**ONE, "data": [[1], [2, 3]]}]}, "its lists are no array"),
    ({"inputs": [{**ONE, "data": ["1", "2"]}]}, "it has texts; they are BYTES"),
    ({"inputs": [{**ONE, "data": [None, 1]}]}, "there is object"),
    ({"inputs": [{**ONE, "datatype": "BYTES"}]}, "BYTES are texts"),
    ({"inputs": [{**ONE, "datatype": "BYTES", "data": ["a\0", ""]}]}, "ends in NUL"),
    ({"inputs": [{**ONE, "parameters": {"binary_data_size": 8}}]}, "no binary data of 8 bytes"),
    ({"inputs": [{**ONE, "parameters": {"shared_memory_region": "r"}}]}, "shared memory"),
    ({"inputs": [ONE], "outputs": [{"name": "y", "parameters": {"classification": 3}}]}, "classi"),
]


@pytest.mark.parametrize(("content", "problem"), WRONG)
def test_what_is_no_request_is_told(content: Any, problem: str) -> None:
    with pytest.raises(DatasetError, match=problem):
        read_request(json.dumps(content).encode(), None)


def test_deep_and_huge_requests_are_refused_before_they_take_memory() -> None:
    deep = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": %s%s}]}'
    for depth in (40, 100_000):
        with pytest.raises(DatasetError):
            read_request(deep % (b"[" * depth, b"]" * depth), None)
    texts = ["a" * 1_000_000] + [""] * 999
    one = {"name": "x", "datatype": "BYTES", "shape": [1000], "data": texts}
    with pytest.raises(DatasetError, match="1000 texts of up to 1000000 bytes"):
        read_request(json.dumps({"inputs": [one]}).encode(), None)
    with pytest.raises(DatasetError, match="correct its length"):
        read_request(b"{}", 3)
    with pytest.raises(DatasetError, match="2 bytes of binary data belong to no input"):
        read_request(b'{"inputs": []}xx', 14)


def test_an_output_that_is_not_there_or_too_large_is_told() -> None:
    outputs = {"y": np.broadcast_to(np.zeros(1), (1 << 26,))}
    with pytest.raises(DatasetError, match="there is no output 'z'; there are y"):
        write_answer(TensorRequest("", {}, [("z", True)]), outputs, NAMES)
    with pytest.raises(DatasetError, match="the outputs may have 536,870,912 bytes"):
        write_answer(TensorRequest("", {}, binary=True), outputs, NAMES)


@pytest.mark.parametrize("value", [np.float32(-1.2345679e-38), "\U0001f600", "a"])
@pytest.mark.parametrize("is_binary", [False, True])
def test_an_answer_is_as_large_as_its_bound_says_at_most(
    value: Any, is_binary: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = TensorRequest("", {}, binary=is_binary)
    outputs = {"y": np.full(1000, value)}
    size = len(write_answer(request, outputs, NAMES)[0])
    monkeypatch.setattr(import_module("pytest_mlms.predict.tensors"), "_MOST_BYTES", size - 500)
    with pytest.raises(DatasetError, match="ask for binary data or some of them"):
        write_answer(request, outputs, NAMES)


def test_our_messages_are_those_of_a_client_that_others_wrote() -> None:
    theirs = import_module("tritonclient.grpc.service_pb2").DESCRIPTOR
    for name, message in MESSAGES.items():
        _compare(message.DESCRIPTOR, theirs.message_types_by_name[name])


def _compare(ours: Any, theirs: Any) -> None:
    """Hold each field of a message, and of those in it, against the client's."""
    for field in ours.fields:
        other = theirs.fields_by_number[field.number]
        assert (field.name, field.type) == (other.name, other.type), ours.full_name
        assert field.is_repeated == other.is_repeated
        if field.message_type is not None:
            assert field.message_type.full_name == other.message_type.full_name
    for nested in ours.nested_types:
        _compare(nested, theirs.nested_types_by_name[nested.name])
