"""Files of names, one a line: those of classes, of categories and of tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.files import read_regular

_MOST_BYTES = 64 << 20


def read_names(path: Path, kind: str) -> list[str]:
    """Return the names in a file, without blanks around them; raises DatasetError."""
    lines = [line.strip() for line in read_text(path, kind).splitlines()]
    return [line for line in lines if line]


def class_numbers(names: Sequence[str]) -> Mapping[str, int]:
    """Return the number of each class by its name in small letters.

    A name that several classes have stands for none of them.
    """
    lower = [name.casefold() for name in names]
    counts = Counter(lower)
    return {name: number for number, name in enumerate(lower) if counts[name] == 1}


def read_text(path: Path, kind: str) -> str:
    """Return the text of a file; raises DatasetError for one that can't be read.

    ``kind`` is what a message calls a line of it, as in "label".
    """
    try:
        return read_regular(path, _MOST_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        advice = f"save it as UTF-8, one {kind} a line"
        raise DatasetError(f"{path} can't be read: {error}; {advice}") from error
