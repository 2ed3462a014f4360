"""Messages of the Open Inference Protocol v2 over gRPC, and the tensors in them.

Their classes are made of ``inference.proto`` when this is imported: it has only what is read here,
and code that protoc generates is for a few versions of protobuf. They are in a pool of their own,
beside those of a client of the same protocol in this process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from numpy.typing import NDArray

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.predict.tensors import (
    TensorRequest,
    array_of_bytes,
    array_of_values,
    bytes_of,
    chosen,
    datatype_of,
    texts_of,
)

Array = NDArray[Any]

SERVICE = "inference.GRPCInferenceService"

_PROTO = Path(__file__).with_name("inference.proto")
_NAMED = re.compile(r"(message|oneof|service) (\w+) \{")
_FIELD = re.compile(r"(repeated |)(?:map<string, (\w+)>|(\w+)) (\w+) = (\d+);")
_SCALARS = ("bool", "bytes", "double", "float", "int32", "int64", "string", "uint32", "uint64")
_CONTENTS = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def _file_of(text: str) -> FileDescriptorProto:
    """Return the descriptor of a .proto file that has nothing but such lines as ours."""
    file = FileDescriptorProto(name=_PROTO.name, package="inference", syntax="proto3")
    nested: list[Any] = [file]
    oneof = False
    for line in map(str.strip, text.splitlines()):
        named = _NAMED.fullmatch(line)
        field = _FIELD.fullmatch(line)
        if named and named[1] == "message":
            parent = nested[-1]
            children = parent.message_type if parent is file else parent.nested_type
            nested.append(children.add(name=named[2]))
        elif named:
            oneof = named[1] == "oneof"
            if oneof:
                nested[-1].oneof_decl.add(name=named[2])
            nested.append(nested[-1])
        elif field:
            _add_field(nested[-1], field, oneof)
        elif line == "}":
            nested.pop()
            oneof = False
    return file


def _add_field(message: DescriptorProto, field: re.Match[str], in_oneof: bool) -> None:
    repeated, value, kind, name, number = field.groups()
    label = FieldDescriptorProto.LABEL_REPEATED if repeated or value else 1
    made = message.field.add(name=name, number=int(number), label=label)
    if in_oneof:
        made.oneof_index = 0
    if value:
        entry = message.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=1, type=_type("string"))
        entry.field.add(name="value", number=2, label=1, type_name=f".inference.{value}")
        kind = entry.name
    if kind in _SCALARS:
        made.type = _type(kind)
    else:
        made.type_name = kind


def _type(kind: str) -> Any:
    return FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")


def _classes() -> Mapping[str, Any]:
    file = _file_of(_PROTO.read_text(encoding="utf-8"))
    pool = DescriptorPool()
    pool.Add(file)
    return {
        message.name: GetMessageClass(pool.FindMessageTypeByName(f"inference.{message.name}"))
        for message in file.message_type
    }


MESSAGES = _classes()
"""The class of each message by its name."""


def parse(name: str, body: bytes) -> Any:
    """Return a message of bytes; raises DatasetError for what is none."""
    try:
        return MESSAGES[name].FromString(body)
    except DecodeError:
        raise DatasetError(f"the request is no {name} of the protocol") from None


def read_message(body: bytes) -> TensorRequest:
    """Return the request of a ModelInferRequest; raises DatasetError, which names the tensor."""
    message = parse("ModelInferRequest", body)
    raw = list(message.raw_input_contents)
    if raw and len(raw) != len(message.inputs):
        raise DatasetError(f"{len(raw)} contents are sent for {len(message.inputs)} inputs")
    inputs: dict[str, Array] = {}
    for number, tensor in enumerate(message.inputs):
        if tensor.name in inputs:
            raise DatasetError(f"two inputs are {tensor.name!r}; send each once")
        shape = list(tensor.shape)
        if raw:
            inputs[tensor.name] = array_of_bytes(tensor.name, tensor.datatype, shape, raw[number])
        else:
            inputs[tensor.name] = _array_of_contents(tensor, shape)
    if any("classification" in output.parameters for output in message.outputs):
        raise DatasetError("classification isn't offered; ask /api/v1/predict for labels")
    outputs = [(output.name, True) for output in message.outputs]
    return TensorRequest(message.id, inputs, outputs, binary=True)


def _array_of_contents(tensor: Any, shape: list[int]) -> Array:
    field = _CONTENTS.get(tensor.datatype)
    if field is None:
        problem = f"{tensor.datatype[:20]!r} has no contents"
        raise DatasetError(f"input {tensor.name!r}: {problem}; send raw_input_contents")
    values = list(getattr(tensor.contents, field))
    if field == "bytes_contents":
        return texts_of(tensor.name, values, shape)
    return array_of_values(tensor.name, tensor.datatype, shape, values)


def write_message(
    request: TensorRequest, outputs: Mapping[str, Array], names: Mapping[str, str]
) -> bytes:
    """Return the ModelInferResponse to a request; raises as ``tensors.write_answer`` does."""
    answer = MESSAGES["ModelInferResponse"](id=request.id, **names)
    for name, _ in chosen(request, outputs):
        array = outputs[name]
        answer.outputs.add(name=name, datatype=datatype_of(name, array), shape=array.shape)
        answer.raw_output_contents.append(bytes_of(array))
    found: bytes = answer.SerializeToString()
    return found
