"""Reading of results files: their lines, and the items that these add up to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_mlms.core.serialization import lines_from


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
            if str(item.get("repetition") or 1) == str(line.get("repetition") or 1):
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


def duration_of(line: Mapping[str, Any]) -> float | None:
    """Return the seconds that a line's item took; None for other lines and for skipped items.

    Anybody may have written the line: what are no numbers of seconds are not known.
    """
    if line.get("type") != "item" or line.get("verdict") == "SKIPPED":
        return None
    seconds = line.get("seconds")
    if not isinstance(seconds, dict):
        return None
    try:
        spent = math.fsum(seconds.values())
    except (TypeError, OverflowError):
        return None
    return spent if math.isfinite(spent) else None
