"""Exports of a history, its runs' lines as they are and its changes, and its rebuilding from them.

A line of JSON begins each run and tells the number of its lines, which follow as in results.jsonl.
The changes come last, a line each. Ids of series and of changes differ between histories, so a
change names its series by a point: the line of its first run, and the quantity. Thus its series is
found also where another version makes other keys.

Rebuilding makes all tables anew. It is one transaction, so that readers see the old history or the
new one, for which they wait on PostgreSQL, and a kill leaves the old one. A file that is damaged is
moved aside, and what can still be read of it is taken over."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, insert, inspect, select, text, update

from pytest_mlms.core.files import open_regular
from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.adding import add_content
from pytest_mlms.keep.history.errors import (
    HistoryDamaged,
    HistoryError,
    address_of,
    file_of,
    show_address,
)
from pytest_mlms.keep.history.run_content import gather
from pytest_mlms.keep.history.run_lines import read_run
from pytest_mlms.keep.history.store import alone, make_tables, open_history, open_unchecked

VERSION = 1
_MARK = "mlms_history"
_RUNS = "SELECT id FROM run ORDER BY started, id"
_LINES = "SELECT json FROM line WHERE run = :run ORDER BY number"

_CHANGES = """
SELECT change.*, series.quantity AS series_quantity, series.key AS series_key,
       (SELECT min(point.number) FROM point
        WHERE point.series = change.series AND point.run = change.first_run) AS line
FROM change JOIN series ON series.id = change.series ORDER BY change.id
"""
_LOCAL = ("id", "series", "series_quantity", "series_key", "line")


@dataclass(frozen=True)
class StoredRun:
    """The lines of a run of a history or an export; ``where`` names them in errors."""

    where: str
    lines: list[bytes]


def export_lines(connection: Connection) -> Iterator[str]:
    """Yield the lines of an export; only those of one run are in memory."""
    names = list(connection.execute(text(_RUNS)).scalars())
    for name in names:
        lines = list(connection.execute(text(_LINES), {"run": name}).scalars())
        yield json.dumps({_MARK: VERSION, "run": name, "lines": len(lines)})
        yield from lines
    for change in read_changes(connection):
        yield json.dumps({_MARK: VERSION, "change": change})


def readable_runs(connection: Connection, where: str) -> Iterator[StoredRun]:
    """Yield the runs of a damaged history, each up to the line that can't be read."""
    names = list(connection.execute(text(_RUNS)).scalars())
    for name in names:
        lines: list[bytes] = []
        with contextlib.suppress(HistoryDamaged):
            for line in connection.execute(text(_LINES), {"run": name}).scalars():
                lines.append(f"{line}\n".encode())
        yield StoredRun(f"{where}, run {name}", lines)


def is_export(path: Path) -> bool:
    """Return whether a file begins as an export does; raises OSError."""
    with open_regular(path) as file:
        return file.readline(200).startswith(f'{{"{_MARK}"'.encode())


@dataclass
class ExportReader:
    """Reads an export; ``changes`` are there once all runs were read."""

    path: Path
    changes: list[dict[str, Any]] = field(default_factory=list)

    def runs(self) -> Iterator[StoredRun]:
        """Yield the runs; raises HistoryError where the export is cut off or something else."""
        with open_regular(self.path) as file:
            number = 0
            while line := file.readline():
                number += 1
                mark = self._parse(line, number)
                if "change" in mark:
                    self.changes.append(mark["change"])
                    continue
                count = mark["lines"]
                lines = list(itertools.islice(file, count))
                if len(lines) < count:
                    raise HistoryError(
                        f"{self.path}:{number + len(lines)}: it ends within the run {mark['run']}; "
                        f"export it again"
                    )
                yield StoredRun(f"{self.path}:{number}, run {mark['run']}", lines)
                number += count

    def _parse(self, line: bytes, number: int) -> dict[str, Any]:
        problem = f"{self.path}:{number}: it is no line of 'mlms history export'; export it again"
        try:
            mark = json.loads(line)
            version = mark[_MARK]
            is_valid = "change" in mark or (mark["lines"] >= 0 and isinstance(mark["run"], str))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise HistoryError(problem) from None
        if version != VERSION:
            raise HistoryError(
                f"{self.path}:{number}: it has version {version!r} of exports, this one reads "
                f"{VERSION}; upgrade pytest-mlms"
            )
        if not is_valid:
            raise HistoryError(problem)
        return dict(mark)


def read_changes(connection: Connection) -> Iterator[dict[str, Any]]:
    """Yield the changes of a history, which may be of an older version."""
    for found in connection.execute(text(_CHANGES)).mappings():
        values = {name: value for name, value in found.items() if name not in _LOCAL}
        yield {
            "line": found["line"],
            "quantity": found["series_quantity"],
            "key": found["series_key"],
            "values": values,
        }


def add_changes(connection: Connection, changes: Iterable[Mapping[str, Any]], where: str) -> int:
    """Add changes to a history that has their runs; return how many have no series there.

    Decisions of a person or of the gate stay, on either side. Raises HistoryError.
    """
    missing = 0
    for change in changes:
        try:
            values = _known_values(change["values"])
            series = _series_of(connection, change, values["first_run"])
        except (KeyError, TypeError, AttributeError):
            raise HistoryError(f"{where}: it has a change that is not one of an export") from None
        if series is None:
            missing += 1
        else:
            values["series"] = series
            _put(connection, values)
    return missing


def _known_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of columns that changes have in this version."""
    known = {}
    for column in schema.change.columns:
        name = column.name
        if name in values and name not in _LOCAL:
            known[name] = values[name]
    return known


def _series_of(connection: Connection, change: Mapping[str, Any], run: str) -> int | None:
    """Return the id of a change's series, by its point or by its key; None for none."""
    point = schema.point.c
    series = schema.series.c
    by_point = (
        select(series.id)
        .join(schema.point, point.series == series.id)
        .where(point.run == run, point.number == change["line"])
        .where(series.quantity == change["quantity"])
    )
    by_key = select(series.id).where(series.key == change["key"])
    found: int | None = connection.scalar(by_point) or connection.scalar(by_key)
    return found


def _put(connection: Connection, values: Mapping[str, Any]) -> None:
    """Add a change, or write the decision on it where the history has none."""
    change = schema.change.c
    of_series = change.series == values["series"]
    of_run = change.first_run == values["first_run"]
    status = connection.scalar(select(change.status).where(of_series, of_run))
    if status is None:
        connection.execute(insert(schema.change), values)
    elif status == "open" and values["status"] != "open":
        deciding = update(schema.change).where(of_series, of_run)
        connection.execute(deciding.values(values))


_KEEP_LINES = "CREATE TEMPORARY TABLE kept AS SELECT run, number, json FROM line"
_SIDE_FILES = ("-wal", "-shm")  # parts of a database of SQLite
_KEPT_RUNS = "SELECT DISTINCT run FROM kept"
_KEPT_LINES = "SELECT json FROM kept WHERE run = :run ORDER BY number"


@dataclass
class Rebuilt:
    """Contents of a rebuilt history; ``aside`` is the new place of a damaged file."""

    runs: int = 0
    points: int = 0
    lost_changes: int = 0
    problems: list[str] = field(default_factory=list)
    aside: Path | None = None


def rebuild(address: str | Path, sources: Iterable[Path]) -> Rebuilt:
    """Make the tables of a history anew, and add the runs of folders and exports.

    With ``sources``, a history that is not there is made. Raises HistoryError; a run that can't be
    taken over is a problem, and the others are.
    """
    rebuilt = Rebuilt()
    url = address_of(address)
    where = show_address(url)
    sources = list(sources)
    file = file_of(url)
    if not sources and file is not None and not file.exists():
        raise HistoryError(f"{where}: there is no history; name folders of results, or exports")
    try:
        engine = open_unchecked(address)
        _rebuild_in_place(engine, where, sources, rebuilt)
    except HistoryDamaged as error:
        if file is None:
            raise
        rebuilt = _replace_damaged(file, sources)
        rebuilt.problems.insert(0, str(error).partition("; run ")[0])
    return rebuilt


def _rebuild_in_place(
    engine: Engine, where: str, sources: Iterable[Path], rebuilt: Rebuilt
) -> None:
    """Replace the tables in one transaction; others wait for its end."""
    with alone(engine) as connection:
        has_lines = schema.line.name in inspect(connection).get_table_names()
        changes = []
        if has_lines:
            changes = list(read_changes(connection))
            connection.execute(text(_KEEP_LINES))
            connection.execute(text("CREATE INDEX kept_lines ON kept (run, number)"))
            schema.metadata.drop_all(connection)
        make_tables(connection)

        if has_lines:
            for name in list(connection.execute(text(_KEPT_RUNS)).scalars()):
                texts = connection.execute(text(_KEPT_LINES), {"run": name}).scalars()
                lines = [f"{line}\n".encode() for line in texts]
                _add(connection, StoredRun(f"{where}, run {name}", lines), rebuilt)
            connection.execute(text("DROP TABLE kept"))
        _add_sources(connection, sources, rebuilt)
        rebuilt.lost_changes += add_changes(connection, changes, where)


def _add_sources(connection: Connection, sources: Iterable[Path], rebuilt: Rebuilt) -> None:
    for source in sources:
        if source.is_dir():
            for run in _runs_in(source):
                _add(connection, run, rebuilt)
            continue
        try:
            is_of_history = is_export(source)
        except OSError as error:
            problem = f"{source}: {error.strerror}; name folders of results, or exports"
            raise HistoryError(problem) from None
        if is_of_history:
            reader = ExportReader(source)
            for run in reader.runs():
                _add(connection, run, rebuilt)
            rebuilt.lost_changes += add_changes(connection, reader.changes, str(source))
        else:
            _add(connection, _run_of(source), rebuilt)


def _runs_in(folder: Path) -> Iterator[StoredRun]:
    """Yield the run of a folder, or the runs of a folder of results."""
    own = folder / "results.jsonl"
    if own.exists():
        yield _run_of(own)
        return
    for file in sorted(folder.glob("*/results.jsonl")):
        if not file.parent.is_symlink():  # such as latest
            yield _run_of(file)


def _run_of(file: Path) -> StoredRun:
    with file.open("rb") as opened:
        return StoredRun(str(file), opened.readlines())


def _add(connection: Connection, run: StoredRun, rebuilt: Rebuilt) -> None:
    try:
        content = gather(read_run(run.lines, run.where))
        if content is None:
            return
        added = add_content(connection, content, run.where)
    except HistoryDamaged:
        raise
    except HistoryError as error:
        rebuilt.problems.append(str(error))
        return
    rebuilt.runs += 1 if added.is_new else 0
    rebuilt.points += added.points


def _replace_damaged(file: Path, sources: list[Path]) -> Rebuilt:
    """Move a damaged file aside, and make a history of the sources and of what it still tells."""
    now = datetime.datetime.now(datetime.timezone.utc)
    aside = file.with_name(f"{file.name}.damaged-{now:%Y%m%d-%H%M%S}")
    fresh = file.with_name(f".{now:%Y%m%d-%H%M%S}-{os.getpid()}.{file.name}")
    rebuilt = Rebuilt(aside=aside)
    try:
        engine = open_history(fresh)
        with alone(engine) as connection:
            _add_sources(connection, sources, rebuilt)
            with contextlib.suppress(HistoryDamaged), open_unchecked(file).connect() as damaged:
                for run in readable_runs(damaged, str(file)):
                    _add(connection, run, rebuilt)
                rebuilt.lost_changes += add_changes(connection, read_changes(damaged), str(file))
        if not rebuilt.runs:
            raise HistoryError(
                f"{file}: nothing of it can be read; name the folder of your results: "
                f"mlms history rebuild mlms-results"
            )
        engine.dispose()  # the last connection moves what was written ahead into the file
        _swap(file, aside, fresh)
    finally:
        for suffix in ("", *_SIDE_FILES):
            Path(f"{fresh}{suffix}").unlink(missing_ok=True)
    return rebuilt


def _swap(file: Path, aside: Path, fresh: Path) -> None:
    """Put the new file in the place of the old one, which stays beside it under another name.

    There is a file of that name at any time.
    """
    aside.hardlink_to(file)
    for suffix in _SIDE_FILES:
        beside = Path(f"{file}{suffix}")
        if beside.exists():
            beside.rename(f"{aside}{suffix}")
    fresh.replace(file)
