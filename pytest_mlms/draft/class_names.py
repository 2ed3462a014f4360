"""Numbers of the classes of pictures, by the names of their folders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pytest_mlms.draft.data import PictureData
from pytest_mlms.errors import MlmsError
from pytest_mlms.manifest.types import instead

__all__ = ["numbers_of"]

_SHOWN = 20  # names in an error


def numbers_of(
    data: PictureData, names: Sequence[str], classes: int | None, source: Path | str
) -> dict[str, int]:
    """Return the number of each class of a folder.

    It is the place in ``names``, those of the model's ``classes`` that ``source`` has. Without
    these, it is the name itself where all are numbers, or else the place in the order of all.
    Raises MlmsError.
    """
    if names:
        return {name: _number(name, names, source) for name in data.class_names}
    if classes is None:
        problem = f"{data.path} has classes, and no output of the model has scores of them"
        raise MlmsError(f"{problem}; give other labels by a labels.csv")
    found = data.class_names
    if all(name.isdecimal() and int(name) < classes for name in found):
        return {name: int(name) for name in found}
    if len(found) == classes:
        return {name: number for number, name in enumerate(found)}
    problem = f"{data.path} has {len(found)} classes, and the model {classes}"
    advice = "name the file with the model's, one a line in the order of its output: --labels FILE"
    raise MlmsError(f"{problem}; {advice}")


def _number(name: str, names: Sequence[str], source: Path | str) -> int:
    """Return the place of a class in the names, in any case, or at the beginning of one."""
    wanted = _comparable(name)
    for number, known in enumerate(names):
        before_comma, _, _ = known.partition(",")
        if wanted in (_comparable(known), _comparable(before_comma)):
            return number
    for number, known in enumerate(names):
        first_word = known.split()[:1]  # n01440764 tench
        if first_word == [name]:
            return number
    advice = instead(name, names[:_SHOWN])
    raise MlmsError(f"{source} has no class {name!r}, which a folder is called; {advice}")


def _comparable(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()
