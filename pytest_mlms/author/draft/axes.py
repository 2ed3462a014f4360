"""The axes of a model's inputs: which is the batch, and the sizes of those that it leaves free.

The user's own words (``--shape``) come first, then the names of axes in the model's file, then what
is usual.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from mlms_predictors import Tensor

from pytest_mlms.author.draft.onnx_hints import Axes
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest.schema import BATCH
from pytest_mlms.manifest.types import instead

Said = Mapping[str, Sequence[int | str]]
"""The shapes that the user says, by input: a size for each axis, or the word batch."""
Named = Mapping[str, Axes | None]
"""The axes of inputs as the model's file names them."""

TEXTS = "string"
"""The type of an input of texts."""

OTHER = 16
"""The size of an axis of which nothing is known."""
_TOKENS = 64
_SAMPLES = 16000  # of audio, a second

_BATCH_NAME = re.compile(r"(n_?)?batch(_?size)?|bsz?|[nb]", re.IGNORECASE)
_OTHER_NAME = re.compile(
    r"(?!.*batch).*(frame|height|len(gth|$)|point|seq(?!uences)|time|token|width)", re.IGNORECASE
)
"""Names of axes that are no batch."""
_SUM = re.compile(r"\s*(\w+)\s*\+\s*(\w+)\s*")
_PAST, _TOTAL = "past", "total"
"""Parts of the names of axes of positions: those before a call, and those with them."""


@dataclass(frozen=True)
class InputAxes:
    """The axes of an input.

    Attributes:
        batch: The number of the batch's axis, None where there is none.
        sizes: The size of each axis, 1 for a batch of any size.
        guessed: The axes whose sizes are guesses.
        is_free: Whether the batch may have any size.
        is_told: Whether the model's own signature says as much.
        comment: Why the batch is taken to be that axis, "" where it is plain.
    """

    batch: int | None
    sizes: tuple[int, ...]
    guessed: tuple[int, ...] = ()
    is_free: bool = False
    is_told: bool = True
    comment: str = ""

    @property
    def written(self) -> list[int | str]:
        """The shape as a manifest has it."""
        return [BATCH if axis == self.batch else size for axis, size in enumerate(self.sizes)]


def may_be_alike(tensor: Tensor, other: Tensor) -> bool:
    """Return whether an array may be of both; a type or an axis that isn't told fits any."""
    if tensor.dtype and other.dtype and tensor.dtype != other.dtype:
        return False
    if not tensor.shape or not other.shape:
        return True
    if len(tensor.shape) != len(other.shape):
        return False
    sizes = zip(tensor.shape, other.shape, strict=True)
    return all(None in pair or pair[0] == pair[1] for pair in sizes)


def option_of(name: str, shape: Sequence[int | str]) -> str:
    """Return the option that says the shape of an input."""
    return f"--shape {shlex.quote(name + '=' + ','.join(map(str, shape)))}"


def axes_of(tensors: Sequence[Tensor], named: Named, said: Said) -> dict[str, InputAxes]:
    """Return the axes of all inputs by name. Raises MlmsError where they can't be known."""
    _check_said(tensors, named, said)
    named = {name: axes for name, axes in named.items() if axes}
    sizes = _sizes_by_name(tensors, named, said)
    common = _common_batch(tensors, named, said)
    return {tensor.name: _axes(tensor, named, said, sizes, common) for tensor in tensors}


def kind_of(dtype: str) -> str:
    """Return numpy's letter for a type, that of objects for one that numpy doesn't have."""
    try:
        return np.dtype(dtype or object).kind
    except TypeError:
        return "O"


def batch_size(axes: Mapping[str, InputAxes]) -> int | None:
    """Return the only size of batch that inputs take, None for any.

    Raises MlmsError for several.
    """
    having = [each for each in axes.values() if each.batch is not None]
    fixed = {each.sizes[each.batch or 0] for each in having if not each.is_free}
    if len(fixed) > 1:
        sizes = " and of ".join(map(str, sorted(fixed)))
        advice = "say which axis it is: --shape NAME=2,batch,128"
        raise MlmsError(f"the inputs have batches of {sizes}; {advice}")
    if fixed:
        return fixed.pop()
    return None if having else 1


def pinned(tensor: Tensor, said: Said) -> Tensor:
    """Return an input with the sizes of its free axes that the user says, but for the batch."""
    words = said.get(tensor.name, ())
    if len(words) != len(tensor.shape):  # which is refused by axes_of
        return tensor
    sizes = [
        word if size is None and isinstance(word, int) and axis else size
        for axis, (size, word) in enumerate(zip(tensor.shape, words, strict=True))
    ]
    return tensor._replace(shape=tuple(sizes))


def _check_said(tensors: Sequence[Tensor], named: Named, said: Said) -> None:
    """Raise MlmsError for a shape of no input, of another rank, or with another size."""
    by_name = {tensor.name: tensor for tensor in tensors}
    for name, words in said.items():
        if name not in by_name:
            advice = instead(name, sorted(by_name))
            raise MlmsError(f"--shape {name}=…: the model has no input {name!r}; {advice}")
        shape = by_name[name].shape
        if not shape and named.get(name) != ():
            continue  # of any rank, as far as is known
        found = " x ".join("any" if size is None else str(size) for size in shape)
        own = found or "a single number"
        option = option_of(name, words)
        if len(words) != len(shape):
            problem = f"{option} is of {len(words)}, and the axes of the model's input are"
            raise MlmsError(f"{problem} {len(shape)} ({own}); write a size, or 'batch', for each")
        for word, size in zip(words, shape, strict=True):
            if size is not None and word not in (size, BATCH):
                problem = f"{option} says {word} where the model's input has {size}"
                raise MlmsError(f"{problem} ({own}); write sizes for axes of any size only")


def _names(tensor: Tensor, named: Named, said: Said) -> list[str]:
    """Return the name of each axis of an input, "" where it has none."""
    rank = len(tensor.shape) or len(said.get(tensor.name, ()))
    names = [axis if isinstance(axis, str) else "" for axis in named.get(tensor.name) or ()]
    return names if len(names) == rank else [""] * rank


def _sizes_by_name(tensors: Sequence[Tensor], named: Named, said: Said) -> dict[str, int]:
    """Return a size for each name of a free axis: the user's, or a guess by the first input."""
    sizes: dict[str, int] = {}
    guesses: dict[str, int] = {}
    for tensor in tensors:
        names = _names(tensor, named, said)
        for name, word in zip(names, said.get(tensor.name, ()), strict=False):
            if isinstance(word, int):
                sizes.setdefault(name, word)
        for axis, name in enumerate(names):
            guesses.setdefault(name, _free_size(tensor, axis))
    sums = [name for name in guesses if _SUM.fullmatch(name) or _TOTAL in name]
    sizes = {**{name: size for name, size in guesses.items() if name not in sums}, **sizes}
    for name in sums:
        parts = _parts_of(name, sizes)
        if parts and all(part.isdecimal() or part in sizes for part in parts):
            added = [int(part) if part.isdecimal() else sizes[part] for part in parts]
            sizes.setdefault(name, sum(added))
    sizes.pop("", None)
    return sizes


def _parts_of(name: str, sizes: Mapping[str, int]) -> Sequence[str]:
    """Return the names of axes of which an axis has the positions of both; [] for another axis."""
    found = _SUM.fullmatch(name)
    if found:
        return found.groups()
    if _TOTAL not in name:
        return []
    past = [other for other in sizes if _PAST in other]
    rest = [other for other in sizes if "seq" in other and _PAST not in other]
    return [past[0], rest[0]] if past and rest else []


def _free_size(tensor: Tensor, axis: int) -> int:
    """Return a size for a free axis: of an input of two, the second one has samples of audio."""
    if tensor.dtype == TEXTS:
        return 1
    if kind_of(tensor.dtype) in "iub":
        return _TOKENS
    return _SAMPLES if len(tensor.shape) == 2 and axis == 1 else OTHER


@dataclass(frozen=True)
class _Batch:
    """The axis and size of the batch, as all inputs tell them.

    ``is_free``: whether some input has a free one. Otherwise it has one ``size``. ``name`` is that
    of its axis, "" where it has none.
    """

    is_free: bool
    size: int | None
    name: str


def _common_batch(tensors: Sequence[Tensor], named: Named, said: Said) -> _Batch:
    """Return what is known of the batch of a model.

    A model without free axes has the size that is the first of an input, and in all others.
    """
    free = [tensor for tensor in tensors if _may_be_first(tensor, named, said)]
    is_free = bool(free) or any(
        _batch_by_name(tensor, named, said) is not None or BATCH in said.get(tensor.name, ())
        for tensor in tensors
    )
    shapes = [tensor.shape for tensor in tensors if tensor.shape]
    firsts = [shape[0] for shape in shapes]
    shared = [size for size in firsts if all(size in shape for shape in shapes)]
    name = _names(free[0], named, said)[0] if free else ""
    return _Batch(is_free, next(iter([*shared, *firsts]), None), name)


def _may_be_first(tensor: Tensor, named: Named, said: Said) -> bool:
    """Return whether the first axis is free, and not called as another one than the batch."""
    is_free = tensor.shape[:1] == (None,)
    return is_free and not _OTHER_NAME.match(_names(tensor, named, said)[0])


def _batch_by_name(tensor: Tensor, named: Named, said: Said) -> int | None:
    """Return the axis that is called as the batch usually is, by a word or else by a letter.

    A single letter may be anything where the first axis is 1, as a batch often is.
    """
    names = list(enumerate(_names(tensor, named, said)))
    names.sort(key=lambda pair: len(pair[1]) == 1)
    for axis, name in names:
        is_sure = axis == 0 or len(name) > 1 or tensor.shape[:1] != (1,)
        if _BATCH_NAME.fullmatch(name) and is_sure:
            return axis
    return None


def _axes(
    tensor: Tensor, named: Named, said: Said, sizes: Mapping[str, int], common: _Batch
) -> InputAxes:
    words = said.get(tensor.name)
    own = tensor.shape or (None,) * len(words or ())
    batch, comment = _batch_axis(tensor, own, named, said, common)
    found = []
    guessed = []
    for axis, (size, name) in enumerate(zip(own, _names(tensor, named, said), strict=True)):
        word = words[axis] if words else size
        if isinstance(word, int):
            found.append(word)
        elif axis == batch:
            found.append(size or 1)
        else:
            guessed.append(axis)
            found.append(sizes.get(name, _free_size(tensor, axis)))
    is_free = (
        batch is not None and own[batch] is None and not isinstance((words or own)[batch], int)
    )
    others = [size for axis, size in enumerate(own) if axis != batch]
    is_told = bool(tensor.shape) and batch == 0 and None not in others
    return InputAxes(batch, tuple(found), tuple(guessed), is_free, is_told, comment)


def _batch_axis(
    tensor: Tensor, own: Sequence[int | None], named: Named, said: Said, common: _Batch
) -> tuple[int | None, str]:
    """Return the axis of the batch, and why it is that one.

    Raises MlmsError where it is unclear.
    """
    words = said.get(tensor.name, ())
    if BATCH in words:
        return list(words).index(BATCH), ""
    by_name = _batch_by_name(tensor, named, said)
    if by_name is not None:
        name = _names(tensor, named, said)[by_name]
        return by_name, f"the batch by the name of its axis, {name!r}" if by_name else ""
    if None not in own:
        return _batch_of_fixed(own, common)
    return _batch_of_free(tensor, own, _names(tensor, named, said), said, common), ""


def _batch_of_free(
    tensor: Tensor, own: Sequence[int | None], names: Sequence[str], said: Said, common: _Batch
) -> int | None:
    """Return the axis of the batch of an input with free axes that no name tells.

    Raises MlmsError where it is unclear.
    """
    free = [axis for axis, size in enumerate(own) if size is None]
    others = [axis for axis in free if _OTHER_NAME.match(names[axis])]
    if 0 in free and 0 not in others:
        return 0
    if tensor.name in said or (own[0] != 1 and others == free):
        return 0 if own[0] == 1 else None
    alike = [axis for axis in free if names[axis] == common.name or not names[axis]]
    if len(alike) == 1 and common.is_free and (names[alike[0]] or len(free) == 1):
        return alike[0]
    if common.is_free and (own[0] == 1 or not alike):
        return None
    if own[0] != 1:
        raise _unclear(tensor)
    return 0


def _batch_of_fixed(own: Sequence[int | None], common: _Batch) -> tuple[int | None, str]:
    """Return the axis of the batch of an input without free axes, and why it is that one."""
    if common.is_free or common.size not in own:
        return None, ""
    axis = list(own).index(common.size)
    is_guess = axis == 0 and common.size != 1 and len(own) > 1
    return axis, f"its first axis, {own[0]}, is taken for the batch" if is_guess else ""


def _unclear(tensor: Tensor) -> MlmsError:
    """Return the error of an input whose batch may be its first axis, or one of its free ones."""
    sizes = ["any" if size is None else str(size) for size in tensor.shape]
    axis = tensor.shape.index(None, 1)
    shape: list[int | str] = [size or OTHER for size in tensor.shape]
    other = option_of(tensor.name, [BATCH, *shape[1:]])
    shape[axis] = BATCH
    problem = f"input {tensor.name!r} is {' x '.join(sizes)}, and nothing tells which is the batch"
    advice = f"say it: mlms init … {option_of(tensor.name, shape)}, or {other}"
    return MlmsError(f"{problem}; {advice}, or sizes alone where there is none")
