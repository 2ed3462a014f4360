"""The inputs that a person gives a model, as a dataset of one element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.files import read_regular
from pytest_mlms.core.records import Place
from pytest_mlms.manifest.schema import BATCH, Input
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.inputs import Element
from pytest_mlms.measure.pipeline.npz import read_npy, read_npz
from pytest_mlms.measure.pipeline.tables import parse_numbers

Value: TypeAlias = str | bytes | Path | tuple[str, str] | NDArray[Any] | Sequence[Any] | float
Given: TypeAlias = Value | Mapping[str, Value]
"""A value for the only input, or values by the names of inputs or of their columns.

A Path is a file: of a picture, a sound or a text, an .npy of one array, or an .npz of all. A str is
a text for inputs of texts, and for others numbers with blanks between them, never a path: whoever
may send a text must not thereby read our files. Bytes are the content of a file. Arrays have no
axis of the batch."""

_MOST_BYTES = 1 << 30  # of a file
_SHOWN = 40  # characters of a text
_WHITE = 255
_NPY = b"\x93NUMPY"


def dataset_of(given: Given, specs: Sequence[Input], place: Place) -> Dataset:
    """Return a dataset of one element for the inputs of a manifest, ``specs``.

    ``place`` is the line of these. Raises DatasetError, which begins with it and names the file.
    """
    name = f"{place}"
    shown = str(given) if isinstance(given, Path) else "the input"
    data = [spec for spec in specs if not spec.is_state]
    columns = list(dict.fromkeys(column for spec in data for column in spec.columns))
    try:
        values = _by_column(given, columns, data)
        elements = {spec.name: [_element(spec, values)] for spec in data}
    except DatasetError as error:
        is_named = str(error).startswith(shown)
        raise DatasetError(f"{name}: {'' if is_named else f'{shown}: '}{error}") from None
    return Dataset(name, tuple(specs), elements, None, places=[shown])


def needed_columns(specs: Sequence[Input]) -> dict[str, Input]:
    """Return the columns of a dataset that a person must give values for, each with its input.

    States have none, and one whose shape and only number the manifest says needs none.
    """
    needed: dict[str, Input] = {}
    for spec in specs:
        if not spec.is_state and _only_value(spec) is None:
            needed.update(dict.fromkeys(spec.columns, spec))
    return needed


def _only_value(spec: Input) -> NDArray[Any] | None:
    low, high = spec.range or (0, 1)
    if low != high or spec.shape is None or spec.named_axes:
        return None
    return np.full([axis for axis in spec.shape if axis != BATCH], low)


def _by_column(given: Given, columns: Sequence[str], specs: Sequence[Input]) -> dict[str, Value]:
    """Return the value of each column of a dataset."""
    fixed: dict[str, Value] = {
        spec.columns[0]: value for spec in specs if (value := _only_value(spec)) is not None
    }
    free = list(needed_columns(specs))
    listed = ", ".join(free)
    if isinstance(given, Path) and given.suffix == ".npz":
        given = _arrays(given, columns, specs)
    if isinstance(given, Mapping):
        of_inputs = {spec.name: spec.columns[0] for spec in specs if len(spec.columns) == 1}
        values = dict(fixed)
        values.update({of_inputs.get(name, name): given[name] for name in given})
        unknown = [name for name in values if name not in columns]
        missing = [name for name in columns if name not in values]
        if unknown or missing:
            problem = (
                f"no input is called {unknown[0]!r}" if unknown else f"{missing[0]!r} is missing"
            )
            raise DatasetError(f"{problem}; give a value for each of {listed}")
        return values
    if isinstance(given, tuple) and len(given) == len(free) == 2:
        return {**fixed, **dict(zip(free, given, strict=True))}
    if len(free) != 1:
        raise DatasetError(f"the model has {len(free)} inputs; give a value for each of {listed}")
    return {**fixed, free[0]: given}


def _arrays(path: Path, columns: Sequence[str], specs: Sequence[Input]) -> dict[str, Any]:
    texts = {name for spec in specs if spec.takes_text for name in spec.columns}
    _, arrays = read_npz(path, columns, texts, (), columns)
    return dict(arrays)


def _element(spec: Input, values: Mapping[str, Value]) -> Element:
    """Return the element of an input; raises DatasetError for what none can be made of."""
    if spec.type == "text":
        texts = [_text(values[name]) for name in spec.columns]
        return texts[0] if len(texts) == 1 else (texts[0], texts[1])
    value = values[spec.columns[0]]
    if spec.element_type == "string":
        return _array(_text(value) if isinstance(value, (str, bytes, Path)) else value)
    if isinstance(value, str):
        numbers = parse_numbers(value)
        if numbers is None:
            advice = "give a file as a Path, or what is in it"
            raise DatasetError(f"{value[:_SHOWN]!r} is no numbers; {advice}")
        return _in_shape(numbers, spec)
    if isinstance(value, Path):
        value = _content(value)
    if isinstance(value, bytes):
        is_file = spec.type != "tensor" and not value.startswith(_NPY)
        return value if is_file else _in_bytes(value, spec)
    return _numbers(value, spec)


def _numbers(value: Value, spec: Input) -> NDArray[Any]:
    """Return an array of numbers; whole ones of a picture are its pixels, as lists have them."""
    array = _array(value)
    if array.dtype.kind not in "biuf":
        problem = f"input {spec.name!r} takes numbers, and has {array.dtype}"
        raise DatasetError(f"{problem}; give an array of {spec.element_type}")
    is_whole = spec.type == "image" and array.dtype.kind in "iu" and array.size
    if is_whole and array.min() >= 0 and array.max() <= _WHITE:
        return array.astype(np.uint8)
    return array


def _in_bytes(data: bytes, spec: Input) -> NDArray[Any]:
    """Return the array of an .npy file, or the numbers that are written in a text."""
    if data.startswith(_NPY):
        return read_npy(data)
    numbers = parse_numbers(data.decode("utf-8", "replace"))
    if numbers is None:
        problem = f"{len(data):,} bytes, beginning {data[:8]!r}, are no array"
        raise DatasetError(f"{problem}; save it by numpy.save, or write its numbers")
    return _in_shape(numbers, spec)


def _in_shape(numbers: NDArray[Any], spec: Input) -> NDArray[Any]:
    """Return written numbers in the shape of an element, where the manifest has it."""
    if spec.shape is None or spec.named_axes:
        return numbers
    shape = [axis for axis in spec.shape if axis != BATCH]
    try:
        return numbers.reshape(shape)
    except ValueError:
        wanted = " x ".join(map(str, shape)) or "one"
        raise DatasetError(
            f"{numbers.size} numbers, and {spec.name!r} takes {wanted}; write as many"
        ) from None


def _array(value: Value) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:  # such as lists of several lengths
        raise DatasetError(f"it is no array: {error}; give one") from None


def _text(value: Value) -> str:
    """Return a text, or the content of a file of one, UTF-8."""
    if isinstance(value, Path):
        value = _content(value)
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8-sig").strip()
        except UnicodeDecodeError as error:
            raise DatasetError(f"it is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    array = _array(value)
    if array.dtype.kind != "U" or array.ndim:
        raise DatasetError(
            f"the input takes a text, and has {array.dtype} {array.shape}; give a str"
        )
    text = str(array)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DatasetError(f"the text is not UTF-8 (character {error.start}); correct it") from None
    return text


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, _MOST_BYTES)
    except OSError as error:
        reason = error.strerror or error
        raise DatasetError(f"{path} can't be read: {reason}; name a file that is there") from None
    except ValueError as error:  # such as a zero byte in its name
        raise DatasetError(f"{str(path)!r} is no path: {error}; name a file") from None
