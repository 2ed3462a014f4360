"""Findings of the steps of ci/gpu: lines of JSON, each on the disk at once."""

import json
import os
import time
from pathlib import Path
from typing import Any, Dict, List

Fact = Dict[str, Any]
"""A line: its ``step``, and what was found. A figure has ``what``, ``shown``, ``bound``, ``holds``.
"""


class Facts:
    """The facts of one step, appended to a file."""

    def __init__(self, file: Path, step: str) -> None:
        self._file = file
        self._step = step

    def tell(self, **found: Any) -> None:
        """Write a line, so that it is there even if the machine is lost in the next moment."""
        line = json.dumps(dict(step=self._step, at=round(time.time(), 3), **found), default=str)
        with open(str(self._file), "a") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def hold(self, what: str, shown: str, bound: str, holds: bool) -> None:
        """Tell a figure, the bound that it is held against, and whether it is within."""
        self.tell(what=what, shown=shown, bound=bound, holds=bool(holds))

    def hold_share(self, what: str, share: float, most: float) -> None:
        """Tell a relative difference, which is to be at most ``most`` in either direction."""
        shown = "%+.2f %%" % (100 * share)
        self.hold(what, shown, "≤ %g %%" % (100 * most), abs(share) <= most)

    def figure(self, what: str, shown: str) -> None:
        """Tell a figure that no bound is known of."""
        self.tell(what=what, shown=shown, bound="", holds=None)


def read_facts(file: Path) -> List[Fact]:
    """Return the lines of a file; the last one may have been cut off."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
