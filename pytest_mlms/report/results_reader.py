"""Reading of results files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["read_line", "read_results"]


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
    """Return the object of a line; None for a line that is cut off or is something else."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None
