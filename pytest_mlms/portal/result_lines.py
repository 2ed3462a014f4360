"""Lines of a results file, from a place on: whole ones, none of them too long for the memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from pytest_mlms.results_reader import read_line

__all__ = ["ResultLine", "lines_from"]

_CHUNK = 1 << 20  # bytes


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


def lines_from(file: IO[bytes], position: int, longest: int) -> Iterator[ResultLine]:
    """Yield the lines of a file from a position on, but for a last one that is cut off."""
    file.seek(position)
    while data := file.readline(longest + 1):
        length = len(data)
        is_too_long = length > longest
        if is_too_long:
            length = longest + 1 + _skip_line(file)
        content = None if is_too_long else read_line(data)
        if content is None and not is_too_long and not data.endswith(b"\n"):
            return  # it is being written
        yield ResultLine(position, length, content, is_too_long)
        position += length


def _skip_line(file: IO[bytes]) -> int:
    """Read up to the end of a line; return the number of bytes."""
    length = 0
    while data := file.readline(_CHUNK):
        length += len(data)
        if data.endswith(b"\n"):
            break
    return length
