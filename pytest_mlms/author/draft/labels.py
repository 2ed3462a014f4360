"""The labels of the data against the outputs of a model: each label is scored, or refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

import numpy as np
from mlms_predictors import Tensor

from pytest_mlms.author.draft.data import ArrayData, Data
from pytest_mlms.author.draft.opening import Trial
from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.agent.signature import element_type_of

_MOST_CLASSES = 2**53  # beyond which floats skip whole numbers
_BINARY = 2  # classes that one score is for
_ANSWERS = ("label", "class", "pred", "answer")
"""Parts of the names of outputs that are the number of a class."""
ZIPMAP = "to_onnx(model, X, options={'zipmap': False})"
"""How skl2onnx exports scores as an array."""


def has_labels(data: Data | None) -> bool:
    """Return whether data has labels: all forms have, but an .npz need not."""
    return data is not None and (not isinstance(data, ArrayData) or "label" in data.arrays)


def check_arrays_used(data: ArrayData, inputs: Sequence[Tensor]) -> None:
    """Raise MlmsError for arrays that are neither inputs nor labels, where there is no 'label'."""
    names = {tensor.name for tensor in inputs}
    others = [name for name in data.arrays if name not in names]
    if "label" in data.arrays or not others or not names <= set(data.arrays):
        return
    problem = f"{data.path} has no array 'label', and {others[0]!r} is no input of the model"
    advice = f"save the labels by that name: numpy.savez(…, label={others[0]}), or leave it out"
    raise MlmsError(f"{problem}; {advice}")


def check_labelled(data: Data | None) -> None:
    """Raise MlmsError for data without labels, which a model with classes can't be scored by."""
    if data is not None and not has_labels(data):
        problem = f"{data.path} has no array 'label', and the model has classes"
        advice = "add it, the number of the class of each row"
        raise MlmsError(f"{problem}; {advice}: numpy.savez(…, label=…)")


def class_numbers(labels: Array) -> Array | None:
    """Return the number of each input's class (N, int64), None where labels are something else.

    Numbers of classes are whole and not negative, of any type; a label may also be a row of zeros
    with a one at its class.
    """
    rows = labels.reshape(len(labels), -1)
    if rows.dtype.kind not in "biuf":
        return None
    if rows.shape[1] == 1:
        numbers = rows[:, 0]
        is_whole = np.isfinite(numbers) & (numbers >= 0) & (numbers < _MOST_CLASSES)
        is_whole &= np.floor(np.where(is_whole, numbers, 0)) == numbers
        return numbers.astype(np.int64) if is_whole.all() else None
    is_one_hot = np.isin(rows, (0, 1)).all() and (rows.sum(axis=1) == 1).all()
    return rows.argmax(axis=1) if is_one_hot and labels.ndim == 2 else None


def score_tables(trial: Trial, *, least: int = 2, bytes_too: bool = True) -> dict[str, int]:
    """Return how many scores an input has, for each output that is a list of ``least`` or more.

    ``bytes_too`` takes scores of int8 and uint8, as quantised models give them.
    """
    found = {}
    for name, rows in _rows(trial).items():
        sizes = [size for size in rows.shape[1:] if size != 1]
        is_score = rows.dtype.kind == "f" or (bytes_too and rows.dtype in (np.int8, np.uint8))
        if is_score and len(sizes) == 1 and sizes[0] >= least:
            found[name] = sizes[0]
    return found


def are_classes(
    labels: Array, trial: Trial, data: ArrayData, quantised: Collection[str] = ()
) -> bool:
    """Return whether labels are scored as classes, and not as numbers.

    Whole numbers are classes where an output has a score for each. Raises MlmsError for labels
    that no output can be scored by.
    """
    if labels.dtype.kind not in "biuf":
        problem = f"{data.path} has the array 'label' of {labels.dtype}, not of numbers"
        advice = "save numbers of classes, in the order of the model's columns"
        raise MlmsError(f"{problem}; {advice}: numpy.unique(label, return_inverse=True)[1]")
    numbers = class_numbers(labels)
    size = labels[0].size
    singles = fitting_outputs(trial, size, quantised)  # by which they are scored as numbers
    if numbers is None:
        if not singles:
            problem = f"{data.path} has {_counted(size)} as the label of an input"
            advice = f"{_gives(trial)}; save as many as an output has, or the number of its class"
            raise MlmsError(f"{problem}, and the model {advice}")
        return False

    classes = int(numbers.max()) + 1
    count = len(np.unique(numbers))
    is_binary = classes == count == _BINARY
    if size == 1 and labels.dtype.kind == "f" and singles and not is_binary:
        return False
    tables = score_tables(trial)
    if tables and max(tables.values()) < classes:
        if size > 1 and singles:
            return False
        problem = f"{data.path} has labels up to {classes - 1}"
        advice = "correct the labels"
        if singles:
            advice += f", or write --task regression to compare them with {singles[0]!r}"
        raise MlmsError(f"{problem}, and the model {_gives(trial)}; {advice}")
    return bool(tables) or not singles or count <= _BINARY


def check_classes_or_numbers(data: ArrayData, trial: Trial) -> None:
    """Raise MlmsError for whole numbers that both a table and an output of one number may be for.

    A hidden layer beside the number of a regression has as many columns as classes might be, and a
    confidence beside the scores of a classification is one number as that of a regression is.
    """
    numbers = class_numbers(data.labels)
    if numbers is None:
        return
    tables = list(score_tables(trial, least=int(numbers.max()) + 1))
    singles = fitting_outputs(trial, 1)
    if tables and singles:
        problem = f"{data.path} has whole numbers as labels, which may be classes, by {tables[0]!r}"
        advice = "say which: --task classification, or --task regression"
        raise MlmsError(f"{problem}, or numbers, by {singles[0]!r}; {advice}")


def fitting_outputs(trial: Trial, size: int, quantised: Collection[str] = ()) -> list[str]:
    """Return the outputs of so many real numbers an input, which may be compared with labels.

    Those that are ``quantised`` stand for real numbers.
    """
    return [
        name
        for name, values in _rows(trial).items()
        if (values.dtype.kind == "f" or name in quantised) and values[0].size == size
    ]


def number_of_class(trial: Trial) -> str | None:
    """Return the output of one whole number an input, which is that of its class; None if unclear.

    Bytes may be quantised scores instead.
    """
    found = []
    for name, rows in _rows(trial).items():
        is_whole = rows.dtype.kind in "biu" and rows.dtype not in (np.int8, np.uint8)
        if is_whole and rows[0].size == 1:
            found.append(name)
    named = [name for name in found if any(word in name.lower() for word in _ANSWERS)]
    likely = named or found
    return likely[0] if len(likely) == 1 else None


def maps_among(tensors: Sequence[Tensor]) -> list[str]:
    """Return the names of outputs that are a map for each input, as skl2onnx has scores."""
    return [tensor.name for tensor in tensors if tensor.dtype.startswith("seq(map(")]


def refuse_unused(data: Data, tensors: Sequence[Tensor], trial: Trial) -> NoReturn:
    """Raise MlmsError for labels of classes of which no output has scores, with what to write."""
    problem = f"{data.path} has labels, and no output of the model has a score for each class"
    raise MlmsError(f"{problem}: {_why_unscored(tensors, trial)}")


def _why_unscored(tensors: Sequence[Tensor], trial: Trial) -> str:
    """Return what the outputs have instead of a score for each class, and what mends it."""
    for name in maps_among(tensors):
        found = f"{name!r} is a map for each input"
        return f"{found}; export it as an array, with skl2onnx: {ZIPMAP}"
    rows = _rows(trial)
    for name, values in rows.items():
        if values[0].size == 1 and values.dtype.kind == "f":
            found = f"{name!r} has one score for each input, which tells two classes, 0 and 1"
            advice = "export the model with a column for each class, or write"
            return f"{found}; {advice} --task regression to compare the numbers themselves"
    for name, values in rows.items():
        if values[0].size == 1:
            found = f"{name!r} has the answer for each input ({element_type_of(values)})"
            return f"{found}; export the model with the scores too, such as probabilities"
    advice = "export the model with an output of inputs x classes"
    return f"it {_gives(trial)}; {advice}, or name what it does: --task NAME"


def _gives(trial: Trial) -> str:
    """Return what the outputs have for each input."""
    shown = [f"{name!r} {_counted(values[0].size)}" for name, values in _rows(trial).items()]
    return f"gives {', '.join(shown)}" if shown else "gives no row for each input"


def _counted(numbers: int) -> str:
    return "1 number" if numbers == 1 else f"{numbers:,} numbers"


def _rows(trial: Trial) -> Mapping[str, Array]:
    """Return the outputs that have a row for each input, that axis first."""
    names = [name for name in trial.outputs if trial.batch_axis(name) is not None]
    return {name: trial.rows(name) for name in names}
