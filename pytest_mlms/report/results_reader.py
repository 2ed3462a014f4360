"""Reading of results files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["read_results"]


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
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict):
                yield line
