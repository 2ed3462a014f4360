"""Lists of runs, items, models, hosts and stacks, asked of the index, and views of them."""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Verdict
from pytest_mlms.keep.results.item_line import item_of
from pytest_mlms.show.pages.evaluated import Evaluated, Unfinished
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.run import Elapsed, RunView, read_run
from pytest_mlms.show.pages.structure import StructureView, structure_of
from pytest_mlms.show.portal.run_index import RunIndex

Row = TypeVar("Row")

_VERDICTS = """
SELECT run, verdict, count(*) AS count FROM item
WHERE is_last AND run IN ({marks}) GROUP BY run, verdict ORDER BY run, verdict
"""

_ORDER = {verdict.value: place for place, verdict in enumerate(Verdict)}  # worst first
_MOST_SOFTWARE = 200
_MOST_STRUCTURES = 8

_KEPT = 8
"""Runs that are kept in memory, the last ones that were asked for."""

_LARGEST = 256 << 20
"""The bytes of a results file that is read whole."""


@dataclass(frozen=True)
class Page(Generic[Row]):
    """Some rows of a list: those from ``offset`` on, of ``total``."""

    rows: tuple[Row, ...]
    total: int
    offset: int
    limit: int


@dataclass(frozen=True)
class RunRow:
    """A run; ``exit_status`` is None of one that goes on or was killed.

    ``counts`` has the number of items by verdict, ``left_out`` that of lines that can't be read.
    ``started_by`` and ``seconds`` are those of RunView.
    """

    name: str
    started: str
    started_by: str
    seconds: float | None
    host: str
    plugin: str
    exit_status: int | None
    counts: Mapping[str, int]
    left_out: int


@dataclass(frozen=True)
class ItemRow:
    """An item of a run; ``number`` is that of its line, from 0."""

    run: str
    number: int
    nodeid: str
    case: str
    kind: str
    verdict: str
    model: str
    version: str
    framework: str
    stack: str
    device: str
    host: str
    time: str


@dataclass(frozen=True)
class ModelRow:
    """A model that was evaluated; ``last`` is when."""

    name: str
    frameworks: tuple[str, ...]
    items: int
    last: str


@dataclass(frozen=True)
class HostRow:
    """A host that items ran on, and the last of them."""

    host: str
    items: int
    last: str
    run: str
    number: int


@dataclass(frozen=True)
class StackRow:
    """A stack with one of its frameworks, and the last item that ran on it."""

    stack: str
    framework: str
    items: int
    last: str
    run: str
    number: int


@dataclass(frozen=True)
class SoftwareRow:
    """A version of a framework that a host had in a stack, and when items ran there."""

    host: str
    stack: str
    framework: str
    version: str
    items: int
    first: str
    last: str


_NEWEST_ITEMS = """
SELECT item.*, b.version AS framework_version, a.version AS baseline, run.exit_status, run.left_out
FROM (
    SELECT item.run, item.number, max({order}) FROM item
    LEFT JOIN software AS b ON b.run = item.run AND b.number = item.number AND b.side = 'b'
    LEFT JOIN software AS a ON a.run = item.run AND a.number = item.number AND a.side = 'a'
    WHERE is_last AND item.run IN ({marks})
    GROUP BY model, item.stack, item.framework, nodeid, machine, b.version, a.version,
    verdict IN ('ERROR', 'INVALID', 'SKIPPED'), item.time > ?
) AS newest
JOIN item ON item.run = newest.run AND item.number = newest.number
JOIN run ON run.name = item.run
LEFT JOIN software AS b ON b.run = item.run AND b.number = item.number AND b.side = 'b'
LEFT JOIN software AS a ON a.run = item.run AND a.number = item.number AND a.side = 'a'
"""
_ORDERS = ("item.time", "printf('%020d', item.received) || item.time")
"""The orders of the newest: by the clocks of hosts, and as the portal read the items."""

_BAD_SINCE = """
SELECT run.started, min(time) FROM item JOIN run ON run.name = item.run
WHERE nodeid = ?1 AND machine = ?2 AND is_last = 1
AND verdict IN ('ERROR', 'INVALID', 'FAILED', 'REGRESSED') AND time > COALESCE((
    SELECT max(time) FROM item WHERE nodeid = ?1 AND machine = ?2 AND is_last = 1
    AND verdict NOT IN ('ERROR', 'INVALID', 'FAILED', 'REGRESSED', 'SKIPPED')
), '')
"""


class Catalog:
    """Queries of the index that return records."""

    def __init__(self, index: RunIndex) -> None:
        self._index = index

    def runs(self, limit: int, offset: int) -> Page[RunRow]:
        """Return runs, the newest first."""
        query = "SELECT * FROM run ORDER BY started DESC, name DESC LIMIT ? OFFSET ?"
        rows = self._rows(query, limit, offset)
        total = self._rows("SELECT count(*) FROM run")[0][0]
        return Page(tuple(self._with_counts(rows)), total, offset, limit)

    def run(self, name: str) -> RunRow | None:
        """Return a run by its name."""
        rows = self._rows("SELECT * FROM run WHERE name = ?", name)
        return next(iter(self._with_counts(rows)), None)

    def items(
        self, limit: int, offset: int, model: str = "", host: str = "", stack: str = ""
    ) -> Page[ItemRow]:
        """Return items, the newest first; of one model, host or stack where these are given."""
        wanted = {"model": model, "host": host, "stack": stack}
        chosen = {column: value for column, value in wanted.items() if value}
        where = " AND ".join(["is_last = 1", *(f"{column} = ?" for column in chosen)])
        values = tuple(chosen.values())
        query = f"SELECT * FROM item WHERE {where} ORDER BY time DESC LIMIT ? OFFSET ?"
        rows = self._rows(query, *values, limit, offset)
        total = self._rows(f"SELECT count(*) FROM item WHERE {where}", *values)[0][0]
        names = [name for name in ItemRow.__dataclass_fields__ if name != "case"]
        items = [ItemRow(case=row["point"], **{name: row[name] for name in names}) for row in rows]
        return Page(tuple(items), total, offset, limit)

    def newest_runs(self, days: int, most: int, most_lines: int) -> Sequence[str]:
        """Return the runs of the days up to the newest one, of which the index is not too long.

        Runs that were read after these are among them whenever they began: a clock may have been
        set back.
        """
        query = "SELECT name, lines, started FROM run ORDER BY started DESC, name DESC LIMIT ?"
        rows = self._rows(query, most)
        started = [row["started"] or "" for row in rows]
        past = [time for time in started if time <= _now()]  # a clock may have been wrong
        begin = _days_before(max(past, default=""), days)
        chosen: list[str] = []
        lines = 0
        for row in rows:
            lines += row["lines"]
            if chosen and (lines > most_lines or (row["started"] or "") < begin):
                break
            chosen.append(row["name"])
        later = f"""
            SELECT name, sum(lines) OVER (ORDER BY received DESC, started DESC, name DESC) AS lines
            FROM run WHERE name NOT IN ({_marks(chosen)}) AND received > (
                SELECT min(received) FROM run WHERE name IN ({_marks(chosen)})
            ) ORDER BY received DESC, started DESC, name DESC LIMIT ?
        """
        read = self._rows(later, *chosen, *chosen, most)
        return [*chosen, *(row["name"] for row in read if row["lines"] <= most_lines)]

    def newest_items(self, runs: Sequence[str]) -> Sequence[Evaluated]:
        """Return the newest items of each case, version and class of machine in these runs.

        Those without a result, or whose time is to come, are there beside the newest others. Where
        the times of items and the order in which they were read differ, both of the newest are.
        """
        found: dict[tuple[str, int], Evaluated] = {}
        for order in _ORDERS:
            query = _NEWEST_ITEMS.format(order=order, marks=_marks(runs))
            each = [_evaluated(row) for row in self._rows(query, *runs, _now()) if row["model"]]
            found.update({item.key: item for item in each})
        return list(found.values())

    def unfinished(self, runs: Sequence[str]) -> Sequence[Unfinished]:
        """Return those of these runs that go on, were killed or can't be read whole, in order."""
        query = f"""
            SELECT name, started FROM run WHERE (exit_status IS NULL OR left_out) AND name IN
            ({_marks(runs)}) ORDER BY started DESC, name DESC
        """
        return [Unfinished(row["name"], row["started"] or "") for row in self._rows(query, *runs)]

    def bad_since(self, nodeid: str, machine: str) -> str:
        """Return when the run began in which a case first failed since it last did not.

        Changes of a history have the begin of their first run, too. "" where it isn't known.
        """
        return self._rows(_BAD_SINCE, nodeid, machine)[0][0] or ""

    def runs_like(self, words: Sequence[str], limit: int) -> Sequence[RunRow]:
        """Return the newest runs whose name and host have all of these words."""
        text = "lower(name || ' ' || COALESCE(host, ''))"
        has_all = " AND ".join([f"instr({text}, ?)"] * len(words))
        query = f"SELECT * FROM run WHERE {has_all} ORDER BY started DESC LIMIT ?"
        return tuple(self._with_counts(self._rows(query, *words, limit)))

    def artifacts(self, run: str, number: int) -> dict[str, str]:
        """Return the paths of an item's files below the run's folder, by name."""
        query = "SELECT name, path FROM artifact WHERE run = ? AND number = ? ORDER BY name"
        return {row["name"]: row["path"] for row in self._rows(query, run, number)}

    def models(self) -> Sequence[ModelRow]:
        """Return all models, by name."""
        # An index has the last time of each group at its end; max() of the group reads them all.
        query = """
            SELECT model, framework, count(*) AS items, (
                SELECT max(time) FROM item AS other
                WHERE other.model = item.model AND other.framework = item.framework
            ) AS last FROM item
            WHERE model != '' GROUP BY model, framework ORDER BY model, framework
        """
        by_name = defaultdict(list)
        for row in self._rows(query):
            by_name[row["model"]].append(row)
        return [
            ModelRow(
                name=name,
                frameworks=tuple(row["framework"] for row in rows),
                items=sum(row["items"] for row in rows),
                last=max(row["last"] for row in rows),
            )
            for name, rows in by_name.items()
        ]

    def hosts(self) -> Sequence[HostRow]:
        """Return all hosts, by name."""
        # With max(), SQLite takes the other columns from the row that has the maximum.
        query = """
            SELECT host, count(*) AS items, max(time) AS last, run, number FROM item
            WHERE host != '' GROUP BY host ORDER BY host
        """
        return [HostRow(**row) for row in self._rows(query)]

    def stacks(self) -> Sequence[StackRow]:
        """Return all stacks with their frameworks, by name."""
        query = """
            SELECT stack, framework, count(*) AS items, max(time) AS last, run, number FROM item
            WHERE stack != '' GROUP BY stack, framework ORDER BY stack, framework
        """
        return [StackRow(**row) for row in self._rows(query)]

    def software(self, host: str = "", stack: str = "") -> Sequence[SoftwareRow]:
        """Return the software of a host or of a stack, the one that ran last first."""
        column = "host" if host else "stack"
        query = f"""
            SELECT host, stack, framework, version, count(*) AS items, min(time) AS first,
            max(time) AS last FROM software WHERE {column} = ?
            GROUP BY host, stack, framework, version ORDER BY last DESC LIMIT {_MOST_SOFTWARE}
        """
        return [SoftwareRow(**row) for row in self._rows(query, host or stack)]

    def structures(self, model: str) -> Sequence[tuple[str, int]]:
        """Return the run and number of items that tell a model's structure, the latest first.

        Of each framework and version of the model it is the last item of the smallest batch.
        """
        query = f"""
            SELECT run, number FROM (
                SELECT run, number, time, row_number() OVER
                (PARTITION BY framework, version ORDER BY cost_batch, time DESC) AS place
                FROM item WHERE model = ? AND cost_batch IS NOT NULL
            ) WHERE place = 1 ORDER BY time DESC LIMIT {_MOST_STRUCTURES}
        """
        return [(row["run"], row["number"]) for row in self._rows(query, model)]

    def _rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        self._index.refresh()
        return self._index.rows(query, *values)

    def _with_counts(self, runs: Sequence[sqlite3.Row]) -> Iterable[RunRow]:
        """Yield runs with the numbers of their items by verdict."""
        names = [row["name"] for row in runs]
        counts: dict[str, dict[str, int]] = defaultdict(dict)
        query = _VERDICTS.format(marks=_marks(names))
        for row in self._rows(query, *names):
            counts[row["run"]][row["verdict"]] = row["count"]
        for name, of_run in counts.items():
            counts[name] = dict(sorted(of_run.items(), key=lambda each: _ORDER.get(each[0], 0)))
        for row in runs:
            yield RunRow(
                name=row["name"],
                started=row["started"] or "",
                started_by=row["started_by"] or "",
                seconds=Elapsed(row["earlier"], row["began"], row["last"]).seconds,
                host=row["host"] or "",
                plugin=row["plugin"] or "",
                exit_status=row["exit_status"],
                counts=counts[row["name"]],
                left_out=row["left_out"],
            )


def _marks(values: Sequence[object]) -> str:
    """Return the marks of a statement's parameters."""
    return ", ".join("?" * len(values))


def _now() -> str:
    """Return the time as runs write it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _days_before(time: str, days: int) -> str:
    """Return the time some days before another, as that is written; "" for no time."""
    try:
        return (datetime.fromisoformat(time) - timedelta(days=days)).isoformat()
    except (ValueError, OverflowError):
        return ""


def _evaluated(row: sqlite3.Row) -> Evaluated:
    return Evaluated(
        run=row["run"],
        number=row["number"],
        link=f"/runs/{quote(row['run'], safe='')}/items/{row['number']}",
        nodeid=row["nodeid"],
        model=row["model"],
        stack=row["framework"] if row["stack"] == "here" else row["stack"],
        framework=row["framework"],
        version=row["framework_version"] or "",
        baseline=row["baseline"] or "",
        kind=row["kind"],
        case=row["point"],
        machine=row["machine"],
        host=row["host"],
        verdict=row["verdict"],
        time=row["time"],
        received=row["received"],
        whole=row["exit_status"] in (0, 1) and not row["left_out"],
    )


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

    def line(self, run: str, number: int) -> dict[str, Any] | None:
        """Return the line of an item as it was written; None where there is none."""
        return self._index.read_line(run, number)

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
