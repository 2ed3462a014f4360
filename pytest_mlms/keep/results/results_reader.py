"""Reading of results files: their lines, and the items that these add up to."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

__all__ = [
    "ItemLines",
    "ResultLine",
    "after_teardown",
    "duration_of",
    "lines_from",
    "read_line",
    "read_results",
]

_MANY_DIGITS = re.compile(r"\d{309}")
_SURROGATE = re.compile(r"\\u[dD]")
_CHUNK = 1 << 20  # bytes
_ANY_LENGTH = 1 << 60


@dataclass(frozen=True)
class ResultLine:
    """A line and its place in the file; no ``content`` where it is too long or no JSON object."""

    position: int
    length: int
    content: dict[str, Any] | None
    is_too_long: bool = False

    @property
    def end(self) -> int:
        """The place of the next line."""
        return self.position + self.length


def lines_from(
    file: IO[bytes], position: int = 0, longest: int = _ANY_LENGTH
) -> Iterator[ResultLine]:
    """Yield the lines of a file from a position on, but for a last one that is cut off."""
    file.seek(position)
    while data := file.readline(longest + 1):
        length = len(data)
        is_too_long = length > longest
        while is_too_long and data and not data.endswith(b"\n"):
            data = file.readline(_CHUNK)
            length += len(data)
        content = None if is_too_long else read_line(data)
        if content is None and not data.endswith(b"\n"):
            return  # it is being written
        yield ResultLine(position, length, content, is_too_long)
        position += length


@dataclass
class ItemLines:
    """The lines of a run's items by node id, in the order in which the items finished.

    Of several lines of an item, as of one that ran again or in a resumed run, the last one counts.
    An item whose tear-down failed is an error. ``numbers`` has the places of the lines, from 0.
    """

    lines: dict[str, dict[str, Any]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[dict[str, Any]]) -> ItemLines:
        """Return the items of a run's lines."""
        items = cls()
        for number, line in enumerate(lines):
            items.take(number, line)
        return items

    def take(self, number: int, line: dict[str, Any]) -> None:
        """Take the next line of the run, of any type."""
        kind = line.get("type")
        nodeid = str(line.get("nodeid"))
        if kind == "item":
            self.lines.pop(nodeid, None)
            self.lines[nodeid] = line
            self.numbers[nodeid] = number
        elif kind == "teardown" and nodeid in self.lines:
            item = self.lines[nodeid]
            if (item.get("repetition") or 1) == (line.get("repetition") or 1):
                self.lines[nodeid] = after_teardown(item, str(line.get("message") or ""))


def after_teardown(item: Mapping[str, Any], message: str) -> dict[str, Any]:
    """Return an item's line as it counts once the tear-down failed with a message."""
    return {**item, "verdict": "ERROR", "outcome": "failed", "teardown": message}


def read_results(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a results file.

    Yields nothing where the file can't be read. Skips the last line where it is cut off, as in a
    run that was killed.
    """
    try:
        file = path.open("rb")
    except OSError:
        return
    with file:
        for line in lines_from(file):
            if line.content is not None:
                yield line.content


def read_line(text: str | bytes) -> dict[str, Any] | None:
    """Return the object of a line; None for a line that is cut off or is something else.

    A text with half of a surrogate pair is something else: neither pages nor databases take it, and
    ``to_plain`` writes none. So are integers beyond any float, and what is nested deeper than
    Python reads.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode()
        line = json.loads(decoded, parse_int=_small if _MANY_DIGITS.search(decoded) else None)
        if _SURROGATE.search(decoded):
            json.dumps(line, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


def _small(text: str) -> int:
    """Return an integer that a float can stand for; raises ValueError."""
    if not math.isfinite(float(text)):
        raise ValueError("an integer that is none of a measurement")
    return int(text)


def duration_of(line: Mapping[str, Any]) -> float | None:
    """Return the seconds that a line's item took; None for other lines and for skipped items."""
    if line.get("type") != "item" or line["verdict"] == "SKIPPED":
        return None
    seconds = line.get("seconds")
    if not isinstance(seconds, dict):
        return None
    return float(sum(seconds.values()))
