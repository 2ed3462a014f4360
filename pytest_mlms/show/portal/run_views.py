"""Views of runs and items by the names that requests have."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.keep.results.item_line import item_of
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.run import RunView, read_run
from pytest_mlms.show.pages.structure import StructureView, structure_of
from pytest_mlms.show.portal.catalog import Catalog
from pytest_mlms.show.portal.run_index import RunIndex

_KEPT = 8
"""Runs that are kept in memory, the last ones that were asked for."""

_LARGEST = 256 << 20
"""The bytes of a results file that is read whole."""


class RunViews:
    """Reads views of the runs of an index, and keeps the last ones."""

    def __init__(self, results: Path, index: RunIndex, catalog: Catalog) -> None:
        self._results = results
        self._index = index
        self._catalog = catalog
        self._kept: OrderedDict[tuple[object, ...], RunView] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, name: str) -> RunView | None:
        """Return a run; None where there is none. Raises MlmsError where it can't be read."""
        self._index.refresh()
        found = self._index.rows("SELECT * FROM run WHERE name = ?", name)
        if not found:
            return None
        row = found[0]
        if row["size"] > _LARGEST:
            raise MlmsError(f"{name}: it is too large for a page; its items have pages")
        key = (name, row["inode"], row["modified"], row["size"])
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = read_run(self._results / name, self._index.longest_line)
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return made

    def item(self, run: str, number: int) -> ItemView | None:
        """Return an item; None where there is none. Raises MlmsError where it can't be read."""
        self._index.refresh()
        line = self._index.read_line(run, number)
        if line is None:
            return None
        view = item_of(ItemView, line, self._results / run / "results.jsonl", number + 1)
        # Paths that lead out of the run are not in the index.
        return replace(view, artifacts=self._catalog.artifacts(run, number))

    def last(self, run: str, number: int) -> ItemView | None:
        """Return an item of a list; None also where it can't be read, which its own page tells."""
        try:
            return self.item(run, number)
        except MlmsError:
            return None

    def structures(self, model: str) -> Sequence[StructureView]:
        """Return the structures of a model that its traces recorded, the latest first."""
        items = [self.last(run, number) for run, number in self._catalog.structures(model)]
        found = [structure_of(item) for item in items if item is not None]
        return [structure for structure in found if structure is not None]
