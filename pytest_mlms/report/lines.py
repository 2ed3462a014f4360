"""Reads what report/results.py writes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["lines_of"]


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a results file that are whole.

    The last one is cut off where the run was killed.
    """
    with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            with contextlib.suppress(ValueError):
                line = json.loads(text)
                if isinstance(line, dict):
                    yield line
