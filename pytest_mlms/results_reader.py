"""Reading of results files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["duration_of", "read_line", "read_results"]

_SURROGATE = re.compile(r"\\u[dD]")


def read_results(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a results file.

    Yields nothing where the file can't be read. Skips the last line where it is cut off, as in a
    run that was killed.
    """
    try:
        file = path.open(encoding="utf-8", errors="replace")
    except OSError:
        return
    with file:
        for text in file:
            line = read_line(text)
            if line is not None:
                yield line


def read_line(text: str | bytes) -> dict[str, Any] | None:
    """Return the object of a line; None for a line that is cut off or is something else.

    A text with half of a surrogate pair is something else: neither pages nor databases take it, and
    ``to_plain`` writes none. So is what is nested deeper than Python reads.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode()
        line = json.loads(decoded)
        if _SURROGATE.search(decoded):
            json.dumps(line, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


def duration_of(line: Mapping[str, Any]) -> float | None:
    """Return the seconds that a line's item took; None for other lines and for skipped items."""
    if line.get("type") != "item" or line["verdict"] == "SKIPPED":
        return None
    seconds = line.get("seconds")
    if not isinstance(seconds, dict):
        return None
    return float(sum(seconds.values()))
