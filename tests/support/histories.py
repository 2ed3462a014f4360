"""Histories for tests: made runs, and a database of each kind."""

from __future__ import annotations

import copy
import datetime
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "ITEM",
    "NEW_LOCK",
    "OLD_LOCK",
    "SLOWER_FROM",
    "add_slower_runs",
    "add_upgraded_runs",
    "item_line",
    "run_lines",
    "run_name",
    "write_lines",
    "write_run",
]

ITEM: dict[str, Any] = json.loads((Path(__file__).parent / "performance_item.json").read_text())
"""The line of a performance item, as a run of manifests/digits wrote it: nine quantities."""

OLD_LOCK = ["numpy==2.4.6", "onnxruntime==1.32.0", "six==1"]
NEW_LOCK = ["numpy==2.5.0", "onnxruntime==1.33.0", "mpmath==1"]

_FIRST = datetime.datetime(2026, 1, 1, 2, 0, tzinfo=datetime.timezone.utc)


def run_name(number: int) -> str:
    """Return the name of the run of this night."""
    return f"{_night(number):%Y%m%d-%H%M%S}-{number:06x}"


def _night(number: int) -> datetime.datetime:
    return _FIRST + datetime.timedelta(days=number)


def item_line(number: int, item: int = 0, ratio: float = 1.0, **fields: Any) -> dict[str, Any]:
    """Return the line of an item of the run of a night.

    ``item`` says which: each is of another model. Values are ``ratio`` times those of ITEM, and
    ``fields`` replace fields.
    """
    line = copy.deepcopy(ITEM)
    name = f"model-{item}"
    line["run"] = run_name(number)
    line["time"] = _time(number)
    line["nodeid"] = f"{name}.yaml::test_performance[{line['case']}]"
    line["manifest"].update(path=f"manifests/{name}.yaml", name=name)
    for estimate in line["estimates"].values():
        for key in ("value", "low", "high", "less_wait"):
            if estimate.get(key) is not None:
                estimate[key] *= ratio
    line.update(fields)
    return line


def run_lines(
    number: int, items: int = 1, ratio: float = 1.0, **fields: Any
) -> Iterator[dict[str, Any]]:
    """Yield the lines of the run of a night; ``ratio`` and ``fields`` are those of its items."""
    head = {"format": 1, "run": run_name(number), "time": _time(number)}
    about = {"command": ["pytest"], "python": "3.11.7", "plugin": "0.1.0"}
    yield {**head, "type": "run", **about}
    for item in range(items):
        yield item_line(number, item, ratio, **fields)
    yield {**head, "type": "end", "exit_status": 0, "items": items}


def write_run(
    results: Path, number: int, items: int = 1, ratio: float = 1.0, **fields: Any
) -> Path:
    """Write the run of a night below a folder of results; return the run's folder."""
    folder = results / run_name(number)
    write_lines(folder, list(run_lines(number, items, ratio, **fields)))
    return folder


def write_lines(folder: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write the lines of a run into its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (folder / "results.jsonl").write_text(text)


def _time(number: int) -> str:
    return _night(number).isoformat(timespec="milliseconds")


def add_upgraded_runs(address: str, results: Path, nights: int = 6) -> None:
    """Add the runs of some nights, with an upgrade before the fourth: 10 % slower from then on.

    Each has two items. The last run is of another host.
    """
    from pytest_mlms.keep.history.adding import add_run
    from pytest_mlms.keep.history.store import open_history

    history = open_history(address)
    for night in range(nights):
        is_new = night >= 3
        launch = {"command": ["python"], "lock": NEW_LOCK if is_new else OLD_LOCK}
        machine = {**ITEM["machine"], "host": "other" if night == nights - 1 else "vm"}
        fields = {"launch": launch, "machine": machine, "versions": {}}
        run = write_run(results, night, items=2, ratio=1.1 if is_new else 1.0, **fields)
        add_run(history, run)
    history.dispose()


SLOWER_FROM = 12
"""The night from which on the first item of ``add_slower_runs`` is slower."""


def add_slower_runs(address: str, results: Path, nights: int = 24) -> None:
    """Add the runs of nights with two items, of which the first became 10 % slower at an upgrade.

    Values scatter by some tenths of a percent. The changes are searched for.
    """
    from pytest_mlms.keep.history.adding import add_run
    from pytest_mlms.keep.history.change_scan import scan
    from pytest_mlms.keep.history.store import open_history

    history = open_history(address)
    scatter = random.Random(5)
    for night in range(nights):
        is_new = night >= SLOWER_FROM
        launch = {"command": ["python"], "lock": NEW_LOCK if is_new else OLD_LOCK}
        versions = {"onnxruntime": "1.33.0" if is_new else "1.32.0"}
        head, end = run_lines(night, items=0)
        items = []
        for item in range(2):
            ratio = scatter.gauss(1.1 if is_new and not item else 1.0, 0.002)
            items.append(item_line(night, item, ratio, launch=launch, versions=versions))
        run = results / run_name(night)
        write_lines(run, [head, *items, end])
        add_run(history, run)
    scan(history)
    history.dispose()
