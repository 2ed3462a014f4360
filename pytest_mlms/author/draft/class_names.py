"""Numbers of the classes of pictures, by the names of their folders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_mlms.author.draft.data import PictureData
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest.types import instead

_SHOWN = 20  # names in an error
_NAME_THE_FILE = (
    "name the file with the model's, one a line in the order of its output: --labels FILE"
)


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
    if all(name.isdecimal() for name in found):
        numbers = {name: int(name) for name in found}
        largest = max(numbers.values())
        if largest >= classes:
            problem = f"{data.path} has a class {largest}, and the model 0 to {classes - 1}"
            raise MlmsError(f"{problem}; rename the folders, or {_NAME_THE_FILE}")
        return numbers
    if len(found) == classes:
        return {name: number for number, name in enumerate(found)}
    problem = f"{data.path} has {len(found)} classes, and the model {classes}"
    raise MlmsError(f"{problem}; {_NAME_THE_FILE}")


def _number(name: str, names: Sequence[str], source: Path | str) -> int:
    """Return the place of a class in the names: as it is written, or else in any case.

    It may be the beginning of a name, up to a comma or behind an identifier. Raises MlmsError.
    """
    beginnings = [known.partition(",")[0] for known in names]
    words = [(known.split() or [""])[0] for known in names]  # n01440764 tench
    wanted = _comparable(name)
    for found in (
        _places(name, names),
        _places(name, beginnings),
        _places(wanted, map(_comparable, names)) | _places(wanted, map(_comparable, beginnings)),
        _places(name, words),
    ):
        if len(found) > 1:
            shown = ", ".join(f"{names[place]!r} ({place})" for place in sorted(found))
            raise MlmsError(f"{source} has several classes {name!r}: {shown}; rename the folder")
        if found:
            return found.pop()
    advice = instead(name, names[:_SHOWN])
    raise MlmsError(f"{source} has no class {name!r}, which a folder is called; {advice}")


def _places(name: str, names: Iterable[str]) -> set[int]:
    return {place for place, known in enumerate(names) if known == name}


def _comparable(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()
