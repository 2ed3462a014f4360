"""Labels of a dataset's elements, from an array or from the column of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.tasks import LabelForm
from pytest_mlms.measure.pipeline.npz import StoredRows, read_npy
from pytest_mlms.measure.pipeline.pictures import decode_label_image, decode_mask
from pytest_mlms.measure.pipeline.tables import Cells, TableFolder, TextCells, parse_numbers

__all__ = [
    "READ_AS_NEEDED",
    "ClassNumbers",
    "LabelForm",
    "Labels",
    "labels_of_array",
    "labels_of_column",
    "texts_of",
]

Labels = Array | Sequence[Any]
ClassNumbers = Mapping[str, int]

READ_AS_NEEDED: tuple[LabelForm, ...] = ("array", "mask", "image")
"""The forms whose labels may be large."""

_LARGEST_CLASS = np.iinfo(np.int64).max


class _ArrayForm(NamedTuple):
    """The arrays that are labels of a form: the kinds of their numbers, and how many axes."""

    kinds: str
    axes: range
    expected: str


_ARRAYS: dict[LabelForm, _ArrayForm] = {
    "class": _ArrayForm("iu", range(1, 2), "one whole number an element"),
    "text": _ArrayForm("U", range(1, 2), "one text an element"),
    "array": _ArrayForm("biuf", range(1, 33), "numbers, a row for each element"),
    "mask": _ArrayForm("biu", range(3, 4), "elements x height x width of whole numbers"),
    "image": _ArrayForm("biuf", range(3, 5), "elements x height x width, or with x channels"),
}


def labels_of_array(array: Array | StoredRows, form: LabelForm) -> Labels:
    """Return the labels that an array of a file holds; raises DatasetError for another array."""
    expected = _ARRAYS.get(form)
    if expected is None:
        raise DatasetError(f"has an array 'label', and boxes {_COCO}")
    if array.dtype.kind not in expected.kinds or array.ndim not in expected.axes:
        found = f"{array.dtype} {array.shape}"
        raise DatasetError(f"has 'label' as {found}; expected {expected.expected}")
    if form == "text":
        return texts_of(array)
    if form == "image" and array.ndim == 3:
        return array.reshape((*array.shape, 1))
    return array


def texts_of(array: Array | StoredRows) -> list[str]:
    """Return the texts of an array; raises DatasetError for one that isn't Unicode."""
    try:
        texts = [str(text) for text in array]
        for text in texts:
            text.encode()
    except (ValueError, SystemError) as error:  # which Python raises for too large code points
        problem = f"has an array of texts that aren't Unicode: {error}"
        raise DatasetError(f"{problem}; write it again with numpy.savez") from error
    return texts


_COCO = "are read from a COCO file; name that as the dataset's source, or beside its images"


def labels_of_column(source: TableFolder, form: LabelForm, classes: ClassNumbers) -> Labels:
    """Return the labels of a table, which are no boxes.

    ``classes`` are the numbers of classes by their names in small letters. Raises DatasetError,
    which names the line of a wrong one.
    """
    if form == "class":
        numbers = []
        are_names = _are_names(source, classes)
        for index, text in enumerate(source.table.labels):
            number = None if are_names else _whole_number(text)
            if number is None:
                number = classes.get(text.casefold())
            if number is None:
                advice = "write the number of its class, from 0"
                if classes:
                    advice = f"{advice}, or its name as the file of top_k's labels has it"
                raise DatasetError(f"{_wrong_label(source, index)}; {advice}")
            numbers.append(number)
        return np.array(numbers, dtype=np.int64)
    return _COLUMNS[form](source)


def _are_names(source: TableFolder, classes: ClassNumbers) -> bool:
    """Return whether labels that are numbers and names of other classes are names.

    That is so where all are known names, and one is the number of no class. Raises DatasetError
    where they may be either.
    """
    texts = source.table.labels
    numbers = {text: _whole_number(text) for text in texts}
    doubtful = [
        index
        for index, text in enumerate(texts)
        if numbers[text] is not None
        and classes.get(text.casefold(), numbers[text]) != numbers[text]
    ]
    are_names = bool(doubtful) and all(text.casefold() in classes for text in numbers)
    if are_names and all((number or 0) < len(classes) for number in numbers.values()):
        found = f"{_wrong_label(source, doubtful[0])}, the number of a class and another's name"
        raise DatasetError(f"{found}; write {texts[doubtful[0]]}.0 for the number")
    return are_names


def _wrong_label(source: TableFolder, index: int) -> str:
    table = source.table
    element = next(iter(table.inputs.values()))[index]
    return f"{table.place(index)}: the label of {element} is {table.labels[index]!r}"


def _whole_number(text: str) -> int | None:
    """Return the number that a text such as "7" or "7.0" stands for; None for another text."""
    whole, _, zeros = text.partition(".")
    if zeros.strip("0"):
        return None
    try:
        number = int(whole)
    except ValueError:
        return None
    return number if abs(number) <= _LARGEST_CLASS else None


def _texts(source: TableFolder) -> Labels:
    return TextCells(source, source.table.labels)


def _arrays(source: TableFolder) -> Labels:
    """Return a row of numbers for each element, or the arrays of .npy files."""
    texts = source.table.labels
    if any(text.endswith(".npy") for text in texts):
        return Cells(source, texts)
    rows: list[Array] = []
    for index, text in enumerate(texts):
        numbers = parse_numbers(text)
        if numbers is None:
            advice = "write numbers with blanks between them, or the name of an .npy file"
            raise DatasetError(f"{_wrong_label(source, index)}; {advice}")
        if rows and numbers.shape != rows[0].shape:
            found = f"{numbers.size} numbers, and the first label {rows[0].size}"
            raise DatasetError(f"{_wrong_label(source, index)}, {found}; write as many in each")
        rows.append(numbers)
    return np.array(rows)


def _masks(source: TableFolder) -> Labels:
    return _Pictures(source, decode_mask)


def _images(source: TableFolder) -> Labels:
    return _Pictures(source, decode_label_image)


_COLUMNS: dict[LabelForm, Callable[[TableFolder], Labels]] = {
    "text": _texts,
    "array": _arrays,
    "mask": _masks,
    "image": _images,
}


class _Pictures(Sequence[Array]):
    """Labels that are files of pictures or arrays, each read when it is asked for.

    Errors don't name the row, the dataset does.
    """

    def __init__(self, source: TableFolder, decode: Callable[[bytes], Array]) -> None:
        self._names = source.table.labels
        self._files = source.files(self._names)
        self._decode = decode
        for index, name in enumerate(self._names):
            if not name:
                advice = "write the name of the label's file"
                raise DatasetError(f"{_wrong_label(source, index)}; {advice}")

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: Any) -> Any:
        name = self._names[index]
        try:
            data = self._files[index]
            return read_npy(data) if name.endswith(".npy") else self._decode(data)
        except (DatasetError, ValueError) as error:
            raise DatasetError(f"{name}: {error}") from error
