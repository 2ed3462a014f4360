"""Tensors of the Open Inference Protocol v2 over HTTP, as JSON and with its binary data.

Both are of the published protocol: a request has tensors as the model takes them, behind the
manifest's steps, and the answer those that it gives, before the output steps. Binary data stands
behind the JSON, in the order of the tensors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mlms_predictors import Tensor
from numpy.typing import NDArray

from pytest_mlms.core.errors import DatasetError

Array = NDArray[Any]

DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "string": "BYTES",
}
"""The protocol's name of each type of elements that models have here."""

_DTYPES = {name: dtype for dtype, name in DATATYPES.items()}
_MOST_BYTES = 128 << 20  # of all outputs
_MOST_TEXT_BYTES = 256 << 20  # of an array of texts, whose elements all have room for the longest
_MOST_SIZES = 32  # axes
_LENGTH = 4  # bytes before a text, or beside one in JSON
_MOST_ESCAPE = 3  # bytes of JSON for one in memory: a character of 4 may be two escapes
_MOST_DIGITS = 25  # characters of a number in JSON: -2.2250738585072014e-308 and a comma


@dataclass(frozen=True)
class TensorRequest:
    """A request: its id, tensors by name, and the names of the outputs that it asks for.

    ``outputs`` says of each whether it is to be binary; () asks for all, which are by ``binary``.
    """

    id: str
    inputs: Mapping[str, Array]
    outputs: Sequence[tuple[str, bool]] = ()
    binary: bool = False


def metadata_of(tensors: Sequence[Tensor]) -> list[dict[str, Any]]:
    """Return the names, types and shapes of a model's tensors; -1 is an axis of any size.

    Of a model whose framework doesn't tell a shape, it is [-1].
    """
    found = []
    for tensor in tensors:
        shape = [-1 if size is None else size for size in tensor.shape] or [-1]
        datatype = DATATYPES.get(tensor.dtype, tensor.dtype.upper())
        found.append({"name": tensor.name, "datatype": datatype, "shape": shape})
    return found


def read_request(body: bytes, json_bytes: int | None) -> TensorRequest:
    """Return the request of a body, of which ``json_bytes`` are JSON and the rest binary data.

    None is all. Raises DatasetError, which names the tensor.
    """
    if json_bytes is not None and not 0 <= json_bytes <= len(body):
        raise DatasetError(f"the JSON has {json_bytes} bytes of {len(body)}; correct its length")
    try:
        content = json.loads(body[:json_bytes])
    except (ValueError, RecursionError):
        raise DatasetError("the request is no JSON; send an object with 'inputs'") from None
    content = _object(content, "the request")
    binary = body[len(body) if json_bytes is None else json_bytes :]
    inputs: dict[str, Array] = {}
    for each in _objects(content.get("inputs"), "inputs"):
        name, parameters = _name(each), _parameters(each)
        count = parameters.get("binary_data_size")
        if type(count) is int and 0 <= count <= len(binary):
            inputs[name] = array_of_bytes(
                name, each.get("datatype"), each.get("shape"), binary[:count]
            )
            binary = binary[count:]
        elif count is not None:
            raise DatasetError(f"input {name!r}: there is no binary data of {count} bytes")
        else:
            inputs[name] = _array_of_json(name, each)
    if binary:
        raise DatasetError(f"{len(binary)} bytes of binary data belong to no input")
    is_binary = _parameters(content).get("binary_data_output") is True
    asked = content.get("outputs")
    outputs = [] if asked is None else list(_outputs(_objects(asked, "outputs"), is_binary))
    return TensorRequest(str(content.get("id", "")), inputs, outputs, is_binary)


def write_answer(
    request: TensorRequest, outputs: Mapping[str, Array], names: Mapping[str, str]
) -> tuple[bytes, int | None]:
    """Return the body that answers a request, and the bytes of its JSON where others follow.

    ``names`` are the fields ``model_name`` and ``model_version``. Raises DatasetError for an output
    that isn't there, and for too large ones.
    """
    described = []
    parts = []
    for name, is_binary in chosen(request, outputs):
        array = outputs[name]
        found: dict[str, Any] = {"name": name, "datatype": datatype_of(name, array)}
        found["shape"] = list(array.shape)
        if is_binary:
            part = bytes_of(array)
            parts.append(part)
            found["parameters"] = {"binary_data_size": len(part)}
        else:
            found["data"] = _plain(array)
        described.append(found)
    content = {**names, "id": request.id, "outputs": described}
    text = json.dumps(content, separators=(",", ":")).encode()
    return b"".join([text, *parts]), len(text) if parts else None


def chosen(request: TensorRequest, outputs: Mapping[str, Array]) -> Sequence[tuple[str, bool]]:
    """Return the outputs that a request asks for, and whether each is to be binary."""
    for name, _ in request.outputs:
        if name not in outputs:
            raise DatasetError(f"there is no output {name!r}; there are {', '.join(outputs)}")
    found = request.outputs or [(name, request.binary) for name in outputs]
    size = sum(_size(outputs[name], is_binary) for name, is_binary in found)
    if size > _MOST_BYTES:
        problem = f"the outputs may have {size:,} bytes"
        raise DatasetError(f"{problem}; ask for binary data or some of them, or send less")
    return found


def _size(array: Array, is_binary: bool) -> int:
    """Return the most bytes that an array has in an answer."""
    if array.dtype.kind == "U":
        escaped = array.nbytes if is_binary else _MOST_ESCAPE * array.nbytes
        return escaped + _LENGTH * array.size
    return array.nbytes if is_binary else _MOST_DIGITS * array.size


def datatype_of(name: str, array: Array) -> str:
    """Return the protocol's name of an array's type; raises DatasetError where it has none."""
    datatype = DATATYPES.get("string" if array.dtype.kind == "U" else array.dtype.name)
    if datatype is None:
        raise DatasetError(f"output {name!r} is {array.dtype}, which the protocol doesn't have")
    return datatype


def array_of_bytes(name: str, datatype: Any, shape: Any, data: bytes) -> Array:
    """Return a tensor of binary data, which is little-endian; raises DatasetError."""
    dtype, sizes = _kind(name, datatype, shape)
    if dtype == "string":
        return texts_of(name, list(_split(name, data)), sizes)
    kind = np.dtype(dtype).newbyteorder("<")
    if len(data) != math.prod(sizes) * kind.itemsize:
        raise DatasetError(
            f"input {name!r}: {len(data):,} bytes are no {datatype} {sizes}; send as many as it has"
        )
    array = np.frombuffer(data, kind).astype(dtype, copy=False)
    if dtype == "bool":
        array = np.frombuffer(data, np.uint8) != 0
    return array.reshape(sizes)


def texts_of(name: str, texts: Sequence[bytes], sizes: Sequence[int]) -> Array:
    """Return a tensor of texts; raises DatasetError for what is no UTF-8 and for too many."""
    longest = max(map(len, texts), default=0)
    if len(texts) != math.prod(sizes) or 4 * longest * len(texts) > _MOST_TEXT_BYTES:
        problem = f"{len(texts)} texts of up to {longest} bytes are no {list(sizes)}, or too many"
        raise DatasetError(f"input {name!r}: {problem}")
    try:
        decoded = [text.decode() for text in texts]
    except UnicodeDecodeError:
        raise DatasetError(f"input {name!r}: a text is not UTF-8; send it as UTF-8") from None
    if any(text.endswith("\0") for text in decoded):
        raise DatasetError(f"input {name!r}: a text ends in NUL, which would be lost; cut it off")
    return np.array(decoded, "U").reshape(sizes)


def array_of_values(name: str, datatype: Any, shape: Any, values: Any) -> Array:
    """Return a tensor of numbers that are listed, nested or not; raises DatasetError."""
    dtype, sizes = _kind(name, datatype, shape)
    try:
        array = np.asarray(values)
        if dtype == "uint64" and array.dtype.kind == "f":  # numpy's for whole numbers from 2**63 on
            array = _of_uint64(values, array)
    except (ValueError, OverflowError):
        raise DatasetError(f"input {name!r}: its lists are no array; send one") from None
    kinds = {"b": "b", "u": "iu", "i": "iu", "f": "iuf"}[np.dtype(dtype).kind]
    if array.size and array.dtype.kind not in kinds:
        raise DatasetError(f"input {name!r}: there is {array.dtype}, and {datatype} was said")
    if array.size != math.prod(sizes):
        raise DatasetError(f"input {name!r}: {array.size} values are no {sizes}; send as many")
    if array.size and np.dtype(dtype).kind in "iu":
        bounds = np.iinfo(dtype)
        if int(array.min()) < bounds.min or int(array.max()) > bounds.max:
            raise DatasetError(f"input {name!r}: a value is beyond {datatype}; send {dtype}")
    with np.errstate(over="ignore"):
        found = array.astype(dtype).reshape(sizes)
    if found.dtype.kind == "f" and np.isinf(found).sum() > np.isinf(array.astype(float)).sum():
        raise DatasetError(f"input {name!r}: a value is beyond {datatype}; send a smaller one")
    return found


def _of_uint64(values: Any, array: Array) -> Array:
    """Return whole numbers as they are, and ``array`` for others; raises OverflowError."""
    listed = np.asarray(values, object)
    return listed.astype(np.uint64) if all(type(one) is int for one in listed.flat) else array


def bytes_of(array: Array) -> bytes:
    """Return an array as binary data."""
    if array.dtype.kind == "U":
        texts = [text.encode("utf-8", "surrogateescape") for text in array.ravel().tolist()]
        return b"".join(len(text).to_bytes(_LENGTH, "little") + text for text in texts)
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _plain(array: Array) -> list[Any]:
    """Return the values of an array for JSON, which has no infinity and no NaN: null."""
    flat = array.ravel()
    if flat.dtype.kind == "f" and not np.isfinite(flat).all():
        return [value if math.isfinite(value) else None for value in flat.tolist()]
    values: list[Any] = flat.tolist()
    return values


def _array_of_json(name: str, content: Mapping[str, Any]) -> Array:
    values = content.get("data")
    if not isinstance(values, list):
        raise DatasetError(f"input {name!r}: it has no 'data'; send a list, or binary data")
    if content.get("datatype") != "BYTES":
        if any(isinstance(value, str) for value in _flat(values)):
            raise DatasetError(f"input {name!r}: it has texts; they are BYTES")
        return array_of_values(name, content.get("datatype"), content.get("shape"), values)
    _, sizes = _kind(name, "BYTES", content.get("shape"))
    texts = list(_flat(values))
    if not all(isinstance(text, str) for text in texts):
        raise DatasetError(f"input {name!r}: BYTES are texts in JSON; send these")
    return texts_of(name, [text.encode("utf-8", "surrogatepass") for text in texts], sizes)


def _flat(values: Sequence[Any], depth: int = _MOST_SIZES) -> Iterator[Any]:
    if not depth:
        raise DatasetError(f"lists are nested more than {_MOST_SIZES} times; send a flat one")
    for value in values:
        if isinstance(value, list):
            yield from _flat(value, depth - 1)
        else:
            yield value


def _split(name: str, data: bytes) -> Iterator[bytes]:
    """Yield texts, each behind its length."""
    place = 0
    while place < len(data):
        end = place + _LENGTH + int.from_bytes(data[place : place + _LENGTH], "little")
        if end > len(data):
            raise DatasetError(f"input {name!r}: its texts are cut off; send their lengths, too")
        yield data[place + _LENGTH : end]
        place = end


def _kind(name: str, datatype: Any, shape: Any) -> tuple[str, list[int]]:
    """Return the type of elements and the sizes of a tensor."""
    dtype = _DTYPES.get(datatype) if isinstance(datatype, str) else None
    if dtype is None:
        known = ", ".join(_DTYPES)
        raise DatasetError(f"input {name!r}: there is no type {str(datatype)[:20]!r}; {known}")
    is_shape = isinstance(shape, list) and len(shape) <= _MOST_SIZES
    is_shape = is_shape and all(type(size) is int and size >= 0 for size in shape)
    # numpy takes no larger sizes, not even of an array without elements
    if not is_shape or math.prod(size for size in shape if size) >= 1 << 40:
        raise DatasetError(f"input {name!r}: its shape is {repr(shape)[:50]}; send a list of sizes")
    return dtype, shape


def _outputs(asked: Sequence[Mapping[str, Any]], is_binary: bool) -> Iterator[tuple[str, bool]]:
    for each in asked:
        parameters = _parameters(each)
        if parameters.get("classification"):
            raise DatasetError("classification isn't offered; ask /api/v1/predict for labels")
        yield _name(each), parameters.get("binary_data", is_binary) is True


def _objects(value: Any, name: str) -> Sequence[Mapping[str, Any]]:
    """Return the objects of a list, whose names differ."""
    if not isinstance(value, list):
        raise DatasetError(f"{name!r} is no list of objects; send one")
    found = [_object(each, f"one of {name!r}") for each in value]
    if len({_name(each) for each in found}) < len(found):
        raise DatasetError(f"two of {name!r} have one name; send each once")
    return found


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise DatasetError(f"{name} is no object; send one")
    return value


def _name(content: Mapping[str, Any]) -> str:
    name = content.get("name")
    if not isinstance(name, str):
        raise DatasetError("a tensor has no name; send one")
    return name


def _parameters(content: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = _object(content.get("parameters", {}), "'parameters'")
    if any(name.startswith("shared_memory") for name in parameters):
        raise DatasetError("shared memory isn't offered; send the data")
    return parameters
