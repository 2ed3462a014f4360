"""An item of a run, found by what a person says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.recorded import recorded_artifacts
from pytest_mlms.keep.results.checked_lines import read_lines
from pytest_mlms.keep.results.results_reader import ItemLines

_SHOWN = 8  # items that a text may mean


@dataclass(frozen=True)
class FoundItem:
    """An item's line of results.jsonl, and the folder of its run."""

    run: Path
    line: Mapping[str, Any]

    def artifact(self, name: str) -> Path | None:
        """Return the file of an artifact; None where there is none."""
        recorded = recorded_artifacts(self.line).get(name)
        return recorded.file_below(self.run) if recorded else None


def find_item(text: str, results: Path) -> FoundItem:
    """Return the item of RUN::NODEID, or of NODEID in the last run below ``results``.

    RUN is a run's folder, or its name below ``results``. In the place of a node id may be a part of
    it that no other item has. Raises MlmsError.
    """
    run, wanted = _run_of(text, results)
    by_item = ItemLines.of(read_lines(run / "results.jsonl")).lines
    if not by_item:
        problem = f"{run} has no results of items"
        raise MlmsError(f"{problem}; name a run as RUN::NODEID, or its folder with --mlms-results")
    chosen = _matching(wanted, list(by_item), run)
    return FoundItem(run, by_item[chosen])


def _run_of(text: str, results: Path) -> tuple[Path, str]:
    first, separator, rest = text.partition("::")
    if separator and first:
        for folder in (Path(first), results / first):
            if (folder / "results.jsonl").is_file():
                return folder, rest
    return results / "latest", text


def _matching(wanted: str, nodeids: Sequence[str], run: Path) -> str:
    if wanted in nodeids:
        return wanted
    found = [nodeid for nodeid in nodeids if nodeid.endswith(f"/{wanted}")]
    found = found or [nodeid for nodeid in nodeids if wanted and wanted in nodeid]
    if len(found) == 1:
        return found[0]
    problem = (
        f"{len(found)} items of {run} have {wanted!r}"
        if found
        else f"no item of {run} has {wanted!r}"
    )
    listed = "".join(f"\n  {nodeid}" for nodeid in (found or nodeids)[:_SHOWN])
    raise MlmsError(f"{problem}; write more of one of:{listed}")
