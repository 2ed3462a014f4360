"""Contents of a run for a history: its lines, its points, their series and their software."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pytest_mlms.keep.history.machine_class import machine_class
from pytest_mlms.keep.history.run_lines import RunLine
from pytest_mlms.keep.history.series import Point, Series, points_of
from pytest_mlms.keep.history.stacks import Software, software_of
from pytest_mlms.keep.results.results_reader import duration_of


class StoredLine(NamedTuple):
    """A line as the history keeps it; ``seconds`` is the duration of an item that ran."""

    number: int
    type: str
    nodeid: str | None
    seconds: float | None
    json: str


@dataclass(frozen=True)
class ItemPoints:
    """The points of an item that counts, by the key of their series; ``stack`` is a digest."""

    number: int
    nodeid: str
    repetition: int
    verdict: str
    host: str | None
    stack: str
    points: Mapping[str, Point]


@dataclass
class RunContent:
    """The lines of a run, and what follows from them."""

    run: dict[str, Any] = field(default_factory=dict)
    lines: list[StoredLine] = field(default_factory=list)
    items: dict[str, ItemPoints] = field(default_factory=dict)
    series: dict[str, Series] = field(default_factory=dict)
    stacks: dict[str, Software] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the run."""
        name: str = self.run["id"]
        return name


def gather(lines: Iterable[RunLine]) -> RunContent | None:
    """Return the content of a run's lines; None where there are none.

    Of the lines of an item the last one counts, as in tables: it was run again. An item whose
    tear-down failed counts as an error. The first line names the run, whatever the folder was
    renamed to before the run was resumed.
    """
    content = RunContent()
    for line in lines:
        if not content.run:
            content.run = _new_run(line)
        nodeid = line.fields.get("nodeid")
        seconds = duration_of(line.fields)
        content.lines.append(StoredLine(line.number, line.type, nodeid, seconds, line.text))
        content.run["exit_status"] = line.fields["exit_status"] if line.type == "end" else None
        _take(content, line)
    return content if content.run else None


def _new_run(line: RunLine) -> dict[str, Any]:
    return {
        "id": line.fields["run"],
        "started": line.began,
        "host": None,
        "machine_class": None,
        "plugin": None,
        **origin_columns({}),
        "exit_status": None,
    }


def _take(content: RunContent, line: RunLine) -> None:
    fields = line.fields
    if line.type == "run":
        content.run["plugin"] = fields.get("plugin")
        content.run.update(origin_columns(fields))
    elif line.type == "teardown":
        item = content.items.get(fields["nodeid"])
        if item is not None and item.repetition == (fields.get("repetition") or 1):
            del content.items[item.nodeid]
    elif line.type == "item":
        if content.run["machine_class"] is None:
            machine = fields["machine"]
            content.run["host"] = machine.get("host")
            content.run["machine_class"] = machine_class(machine)
        _take_item(content, line)


def _take_item(content: RunContent, line: RunLine) -> None:
    fields = line.fields
    nodeid = fields["nodeid"]
    content.items.pop(nodeid, None)
    if fields.get("outcome") == "interrupted":
        return
    points = {point.series.key: point for point in points_of(fields)}
    if not points:
        return
    software = software_of(fields)
    digest = software.lock_sha256
    content.stacks[digest] = software
    for key, point in points.items():
        content.series[key] = point.series
    content.items[nodeid] = ItemPoints(
        number=line.number,
        nodeid=nodeid,
        repetition=fields.get("repetition") or 1,
        verdict=fields["verdict"],
        host=fields["machine"].get("host"),
        stack=digest,
        points=points,
    )


def origin_columns(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of table ``run`` that a line of type run tells; None for the others.

    A line of an older version has none of these fields.
    """
    git = line.get("git") or {}
    job = line.get("ci") or {}
    return {
        "git_sha": git.get("sha"),
        "dirty": git.get("dirty"),
        "branch": git.get("branch"),
        "ci_url": job.get("url"),
    }
