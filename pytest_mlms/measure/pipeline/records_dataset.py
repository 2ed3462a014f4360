"""Datasets in files of records: tf.train.Example in TFRecord, labelled images in RecordIO."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mlms_predictors._run.protobuf import fields, last_value, values

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import DatasetError
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.pipeline.labels import LabelForm, Labels
from pytest_mlms.measure.pipeline.pictures import decode_label_image, decode_mask
from pytest_mlms.measure.pipeline.record_files import RecordFile, open_records, record_kind

_IMAGE = "image/encoded"
_LABELS = ("label", "image/class/label")
"""The features of a label: ours, and that of the records of TensorFlow-Slim."""

_BYTES, _FLOATS, _WHOLE = 1, 2, 3  # the kinds of a Feature
_HEADER = struct.Struct("<IfQQ")  # of MXNet's IRHeader: flag, label, id, id2
_LARGEST_CLASS = 1 << 53
_SHOWN = 5  # numbers in a message
_UNREADABLE = -1  # the class of a record that can't be read


class RecordsContent(NamedTuple):
    """The elements of each input, the labels, and what messages call each element."""

    elements: dict[str, Sequence[Any]]
    labels: Labels | None
    places: Sequence[str]


def read_records(paths: Sequence[Path], inputs: Sequence[Input], form: LabelForm) -> RecordsContent:
    """Open a dataset of records; raises DatasetError."""
    kinds = {record_kind(path) for path in paths}
    if len(kinds) > 1:
        raise DatasetError("has files of TFRecord and of RecordIO; keep those of one format")
    records = _Records([open_records(path) for path in paths])
    read = _read_images if kinds == {"recordio"} else _read_examples
    return read(records, inputs, form)


class _Records(Sequence[bytes]):
    """The records of several files, one after the other."""

    def __init__(self, files: Sequence[RecordFile]) -> None:
        self._files = files
        self._ends = np.cumsum([len(file) for file in files])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: Any) -> Any:
        file, number = self._find(index)
        return file[number]

    def place(self, index: int) -> str:
        """Return what a message calls a record."""
        file, number = self._find(index)
        return file.place(number)

    def _find(self, index: int) -> tuple[RecordFile, int]:
        number = range(len(self))[index]
        which = int(np.searchsorted(self._ends, number, side="right"))
        before = int(self._ends[which - 1]) if which else 0
        return self._files[which], number - before


class _Read(Sequence[Any]):
    """The results of a function of the number of each record."""

    def __init__(self, count: int, read: Callable[[int], Any]) -> None:
        self._count = count
        self._read = read

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        return self._read(range(self._count)[index])


def _read_images(records: _Records, inputs: Sequence[Input], form: LabelForm) -> RecordsContent:
    """Return the images of a RecordIO file, each behind a header with its label.

    https://github.com/apache/mxnet, python/mxnet/recordio.py
    """
    if len(inputs) != 1 or form not in ("class", "array"):
        found = f"has images with numbers as labels, for {len(inputs)} inputs and labels of {form}"
        raise DatasetError(f"{found}; a RecordIO file is for one input and classes or numbers")
    elements = _Read(len(records), lambda index: _unpacked(records[index])[1])
    numbers = _Read(len(records), lambda index: _unpacked(records[index])[0])
    labels: Labels = numbers
    if form == "class":
        labels = _classes(len(records), lambda index: numbers[index].reshape(-1))
    return RecordsContent({inputs[0].name: elements}, labels, _places(records))


def _unpacked(record: bytes) -> tuple[Array, bytes]:
    """Return the numbers of the label and the image; raises DatasetError."""
    if len(record) < _HEADER.size:
        raise DatasetError(f"{len(record)} bytes have no header of an image; write it by im2rec")
    flag, label, _, _ = _HEADER.unpack_from(record)
    begin = _HEADER.size + 4 * flag
    if len(record) < begin:
        raise DatasetError(f"it has {flag} numbers as a label and ends before; write it by im2rec")
    if flag == 0:
        return np.array(label, np.float32), record[begin:]
    return np.frombuffer(record, "<f4", flag, _HEADER.size), record[begin:]


def _read_examples(records: _Records, inputs: Sequence[Input], form: LabelForm) -> RecordsContent:
    """Return the features of a TFRecord file of tf.train.Example."""
    known = _names(records)
    elements: dict[str, Sequence[Any]] = {}
    for spec in inputs:
        elements[spec.name] = _feature_of(records, _input_feature(spec, known, len(inputs)), spec)
    found = [name for name in _LABELS if name in known]
    labels = _labels(records, found[0], form) if found else None
    return RecordsContent(elements, labels, _places(records))


def _names(records: _Records) -> set[str]:
    """Return the names of the features of the first record that can be read."""
    problem = "no record"
    for index in range(len(records)):
        try:
            return set(_features(records[index]))
        except DatasetError as error:
            problem = f"{records.place(index)}: {error}"
    raise DatasetError(f"has no record that can be read: {problem}")


def _input_feature(spec: Input, known: set[str], inputs: int) -> str:
    name = spec.columns[0]
    if name in known:
        return name
    if inputs == 1 and spec.type == "image" and _IMAGE in known:
        return _IMAGE
    names = ", ".join(sorted(known))
    problem = f"has the features {names}; expected one for input {spec.name!r}"
    raise DatasetError(f"{problem}; write 'column: …' with its name")


def _feature_of(records: _Records, name: str, spec: Input) -> Sequence[Any]:
    def read(index: int) -> Any:
        value = _value(records[index], name)
        if spec.takes_text:
            return _text(value)
        if isinstance(value, bytes) or spec.shape is None or len(spec.named_axes) > 1:
            return value
        free = dict.fromkeys(spec.named_axes, -1)
        shape = [axis for axis in spec.sized(free).shape or () if isinstance(axis, int)]
        try:
            return value.reshape(shape)
        except ValueError as error:
            problem = f"feature {name!r} has {value.size} numbers, and its input takes {shape}"
            raise DatasetError(f"{problem}; correct the input's shape") from error

    return _Read(len(records), read)


def _labels(records: _Records, name: str, form: LabelForm) -> Labels:
    if form == "class":
        return _classes(len(records), lambda index: _numbers(_value(records[index], name)))
    if form == "boxes":
        raise DatasetError("has records, and boxes are read from a COCO file; convert them")
    convert: dict[str, Callable[[Any], Any]] = {
        "text": _text,
        "array": _numbers,
        "mask": decode_mask,
        "image": decode_label_image,
    }

    def read(index: int) -> Any:
        try:
            return convert[form](_value(records[index], name))
        except (DatasetError, ValueError, TypeError) as error:
            raise DatasetError(f"feature {name!r}: {error}") from error

    return _Read(len(records), read)


def _classes(count: int, numbers_of: Callable[[int], Array]) -> Array:
    """Return the class of each record.

    A record that can't be read has none: its image can't be read either, which is told then.
    """
    labels = np.full(count, _UNREADABLE, np.int64)
    for index in range(count):
        try:
            numbers = numbers_of(index)
        except DatasetError:
            continue
        labels[index] = _class(numbers, index)
    return labels


def _class(numbers: Array, index: int) -> int:
    if numbers.size == 1:
        number = float(numbers.reshape(-1)[0])
        if number.is_integer() and abs(number) <= _LARGEST_CLASS:
            return int(number)
    shown = numbers.reshape(-1)[:_SHOWN].tolist()
    raise DatasetError(f"has {shown} as the label of record {index}; expected a class")


def _text(value: Any) -> str:
    if not isinstance(value, bytes):
        raise DatasetError("it has numbers; expected a text")
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise DatasetError(f"its text is not UTF-8: {error}; write it again") from error


def _numbers(value: Any) -> Array:
    if isinstance(value, bytes):
        raise DatasetError("it has bytes; expected numbers")
    return np.asarray(value)


def _value(record: bytes, name: str) -> Any:
    """Return a feature: its only bytes, or its numbers; raises DatasetError."""
    found = _features(record)
    if name not in found:
        raise DatasetError(f"it has no feature {name!r}; write one in each record")
    return _parsed(found[name], name)


def _features(record: bytes) -> dict[str, Any]:
    """Return the features of an Example by name, each as its message.

    https://github.com/tensorflow/tensorflow, tensorflow/core/example/feature.proto
    """
    try:
        found = {}
        for entry in values(last_value(memoryview(record), 1), 1):
            found[bytes(last_value(entry, 1)).decode()] = last_value(entry, 2)
        return found
    except ValueError as error:  # and UnicodeDecodeError
        problem = f"it is no tf.train.Example: {error}"
        raise DatasetError(f"{problem}; write it with TensorFlow") from error


def _parsed(feature: Any, name: str) -> Any:
    try:
        for kind, content in fields(feature):
            if kind == _BYTES:
                return bytes(last_value(content, 1))
            if kind == _FLOATS:
                packed = b"".join(bytes(part) for part in values(content, 1))
                return np.frombuffer(packed, "<f4")
            if kind == _WHOLE:
                return _whole_numbers(values(content, 1))
    except (ValueError, TypeError) as error:
        raise DatasetError(f"feature {name!r} can't be read: {error}; write it again") from error
    raise DatasetError(f"feature {name!r} is empty; write a value")


def _whole_numbers(parts: Sequence[Any]) -> Array:
    """Return the numbers of an Int64List, which are packed or one by one."""
    numbers: list[int] = []
    for part in parts:
        numbers += [part] if isinstance(part, int) else list(_varints(part))
    unsigned = np.array(numbers, dtype=np.uint64)
    return unsigned.astype(np.int64)


def _varints(packed: Any) -> Sequence[int]:
    numbers = []
    value = 0
    shift = 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value & 0xFFFFFFFFFFFFFFFF)
            value = 0
            shift = 0
    return numbers


def _places(records: _Records) -> Sequence[str]:
    return _Read(len(records), records.place)
