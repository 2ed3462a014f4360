"""A table as the arrays that a model takes, packed beside the manifest."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from mlms_predictors import Tensor
from numpy.typing import NDArray

from pytest_mlms.author.draft.axes import TEXTS, pinned
from pytest_mlms.author.draft.data import ArrayData, pack_arrays
from pytest_mlms.author.draft.model_files import ModelFiles
from pytest_mlms.author.draft.onnx_hints import categories_in, classes_in
from pytest_mlms.author.draft.opening import DraftRequest
from pytest_mlms.author.draft.table_files import ColumnsData, is_missing
from pytest_mlms.author.draft.table_labels import (
    Classes,
    check_order,
    count_of_scores,
    labels_of,
    may_give_classes,
)
from pytest_mlms.author.draft.table_series import Windows, cut, in_time, windows_of
from pytest_mlms.author.draft.table_target import Roles, beside, find_roles
from pytest_mlms.author.draft.table_texts import (
    TOKENIZER,
    classes_of_config,
    text_column,
    token_inputs,
)
from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.measure.pipeline import read_labels

_SHOWN = 8  # columns or lines in a sentence
_LEAST_SIDE = 4  # pixels
_TYPES_OF_PICTURES = ("float16", "float32", "float64", "uint8")
_LARGEST_PIXEL = 255


def arrays_of_table(
    data: ColumnsData, model: ModelFiles, predictor: Predictor, request: DraftRequest
) -> ArrayData:
    """Return the inputs and labels of a table, which are packed beside the manifest.

    Raises MlmsError where the table and the model don't fit, with what to do.
    """
    data = _without(data, request.without_columns)
    tensors = [pinned(tensor, request.shapes) for tensor in predictor.inputs]
    windows = windows_of(data, tensors, request.target_columns)
    if windows is not None:
        return _arrays_of_series(data, windows, predictor, request)
    count = len(data.lines)
    classes = _classes_of(model, predictor, request)
    column = text_column(data, tensors, request.target_columns)
    if column is not None:
        return _arrays_of_texts(data, column, model, tensors, classes, request)

    roles = find_roles(data, predictor, classes, request.target_columns)
    _say_left_out(data, roles, request)
    data = _with_targets(data, roles, classes, request)
    all_labels, order = labels_of(data, roles.targets, classes)
    all_lines = data.lines
    known = categories_in(model.graph)
    categories: list[str] = []
    for tensor in predictor.inputs:
        if known and tensor.dtype == TEXTS:
            categories += roles.features[tensor.name]
    data = _as_categories(data, categories, known, request)
    data = _sample(data, request.most_inputs)
    inputs = _inputs(data, roles, predictor.inputs)
    data, inputs = _with_answers(data, inputs, known, predictor, request)
    labels = all_labels[np.searchsorted(all_lines, data.lines)]
    is_guess = not set(data.columns[roles.targets[0]]) <= set(classes.names)
    if is_guess and labels.ndim == 1 and labels.dtype.kind == "i":
        check_order(data, roles.targets[0], labels, inputs, predictor)

    names = ", ".join(data.shown(name) for name in roles.targets)
    taken = f"label: {names}, {roles.reason}"
    taken += f"; {order}" if order else ""
    request.say(f"{data.path}: {taken}")
    for name, columns in roles.features.items():
        request.say(f"{data.path}: {name!r} has {_counted(columns)}")
    part = f"{len(labels):,} rows" if len(labels) == count else f"{len(labels):,} of {count:,} rows"
    return _packed(data, {**inputs, "label": labels}, part, taken, request)


def _arrays_of_texts(
    data: ColumnsData,
    column: str,
    model: ModelFiles,
    tensors: Sequence[Tensor],
    classes: Classes,
    request: DraftRequest,
) -> ArrayData:
    """Return the texts of a column and their labels. Raises MlmsError."""
    count = len(data.lines)
    roles = beside(data, {column: [column]}, request.target_columns)
    _say_left_out(data, roles, request)
    data = _with_targets(data, roles, classes, request)
    all_labels, order = labels_of(data, roles.targets, classes)
    all_lines = data.lines
    data = _sample(data, request.most_inputs)
    parts = token_inputs(data, column, model, tensors, request)
    labels = all_labels[np.searchsorted(all_lines, data.lines)]
    taken = f"label: {data.shown(roles.targets[0])}, {roles.reason}"
    taken += f"; {order}" if order else ""
    request.say(f"{data.path}: {taken}")
    request.say(f"{data.path}: texts: {data.shown(column)}, by {model.graph.parent / TOKENIZER}")
    part = f"{len(labels):,} of {count:,} texts"
    arrays = {column: np.array(data.columns[column]), "label": labels}
    return replace(_packed(data, arrays, part, taken, request), parts=parts)


def _packed(
    data: ColumnsData, arrays: Mapping[str, Array], part: str, comment: str, request: DraftRequest
) -> ArrayData:
    """Write the arrays beside the manifest, and return them."""
    target = request.beside("data.npz")
    pack_arrays(target, arrays)
    request.say(f"{data.path}: {part}, packed into {target}")
    forms = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    return ArrayData(data.path, forms, file=target, comment=comment)


def _arrays_of_series(
    data: ColumnsData, form: Windows, predictor: Predictor, request: DraftRequest
) -> ArrayData:
    """Return the windows of a table of values over time, and what follows each.

    Raises MlmsError where the table and the model don't fit, with what to do.
    """
    data, sorted_by = in_time(data, form.columns)
    if sorted_by:
        request.say(f"{data.path}: sorted by {sorted_by}")
    found = cut(data, form, predictor, request.target_columns)
    name = predictor.inputs[0].name
    taken = f"label: {found.reason}"
    request.say(f"{data.path}: {taken}")
    request.say(f"{data.path}: {name!r} has windows of {form.size} times, {_counted(form.columns)}")
    if found.left_out:
        request.say(f"{_places(data, found.left_out)}: missing values, left out with their windows")
    count = len(found.labels)
    chosen = np.arange(count)
    if count > request.most_inputs:
        chosen = np.sort(random.Random(0).sample(range(count), request.most_inputs))
    part = f"{len(chosen):,} of {count:,} windows" if len(chosen) < count else f"{count:,} windows"
    labels = found.labels[chosen]
    labels = labels[:, 0] if labels.shape[1] == 1 else labels
    return _packed(data, {name: found.inputs[chosen], "label": labels}, part, taken, request)


def _without(data: ColumnsData, names: Sequence[str]) -> ColumnsData:
    for name in names:
        if name not in data.columns:
            there = ", ".join(data.names[:_SHOWN])
            raise MlmsError(f"--without {name}: {data.path} has no such column, but {there}")
    return data.without(names)


def _classes_of(model: ModelFiles, predictor: Predictor, request: DraftRequest) -> Classes:
    """Return the classes of a model, by --labels, its file, or the shapes of its outputs."""
    count, has_scores = count_of_scores(predictor.outputs)
    has_classes = may_give_classes(predictor.outputs)
    if request.labels is not None:
        return Classes(read_labels(request.labels), str(request.labels), count, True)
    names = classes_in(model.graph) or classes_of_config(model)
    if count is not None and len(names) not in (0, count):
        names = []
    return Classes(names, "the model's file" if names else "", count, has_scores, has_classes)


def _say_left_out(data: ColumnsData, roles: Roles, request: DraftRequest) -> None:
    if roles.unused:
        names = ", ".join(name or "the one without a name" for name in roles.unused[:_SHOWN])
        request.say(f"{data.path}: neither features nor target, left out: {names}")


def _with_targets(
    data: ColumnsData, roles: Roles, classes: Classes, request: DraftRequest
) -> ColumnsData:
    """Return the rows that have all targets. Raises MlmsError where none has.

    What stands for no value elsewhere may be a class, such as None.
    """
    lacking: set[int] = set()
    for name in roles.targets:
        for row, cell in enumerate(data.columns[name]):
            if is_missing(cell) and cell not in classes.names:
                lacking.add(row)
    kept = [row for row in range(len(data.lines)) if row not in lacking]
    if not kept:
        problem = f"{data.path}: {data.shown(roles.targets[0])}, the target, is empty"
        raise MlmsError(f"{problem}; say another one: --target NAME")
    if lacking:
        request.say(f"{_places(data, sorted(lacking))}: left out: no target")
    return data.rows(kept)


def _sample(data: ColumnsData, most: int) -> ColumnsData:
    """Return at most so many rows in their order, drawn with a fixed seed."""
    count = len(data.lines)
    if count <= most:
        return data
    return data.rows(sorted(random.Random(0).sample(range(count), most)))


def _as_categories(
    data: ColumnsData, names: Sequence[str], known: frozenset[str], request: DraftRequest
) -> ColumnsData:
    """Return a table whose columns of categories have them as the model knows them.

    They begin with a blank where it was trained on those of a table with blanks behind its commas,
    as pandas reads them. Those that it doesn't know are said: it takes them for none.
    """
    columns = dict(data.columns)
    for name in names:
        cells = columns[name]
        blank = [cell if cell in known else f" {cell}" for cell in cells]
        if known.isdisjoint(cells) and not known.isdisjoint(blank):
            request.say(f"{data.path}: {data.shown(name)}: with a blank first, as the model's file")
            cells = [new if new in known else cell for cell, new in zip(cells, blank, strict=True)]
            columns[name] = cells
        unknown = [cell for cell in cells if cell not in known and not is_missing(cell)]
        if unknown:
            problem = f"{len(unknown):,} of {len(cells):,} texts are no categories of the model"
            request.say(f"{data.path}: {data.shown(name)}: {problem}, such as {unknown[0]!r}")
    return replace(data, columns=columns)


def _inputs(data: ColumnsData, roles: Roles, tensors: Sequence[Tensor]) -> dict[str, Array]:
    """Return the array of each input. Raises MlmsError for a cell that it can't have."""
    found = {}
    for tensor in tensors:
        columns = [_column(data, name, tensor) for name in roles.features[tensor.name]]
        found[tensor.name] = _in_shape(np.stack(columns, axis=1), tensor)
    return found


def _column(data: ColumnsData, name: str, tensor: Tensor) -> Array:
    """Return the cells of a column in the type of its input."""
    cells = data.columns[name]
    if tensor.dtype == TEXTS:
        return np.array(cells, dtype=str)
    kind = np.dtype(tensor.dtype or "float32")
    advice = f"encode it as in training, or leave the column out: --without {name}"
    if data.kind(name) == "dates":
        advice = f"a model takes no dates; leave the column out: --without {name}"
    advice = f", and the model takes {kind}; {advice}"
    numbers = np.array(data.numbers(name, advice), np.float64)
    _check_held(data, name, numbers, kind)
    return numbers


def _check_held(data: ColumnsData, name: str, numbers: Array, kind: np.dtype[Any]) -> None:
    """Raise MlmsError for the first number that a type doesn't hold."""
    known = np.isfinite(numbers)
    with np.errstate(all="ignore"):
        cast = np.where(known, numbers, 0).astype(kind)
    wrong = known & ~np.isfinite(cast) if kind.kind == "f" else known & (cast != numbers)
    if wrong.any():
        row = int(wrong.argmax())
        problem = f"{data.path}:{data.lines[row]}: {data.shown(name)} is {data.columns[name][row]}"
        raise MlmsError(f"{problem}, which {kind} does not hold; correct it, or leave the row out")


def _in_shape(rows: Array, tensor: Tensor) -> Array:
    """Return rows (N x columns) in the shape of an input.

    Numbers from 0 to 255 for a batch of pictures become pictures of bytes, whose range in training
    is then found out.
    """
    sizes = [size or rows.shape[1] for size in tensor.shape[1:]]
    if len(tensor.shape) == 1:
        return rows[:, 0].astype(tensor.dtype) if tensor.dtype != TEXTS else rows[:, 0]
    if tensor.dtype == TEXTS:
        return rows.reshape(len(rows), *sizes)
    if len(sizes) == len("HWC") and 1 in (sizes[0], sizes[2]) and _are_pixels(rows):
        sides = sizes[1:] if sizes[0] == 1 else sizes[:2]
        if min(sides) < _LEAST_SIDE or tensor.dtype not in _TYPES_OF_PICTURES:
            return rows.reshape(len(rows), *sizes).astype(tensor.dtype)
        return rows.reshape(len(rows), *sides).astype(np.uint8)
    shape = (len(rows), *sizes) if sizes else rows.shape
    values: Array = rows.reshape(shape)
    if not np.isnan(values).any() or np.dtype(tensor.dtype or "float32").kind == "f":
        return values.astype(tensor.dtype or "float32")
    return values  # rows with NaN are left out before they are cast


def _are_pixels(rows: Array) -> bool:
    return bool(((rows >= 0) & (rows <= _LARGEST_PIXEL) & (np.floor(rows) == rows)).all())


def _with_answers(
    data: ColumnsData,
    inputs: Mapping[str, Array],
    known: frozenset[str],
    predictor: Predictor,
    request: DraftRequest,
) -> tuple[ColumnsData, dict[str, Array]]:
    """Return the rows without missing values, beside those that the model gives numbers for.

    A category that is ``known`` isn't missing, such as "NA". Raises MlmsError where no row is left.
    """
    lacking = np.zeros(len(data.lines), bool)
    for array in inputs.values():
        lacking |= _are_missing(array, known).reshape(len(array), -1).any(axis=1)
    if not lacking.any():
        return data, dict(inputs)
    places = _places(data, np.flatnonzero(lacking).tolist())
    rows_lacking = {name: array[lacking] for name, array in inputs.items()}
    if _takes_missing(rows_lacking, known, predictor):
        request.say(f"{places}: missing values, kept as NaN, as the model has answers for them")
        return data, dict(inputs)
    if lacking.all():
        raise MlmsError(f"{data.path}: every row has missing values; fill them in as in training")
    request.say(f"{places}: left out: missing values, and the model takes no NaN")
    kept = np.flatnonzero(~lacking)
    types = {tensor.name: tensor.dtype for tensor in predictor.inputs}
    chosen = {}
    for name, array in inputs.items():
        rows = array[kept]
        chosen[name] = rows.astype(types[name]) if rows.dtype == np.float64 else rows
    return data.rows(kept.tolist()), chosen


def _are_missing(array: Array, known: frozenset[str]) -> NDArray[np.bool_]:
    """Return where an array of numbers or texts has no value."""
    if array.dtype.kind != "U":
        return np.isnan(array.astype(np.float64))
    missing = [is_missing(cell) and cell not in known for cell in array.reshape(-1).tolist()]
    return np.array(missing, bool).reshape(array.shape)


def _takes_missing(
    inputs: Mapping[str, Array], known: frozenset[str], predictor: Predictor
) -> bool:
    """Return whether a model takes NaN in all of its inputs that have some, and gives no NaN."""
    for tensor in predictor.inputs:
        has_some = _are_missing(inputs[tensor.name], known).any()
        if has_some and not tensor.dtype.startswith("float"):
            return False
    try:
        outputs = predictor.predict(dict(inputs))
    except Refused:
        return False
    numbers = [array for array in outputs.values() if array.dtype.kind == "f"]
    return bool(numbers) and all(bool(np.isfinite(array).all()) for array in numbers)


def _places(data: ColumnsData, rows: Sequence[int]) -> str:
    """Return the lines of some rows, as a message names them."""
    shown = ", ".join(str(data.lines[row]) for row in rows[:_SHOWN])
    more = f" and {len(rows) - _SHOWN:,} more" if len(rows) > _SHOWN else ""
    return f"{data.path}: lines {shown}{more}" if len(rows) > 1 else f"{data.path}: line {shown}"


def _counted(columns: Sequence[str]) -> str:
    """Return the columns of an input, as a message names them."""
    shown = ", ".join(columns[:_SHOWN])
    if len(columns) > _SHOWN:
        return f"{len(columns)} columns in their order, {shown} …"
    return f"the columns {shown}" if len(columns) > 1 else f"the column {shown}"
