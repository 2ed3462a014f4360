"""Files of JSON lines, which anybody may have written or cut off."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

_MANY_DIGITS = re.compile(r"\d{309}")
_SURROGATE = re.compile(r"\\u[dD]")
_CHUNK = 1 << 20  # bytes
_ANY_LENGTH = 1 << 60


@dataclass(frozen=True)
class JsonLine:
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
) -> Iterator[JsonLine]:
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
        yield JsonLine(position, length, content, is_too_long)
        position += length


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
