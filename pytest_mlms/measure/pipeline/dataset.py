"""Datasets: elements and labels, and batches that threads prepare while the model works.

A dataset is an .npz file with an array for each of the model's inputs and one called ``label``,
or a folder (an archive, unpacked) with a ``labels.csv`` that has a column for each:
docs/datasets.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.memory import shortage
from pytest_mlms.core.records import Place
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.manifest.schema import BATCH, Input
from pytest_mlms.measure.pipeline.geometry import Geometry, Size, geometry_of
from pytest_mlms.measure.pipeline.inputs import SEQUENCE, Element, preprocess, start_state
from pytest_mlms.measure.pipeline.labels import (
    READ_AS_NEEDED,
    ClassNumbers,
    LabelForm,
    Labels,
    labels_of_array,
    labels_of_column,
    texts_of,
)
from pytest_mlms.measure.pipeline.npz import StoredRows, read_npz
from pytest_mlms.measure.pipeline.pictures import original_size
from pytest_mlms.measure.pipeline.record_files import find_records
from pytest_mlms.measure.pipeline.step_files import class_numbers_of, with_local_files
from pytest_mlms.measure.pipeline.tables import (
    LABEL,
    LABELS_CSV,
    Cells,
    Table,
    TableFolder,
    TablePlaces,
    TextCells,
    paired,
    parse_numbers,
    read_labels_csv,
)

Batch = dict[str, Array]

_AHEAD = 4  # batches
DECODERS = 2
"""The threads that prepare batches."""


class SkippedElement(NamedTuple):
    """A corrupt element that is left out: what a message calls it, and its error."""

    element: str
    error: str


@dataclass(frozen=True, eq=False)
class Dataset:
    """N elements for each input, by its name, and N labels.

    ``labels`` are of the form that the task has; None for a dataset without. ``name`` is used in
    errors: the manifest's line and its source. ``files`` are the names of the elements' files, None
    where they aren't files, and ``places`` what an error calls each element, None for its number.
    Where corrupt elements are ``skipped``, ``numbers`` are the rows of the others in the file.
    ``sequences`` says to which sequence each element belongs, for a model with a state; None for
    one sequence.
    """

    name: str
    inputs: tuple[Input, ...]
    elements: Mapping[str, Sequence[Element]]
    labels: Labels | None
    files: Sequence[str] | None = None
    places: Sequence[str] | None = None
    numbers: Sequence[int] | None = None
    skipped: Sequence[SkippedElement] = ()
    sequences: Sequence[Any] | None = None

    def __len__(self) -> int:
        first = next(iter(self.elements.values()))
        return len(first)

    def element_name(self, index: int) -> str:
        """Return what a message calls an element: its file, or its row of the arrays."""
        if self.files is None:
            number = index if self.numbers is None else self.numbers[index]
            return f"row {number} of {self.name}"
        return self.files[index]

    def place(self, index: int) -> str:
        """Return what an error calls an element: its line and file, or its number."""
        return f"element {index}" if self.places is None else self.places[index]

    def label(self, index: int) -> Any:
        """Return the label of an element; raises DatasetError for a file that can't be read."""
        assert self.labels is not None, "a dataset without labels has no accuracy"
        try:
            return self.labels[index]
        except DatasetError as error:
            raise self.label_error(index, str(error)) from error

    def label_error(self, index: int, problem: str) -> DatasetError:
        """Return the error of an element or its label, which names the dataset and the element."""
        return DatasetError(f"{self.name}: {self.place(index)}: {problem}")

    def geometry(self, index: int) -> Geometry:
        """Return where the steps put the pixels of an element of the first input that is an image.

        Raises DatasetError for an element that is no image, and where there is no such input.
        """
        spec = self.picture_input()
        try:
            return geometry_of(spec.steps, *self.picture_size(index))
        except (DatasetError, ValueError) as error:
            raise self.label_error(index, str(error)) from error

    def picture_size(self, index: int) -> Size:
        """Return the size of a picture before the steps that change it.

        Raises DatasetError and ValueError, which don't name it.
        """
        spec = self.picture_input()
        decode = spec.steps[0].decode if spec.steps else None
        return original_size(self.elements[spec.name][index], decode)

    def picture_input(self) -> Input:
        """Return the first input that is an image; raises DatasetError where there is none."""
        for spec in self.inputs:
            if spec.type == "image":
                return spec
        raise DatasetError(f"{self.name}: no input is an image; write 'type: image'")

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return the model's inputs for the elements at ``indices``; raises DatasetError."""
        batch = {}
        try:
            for spec in self.inputs:
                batch[spec.name] = self._preprocessed(indices, spec)
        except DatasetError as error:
            raise DatasetError(f"{self.name}: {error}") from error
        return batch

    def scored(self, rows: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the rows of outputs as a task scores them: here as they are."""
        return rows

    def _preprocessed(self, indices: Sequence[int], spec: Input) -> Array:
        if spec.is_state:
            return start_state(spec, len(indices))
        elements = self.elements[spec.name]
        try:
            chosen = [elements[index] for index in indices]
            return preprocess(chosen, spec)
        except DatasetError:
            self._check_each(indices, spec)
            raise

    def _check_each(self, indices: Sequence[int], spec: Input) -> None:
        """Raise DatasetError for the first of these elements that fails by itself."""
        elements = self.elements[spec.name]
        for index in indices:
            try:
                preprocess([elements[index]], spec)
            except DatasetError as error:
                raise DatasetError(f"{self.place(index)}: {error}") from error

    def check_element(self, index: int) -> None:
        """Raise DatasetError, which doesn't name it, for an element or a label that is corrupt."""
        for spec in _without_states(self.inputs):
            preprocess([self.elements[spec.name][index]], spec)
        if self.labels is not None:
            self.labels[index]

    def check_size(self, size: int) -> None:
        """Raise DatasetError where a batch of ``size`` would not fit into the memory that is free.

        It is there twice: on this side and in the agent.
        """
        one = self.batch([0])
        missing = shortage(2 * size * sum(array.nbytes for array in one.values()))
        if missing:
            problem = f"a batch of {size:,} takes {missing}"
            raise DatasetError(f"{self.name}: {problem}; write smaller batch_sizes")

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield batches of ``size`` in order, some of them prepared ahead.

        The last batch is filled up with the last element. Raises DatasetError for batches that
        would not fit into the memory that is free.
        """
        self.check_size(size)
        pending: deque[Future[Batch]] = deque()
        with ThreadPoolExecutor(DECODERS, "mlms-decode") as pool:
            try:
                for first in range(0, len(self), size):
                    indices = [min(index, len(self) - 1) for index in range(first, first + size)]
                    pending.append(pool.submit(self.batch, indices))
                    if len(pending) == _AHEAD:
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            finally:
                pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class _Content:
    """Content of a file or folder."""

    elements: Mapping[str, Sequence[Element]]
    labels: Labels | None
    files: Sequence[str] | None = None
    places: Sequence[str] | None = None
    sequences: Sequence[Any] | None = None


def open_dataset(
    path: Path,
    inputs: Sequence[Input],
    place: Place,
    source: str = "",
    labels: LabelForm = "class",
    classes: ClassNumbers = MappingProxyType({}),
) -> Dataset:
    """Open the file or folder at ``path``, whose labels are of the form ``labels``.

    ``classes`` are the numbers of classes by their names, for a table that has names as labels.
    Errors begin with ``place``, the manifest's line that names it, and ``source``, what it says
    there; an archive is unpacked under another path, which its user doesn't know. Raises
    DatasetError, which says what was expected and what was found.
    """
    name = f"{place}: {source or path}"
    read = _reader_of(path, labels, classes)
    try:
        content = read(path, inputs, labels)
        _check_counts(content)
    except DatasetError as error:
        raise DatasetError(f"{name} {error}") from error
    return Dataset(
        name,
        tuple(inputs),
        content.elements,
        content.labels,
        content.files,
        content.places,
        sequences=content.sequences,
    )


def open_dataset_of(loaded: LoadedManifest, path: Path, files: Mapping[str, Path]) -> Dataset:
    """Open the dataset of a manifest, whose file is at ``path``; ``files`` are those of steps.

    Raises DatasetError.
    """
    manifest = loaded.manifest
    return open_dataset(
        path,
        [with_local_files(spec, files) for spec in manifest.inputs],
        loaded.place("dataset", "source"),
        manifest.dataset.source if manifest.dataset else "",
        manifest.label_form,
        class_numbers_of(manifest, files),
    )


def _without_states(inputs: Sequence[Input]) -> list[Input]:
    """Return the inputs that a dataset has."""
    return [spec for spec in inputs if not spec.is_state]


def _reader_of(
    path: Path, form: LabelForm, classes: ClassNumbers
) -> Callable[[Path, Sequence[Input], LabelForm], _Content]:
    """Return what reads a dataset whose labels have this form."""
    if form == "boxes" and (path.is_dir() or path.suffix == ".json"):
        return _read_coco
    if path.is_dir():
        has_table = any(path.rglob(LABELS_CSV))
        if has_table or not find_records(path):
            return partial(_read_folder, classes=classes)
        return _read_record_files
    if path.suffix.lower() == ".csv":
        raise DatasetError("is a table alone; name an archive that holds it, as labels.csv")
    return _read_record_files if find_records(path) else _read_npz


def _check_counts(content: _Content) -> None:
    """Check that each input has as many elements as there are labels, and not none."""
    columns: dict[str, Any] = dict(content.elements)
    if content.labels is not None:
        columns[LABEL] = content.labels
    if content.sequences is not None:
        columns[SEQUENCE] = content.sequences
    counts = []
    parts = []
    for name, values in columns.items():
        counts.append(len(values))
        parts.append(f"{len(values):,} of {name!r}")
    if min(counts) == 0 or min(counts) != max(counts):
        found = ", ".join(parts)
        expected = "each input and 'label' must have the same number, and not 0"
        raise DatasetError(f"has {found}; {expected}")


def _read_npz(path: Path, inputs: Sequence[Input], form: LabelForm) -> _Content:
    further = {LABEL}
    data_inputs = _without_states(inputs)
    wanted = _column_names(data_inputs)
    texts = {name for spec in inputs if spec.takes_text for name in spec.columns}
    if form == "text":
        texts.add(LABEL)
    if len(data_inputs) < len(inputs):
        further.add(SEQUENCE)
        texts.add(SEQUENCE)
    streamed = {*wanted, LABEL} if form in READ_AS_NEEDED else set(wanted)
    singles = {spec.columns[0] for spec in data_inputs if spec.shape is not None and not spec.shape}
    names, arrays = read_npz(path, {*wanted, *further}, texts, streamed, singles)
    for name in wanted:
        if name not in arrays:
            raise DatasetError(f"has the arrays {names}; expected one for input {name!r}")
    labels = arrays.get(LABEL)
    elements: dict[str, Any] = {}
    for spec in data_inputs:
        if spec.element_type == "string":
            elements[spec.name] = _rows_of_texts(arrays[spec.columns[0]])
        elif spec.takes_text:
            elements[spec.name] = paired([texts_of(arrays[name]) for name in spec.columns])
        else:
            elements[spec.name] = arrays[spec.columns[0]]
    return _Content(
        _with_repeated(elements, data_inputs, labels),
        None if labels is None else labels_of_array(labels, form),
        sequences=_sequences(arrays),
    )


def _rows_of_texts(array: Array | StoredRows) -> Array:
    """Return an array of texts of any shape; raises DatasetError for texts that aren't Unicode."""
    values = np.asarray(array)
    if values.dtype.kind == "U":
        texts_of(values.reshape(-1))
    return values


def _with_repeated(
    elements: Mapping[str, Any], inputs: Sequence[Input], labels: Array | StoredRows | None
) -> dict[str, Any]:
    """Return elements, with an array once for each of them that is the same for all.

    Such an array has the shape of an input without a batch.
    """
    repeated = [spec.name for spec in inputs if _is_for_all(elements[spec.name], spec)]
    columns = [values for name, values in elements.items() if name not in repeated]
    if labels is not None:
        columns.append(labels)
    count = max(map(len, columns), default=1)
    return {
        name: [np.asarray(values)] * count if name in repeated else values
        for name, values in elements.items()
    }


def _is_for_all(values: Any, spec: Input) -> bool:
    if spec.shape is None or spec.batch_axis is not None or spec.takes_text:
        return False
    return tuple(spec.shape) == tuple(values.shape)


def _sequences(arrays: Mapping[str, Array | StoredRows]) -> list[Any] | None:
    """Return to which sequence each element belongs, if the dataset says it."""
    values = arrays.get(SEQUENCE)
    if values is None:
        return None
    values = np.asarray(values)
    if values.ndim != 1 or values.dtype.kind not in "iuU":
        found = f"{values.dtype} {values.shape}"
        raise DatasetError(f"has {SEQUENCE!r} as {found}; expected one whole number or text each")
    return texts_of(values) if values.dtype.kind == "U" else values.tolist()


def _read_record_files(path: Path, inputs: Sequence[Input], form: LabelForm) -> _Content:
    from pytest_mlms.measure.pipeline.records_dataset import read_records

    found = read_records(find_records(path), _without_states(inputs), form)
    return _Content(found.elements, found.labels, places=found.places)


def _read_coco(path: Path, inputs: Sequence[Input], form: LabelForm) -> _Content:
    from pytest_mlms.measure.pipeline.coco import read_coco

    if len(inputs) != 1 or inputs[0].type != "image":
        advice = "a COCO file is for a model with one input, of type image"
        raise DatasetError(f"has pictures, for {len(inputs)} inputs; {advice}")
    try:
        found = read_coco(path)
    except DatasetError as error:
        raise DatasetError(f"has labels that can't be used: {error}") from error
    elements = {inputs[0].name: found.pictures}
    return _Content(elements, found.labels, found.files, found.places)


def _column_names(inputs: Sequence[Input]) -> list[str]:
    """Return the columns of all inputs; several inputs may be made from one."""
    names: dict[str, None] = {}
    for spec in inputs:
        names.update(dict.fromkeys(spec.columns))
    return list(names)


def _read_folder(
    path: Path, inputs: Sequence[Input], form: LabelForm, classes: ClassNumbers
) -> _Content:
    tables = sorted(path.rglob(LABELS_CSV))
    if len(tables) != 1:
        found = f"{len(tables)} {LABELS_CSV}"
        raise DatasetError(f"has {found}; write one, with a row for each element")
    try:
        read_labels = partial(labels_of_column, form=form, classes=classes)
        return _read_table(path, tables[0], inputs, read_labels)
    except DatasetError as error:
        raise DatasetError(f"has a table that can't be used: {error}") from error


def _read_table(
    root: Path, path: Path, inputs: Sequence[Input], read_labels: Callable[[TableFolder], Labels]
) -> _Content:
    data_inputs = _without_states(inputs)
    has_files = not all(spec.takes_text for spec in data_inputs)
    optional = SEQUENCE if len(data_inputs) < len(inputs) else None
    table = read_labels_csv(path, _column_names(data_inputs), has_files, optional)
    source = TableFolder(table, path.parent, root)
    elements = {spec.name: _column(source, spec) for spec in data_inputs}
    files = _file_names(table, data_inputs)
    return _Content(
        elements, read_labels(source), files, TablePlaces(table, files), table.sequences
    )


def _file_names(table: Table, inputs: Sequence[Input]) -> Sequence[str] | None:
    """Return the files of the first input that has files; None where none has."""
    for spec in inputs:
        cells = table.inputs[spec.columns[0]]
        if not spec.takes_text and cells and parse_numbers(cells[0]) is None:
            return cells
    return None


def _column(source: TableFolder, spec: Input) -> Sequence[Element]:
    """Return the elements of an input: the files of images, texts, or numbers and files."""
    cells = source.table.inputs[spec.columns[0]]
    if spec.type in ("image", "audio"):
        return source.files(cells)
    if spec.takes_text:
        return paired([TextCells(source, source.table.inputs[name]) for name in spec.columns])
    return Cells(source, cells, _element_shape(spec))


def _element_shape(spec: Input) -> tuple[int, ...] | None:
    """Return the shape of one element of a tensor, where the manifest says it."""
    if spec.shape is None or spec.named_axes:
        return None
    return tuple(axis for axis in spec.shape if axis != BATCH)
