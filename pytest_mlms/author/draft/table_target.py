"""The columns of a table that are features, and the one that is the target."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mlms_predictors import Tensor

from pytest_mlms.author.draft.axes import TEXTS
from pytest_mlms.author.draft.table_files import ColumnsData, is_number
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest.types import instead

TARGETS = ("target", "label", "y", "class")
"""Names of the target, in letters of any case, also in the plural."""

_INDEX = re.compile(r"(unnamed: 0)?", re.IGNORECASE)
_ID = re.compile(r"(?i:unnamed: \d+|index|idx|row|nr|no|number|(.*[_ -])?id)?|.*[a-z]I[dD]")
_SHOWN = 12  # columns in an error


@dataclass(frozen=True)
class Roles:
    """The columns of each input by its name, the target, and why it is that one.

    There are several targets where a model gives several numbers, and none where a table has no
    labels. ``unused`` are the columns that are left.
    """

    features: Mapping[str, Sequence[str]]
    targets: Sequence[str]
    reason: str
    unused: Sequence[str] = ()


Better = Callable[[str, str], str]
"""Returns which of two columns the outputs of the model fit better, as the target."""


def width_of(tensor: Tensor) -> int | None:
    """Return how many numbers an input takes for an element, None where it takes any."""
    width = 1
    for size in tensor.shape[1:]:
        if size is None:
            return None
        width *= size
    return width if tensor.shape else None


def find_roles(
    data: ColumnsData,
    tensors: Sequence[Tensor],
    gives: Sequence[Tensor],
    target: Sequence[str],
    better: Better,
) -> Roles:
    """Return the role of each column. Raises MlmsError where it can't be known, with what to do.

    ``tensors`` are the inputs of the model, ``gives`` its outputs, and ``target`` the columns that
    the user calls so.
    """
    given = [_named(data, name) for name in target]
    by_name = _by_name(data, tensors, given)
    if by_name:
        return beside(data, by_name, given)
    if len(tensors) != 1:
        return _refuse_inputs(data, tensors)
    return _of_one_input(data, tensors[0], gives, given, better)


def _named(data: ColumnsData, name: str) -> str:
    """Return the column that a user names."""
    if name in data.columns:
        return name
    raise MlmsError(f"{data.path} has no column {name!r}; {instead(name, data.names[:_SHOWN])}")


def _by_name(
    data: ColumnsData, tensors: Sequence[Tensor], targets: Sequence[str]
) -> dict[str, Sequence[str]]:
    """Return the column of each input that is called like it; nothing unless all have one.

    Names may differ in what is no letter or digit, and in the case of letters.
    """
    if not data.has_header or any(width_of(tensor) not in (1, None) for tensor in tensors):
        return {}
    if len(tensors) == 1 and width_of(tensors[0]) is None:
        return {}
    names = [name for name in data.names if name not in targets]
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(_comparable(name), []).append(name)
    found: dict[str, Sequence[str]] = {}
    for tensor in tensors:
        same = [tensor.name] if tensor.name in names else alike.get(_comparable(tensor.name), [])
        if len(same) == 1:
            found[tensor.name] = same
    return found if len(found) == len(tensors) else {}


def _comparable(name: str) -> str:
    return re.sub(r"[\W_]+", "_", name).strip("_").casefold()


def _refuse_inputs(data: ColumnsData, tensors: Sequence[Tensor]) -> Roles:
    """Raise MlmsError for a model whose inputs aren't columns of the table."""
    known = {_comparable(name) for name in data.names} if data.has_header else set()
    missing = [tensor.name for tensor in tensors if _comparable(tensor.name) not in known]
    if not data.has_header:
        names = ",".join(tensor.name for tensor in tensors)
        problem = f"{data.path} has no names of columns, and the model has {len(tensors)} inputs"
        raise MlmsError(f"{problem}; write them into its first line: {names},target")
    if missing and all(width_of(tensor) == 1 for tensor in tensors):
        problem = f"{data.path} has no column {missing[0]!r}, which is an input of the model"
        raise MlmsError(f"{problem}; rename one of {_listed(data.names)}")
    names = ", ".join(tensor.name for tensor in tensors)
    problem = f"{data.path} is a table, and the model has the inputs {names} of several columns"
    raise MlmsError(f"{problem}; save them as arrays: numpy.savez(…, {tensors[0].name}=…, label=…)")


def beside(data: ColumnsData, features: Mapping[str, Sequence[str]], given: Sequence[str]) -> Roles:
    """Return the roles where the features are known by their names."""
    taken = {name for names in features.values() for name in names}
    rest = [name for name in data.names if name not in taken]
    if given:
        targets, reason = list(given), "as --target says"
    else:
        found = _by_usual_name(data, rest)
        others = [name for name in rest if not _is_id(data, name)]
        if found:
            targets, reason = [found], "by its name"
        elif len(others) == 1:
            targets, reason = others, "the only other column that is no input"
        elif others:
            problem = f"{data.path} has {_listed(others)} beside the inputs of the model"
            raise MlmsError(f"{problem}; say which is the target: --target {_quoted(others[-1])}")
        else:
            problem = f"{data.path} has no column beside the inputs of the model"
            raise MlmsError(f"{problem}; add one with what is right, called target")
    unused = [name for name in rest if name not in targets]
    return Roles(features, targets, reason, unused)


def _of_one_input(
    data: ColumnsData,
    tensor: Tensor,
    gives: Sequence[Tensor],
    given: Sequence[str],
    better: Better,
) -> Roles:
    """Return the roles for a model with one input, which takes columns in their order."""
    width = width_of(tensor)
    unused = [name for name in data.names[:1] if _INDEX.fullmatch(name) and data.has_header]
    names = [name for name in data.names if name not in unused]
    targets = list(given)
    reason = "as --target says"
    if not targets:
        found = _by_usual_name(data, names)
        if found:
            targets, reason = [found], "by its name"
    if not targets:
        ids = [name for name in names if _is_id(data, name)]
        if width is not None and len(names) - len(ids) > width:
            names, unused = [name for name in names if name not in ids], [*unused, *ids]
        dates = [name for name in names if data.kind(name) == "dates"]
        if width is not None and len(names) - len(dates) > width:
            names, unused = [name for name in names if name not in dates], [*unused, *dates]
        texts = [name for name in names if _has_classes(data, name)]
        others_fit = width is None or len(names) == width + 1
        if len(texts) == 1 and others_fit and len(names) > 1 and tensor.dtype != TEXTS:
            targets, reason = texts, "the only one of texts"
        else:
            targets, reason = _last(data, names, width, gives, better)
    names = [name for name in names if name not in targets]
    names, left_out = _fitting(data, names, width, tensor)
    return Roles({tensor.name: names}, targets, reason, [*unused, *left_out])


def _has_classes(data: ColumnsData, name: str) -> bool:
    """Return whether a column has texts, and not numbers of which one is mistyped."""
    cells = data.columns[name]
    return data.kind(name) == "texts" and sum(map(is_number, cells)) < len(cells) / 2


def _by_usual_name(data: ColumnsData, names: Sequence[str]) -> str | None:
    """Return the column that is called as targets are. Raises MlmsError where several are."""
    found = []
    for name in names if data.has_header else ():
        singular = name.casefold().strip()
        if singular in TARGETS or singular.removesuffix("s") in TARGETS or singular == "classes":
            found.append(name)
    alike = {name.casefold().strip() for name in names}
    if "x" in alike and len(alike) > len("xy"):
        found = [name for name in found if name.casefold().strip() != "y"]  # a place
    if len(found) > 1:
        problem = f"{data.path} has the columns {_listed(found)}, of which each may be the target"
        others = " ".join(f"--without {_quoted(name)}" for name in found[1:])
        advice = f"say which it is, and which are no features: --target {_quoted(found[0])}"
        raise MlmsError(f"{problem}; {advice} {others}")
    return found[0] if found else None


def _last(
    data: ColumnsData,
    names: Sequence[str],
    width: int | None,
    gives: Sequence[Tensor],
    better: Better,
) -> tuple[list[str], str]:
    """Return the columns behind the features, and why. Raises MlmsError where that isn't known.

    There are several only where the model has an output of as many numbers.
    """
    count = 1 if width is None else len(names) - width
    if count < 1 or len(names) < 2:
        problem = f"{data.path} has {_counted(len(names))}, and the model takes {width or 1}"
        if count == 0:
            advice = "add one with what is right for each row, called target"
            raise MlmsError(f"{problem}, so that none is left for the target; {advice}")
        raise MlmsError(f"{problem}; name the table that it was trained on ({_listed(names)})")
    if count == 1:
        chosen = better(names[-1], names[0])
        if chosen == names[0]:
            return [chosen], "the first one: the model's outputs fit it, and not the last one"
        return [chosen], "the last one"
    last = list(names[-count:])
    has_numbers = all(data.kind(name) == "numbers" for name in last)
    if has_numbers and any(tensor.shape[1:] == (count,) for tensor in gives):
        return last, f"the last {count}, behind the {width} that the model takes"
    problem = f"{data.path} has {_counted(len(names))}, and the model takes {width}"
    advice = f"say which is the target, and which are no features: --target {_quoted(last[-1])}"
    likely = sorted(names[:-1], key=lambda name: not _differs_in_each_row(data, name))
    known = sum(_differs_in_each_row(data, name) for name in names[:-1])
    left_out = likely[: count - 1] if known >= count - 1 else last[:-1]
    others = " ".join(f"--without {_quoted(name)}" for name in left_out)
    raise MlmsError(f"{problem}; {advice} {others} ({_listed(names)})")


def _differs_in_each_row(data: ColumnsData, name: str) -> bool:
    """Return whether a column has another whole number or text in each row, as keys are."""
    cells = data.columns[name]
    are_keys = data.kind(name) == "texts" or all(cell.isdecimal() for cell in cells)
    return are_keys and len(set(cells)) == len(cells)


def _fitting(
    data: ColumnsData, names: Sequence[str], width: int | None, tensor: Tensor
) -> tuple[list[str], list[str]]:
    """Return as many columns as a model takes, and those that are left out.

    These are what numbers rows, and texts where the model takes numbers. Raises MlmsError where
    there are more or less.
    """
    kept = list(names)
    if width is None or len(kept) == width:
        return kept, []
    ids = [name for name in kept if _is_id(data, name)]
    numbers = ("numbers", "truths")
    texts = [name for name in kept if name not in ids and data.kind(name) not in numbers]
    for left_out in (ids, texts if tensor.dtype != TEXTS else [], [*ids, *texts]):
        if left_out and len(kept) - len(left_out) == width:
            return [name for name in kept if name not in left_out], list(left_out)
    problem = f"{data.path} has {_counted(len(kept))} of features, and the model takes {width}"
    if len(kept) > width:
        wrong = _quoted((ids or texts or kept)[0])
        advice = f"leave out those that it was not trained on: --without {wrong}"
    else:
        advice = "name the table that it was trained on, with the same columns"
    raise MlmsError(f"{problem} in {tensor.name!r}; {advice} ({_listed(kept)})")


def _is_id(data: ColumnsData, name: str) -> bool:
    """Return whether a column numbers the rows, or is called as if it did."""
    if data.has_header and _ID.fullmatch(name):
        return True
    if data.has_header and name != data.names[0]:
        return False
    cells = data.columns[name]
    counts = len(cells) > 2 and all(cell.isdecimal() for cell in cells)
    return counts and all(int(b) - int(a) == 1 for a, b in itertools.pairwise(cells))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return f"{shown} …" if len(names) > _SHOWN else shown


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]+", name) else repr(name)


def _counted(columns: int) -> str:
    return "1 column" if columns == 1 else f"{columns} columns"
