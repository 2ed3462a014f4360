"""The index's tables, and their writing: the lines of a run, from where they were read to before.

The tables can be made again from the results at any time. Lines may be written by strangers: any
field of them may be missing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pytest_mlms.core.recorded import is_file_of_run
from pytest_mlms.core.serialization import JsonLine, lines_from
from pytest_mlms.keep.history.machine_class import machine_class
from pytest_mlms.keep.results.run_line import format_problem
from pytest_mlms.show.pages.run import Elapsed, started_by

_VERSION = 7

_TABLES = """
CREATE TABLE run (
    name TEXT PRIMARY KEY,
    inode INTEGER NOT NULL DEFAULT 0,
    modified INTEGER NOT NULL DEFAULT 0,    -- ns
    size INTEGER NOT NULL DEFAULT 0,        -- bytes of results.jsonl when it was read
    position INTEGER NOT NULL DEFAULT 0,    -- the end of its last whole line
    before BLOB NOT NULL DEFAULT '',        -- what is before it in the file
    lines INTEGER NOT NULL DEFAULT 0,
    left_out INTEGER NOT NULL DEFAULT 0,    -- lines that can't be read
    received INTEGER NOT NULL DEFAULT 0,    -- the number of the last reading of the folder
    began TEXT NOT NULL DEFAULT '',         -- the last session
    last TEXT NOT NULL DEFAULT '',          -- the time of the last line
    earlier REAL DEFAULT 0,                 -- seconds of the sessions before the last
    started TEXT,                   -- ISO 8601, UTC
    started_by TEXT,
    host TEXT,
    plugin TEXT,
    exit_status INTEGER             -- null while it is written, and of one that was killed
);
CREATE INDEX run_by_time ON run (started);
CREATE TABLE item (
    run TEXT NOT NULL REFERENCES run (name) ON DELETE CASCADE,
    number INTEGER NOT NULL,        -- of the line, from 0
    position INTEGER NOT NULL,      -- of the line in the file, in bytes
    length INTEGER NOT NULL,
    nodeid TEXT NOT NULL,
    repetition INTEGER,
    is_last INTEGER NOT NULL,       -- 0 for an item that ran again in the same run
    point TEXT NOT NULL,            -- the case
    kind TEXT NOT NULL,
    verdict TEXT NOT NULL,
    teardown TEXT,                  -- why its tear-down failed; null where it did not
    model TEXT NOT NULL,
    version TEXT NOT NULL,
    framework TEXT NOT NULL,
    stack TEXT NOT NULL,
    device TEXT NOT NULL,
    host TEXT NOT NULL,
    machine TEXT NOT NULL,          -- its class
    time TEXT NOT NULL,
    received INTEGER NOT NULL,      -- the number of the reading of the folder that found it
    cost_batch INTEGER,             -- the batch size of the static cost that its trace has
    PRIMARY KEY (run, number)
) WITHOUT ROWID;
CREATE INDEX item_by_verdict ON item (run, is_last, verdict);
-- Pages: the newest items, of all and of one model, host or stack, and their number.
CREATE INDEX item_by_time ON item (is_last, time);
CREATE INDEX item_by_model ON item (model, is_last, time);
CREATE INDEX item_by_host ON item (host, is_last, time);
CREATE INDEX item_by_stack ON item (stack, is_last, time);
-- The lists of models and of stacks.
CREATE INDEX item_of_model ON item (model, framework, time);
CREATE INDEX item_of_stack ON item (stack, framework, time);
CREATE INDEX item_with_cost ON item (model, framework, version, cost_batch, time)
WHERE cost_batch IS NOT NULL;
-- When a case began to fail.
CREATE INDEX item_by_case ON item (nodeid, machine, is_last, time, verdict);
CREATE INDEX item_again ON item (run, nodeid);
CREATE TABLE software (             -- of each side of an item
    run TEXT NOT NULL,
    number INTEGER NOT NULL,
    side TEXT NOT NULL,             -- b, and a for the baseline of an upgrade
    host TEXT NOT NULL,
    stack TEXT NOT NULL,
    framework TEXT NOT NULL,
    version TEXT NOT NULL,          -- of the framework
    time TEXT NOT NULL,
    PRIMARY KEY (run, number, side),
    FOREIGN KEY (run, number) REFERENCES item (run, number) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX software_by_host ON software (host, stack, framework, version, time);
CREATE INDEX software_by_stack ON software (stack, host, framework, version, time);
CREATE TABLE artifact (
    run TEXT NOT NULL,
    number INTEGER NOT NULL,
    name TEXT NOT NULL,
    path TEXT NOT NULL,             -- below the run's folder
    PRIMARY KEY (run, number, name),
    FOREIGN KEY (run, number) REFERENCES item (run, number) ON DELETE CASCADE
) WITHOUT ROWID;
"""


def open_index(path: Path) -> sqlite3.Connection:
    """Open the index at a path, which is made new where there is none of this version.

    Raises sqlite3.Error and OSError where it can't be written.
    """
    connection = _connect(path)
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.DatabaseError:  # it is something else, or damaged
        version = -1
    if version != _VERSION:
        connection.close()
        for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            name.unlink(missing_ok=True)
        connection = _connect(path)
        connection.executescript(f"{_TABLES} PRAGMA user_version = {_VERSION};")
    return connection


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=30, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA cache_size = -512")  # KiB, for each thread
    connection.execute("PRAGMA synchronous = OFF")  # a damaged index is made again
    return connection


_PROGRESS = """
UPDATE run SET inode = ?, modified = ?, size = ?, position = ?, before = ?, lines = ?, left_out = ?,
earlier = ?, began = ?, last = ?, received = ? WHERE name = ?
"""
_COMPARED = 1024  # bytes before the position, by which a file that was written anew is seen


@dataclass(frozen=True)
class FileState:
    """Facts of a results file that differ once it was written to."""

    inode: int
    modified: int
    size: int

    def is_of(self, row: sqlite3.Row) -> bool:
        """Return whether a run's row was read from the file as it is."""
        return self == FileState(row["inode"], row["modified"], row["size"])

    def continues(self, row: sqlite3.Row, file: IO[bytes]) -> bool:
        """Return whether the file has only grown since a run's row was read from it."""
        if row["inode"] != self.inode or row["position"] > self.size:
            return False
        return bool(_before(file, row["position"]) == row["before"])


def read_run(
    database: sqlite3.Connection,
    run: str,
    file: IO[bytes],
    state: FileState,
    known: sqlite3.Row | None,
    longest_line: int,
    reading: int,
) -> None:
    """Read the lines of a run into the index, whole or not at all.

    ``known`` is its row where only what is new is to be read, and ``reading`` the number of this
    reading of the folder.
    """
    with database:
        elapsed = Elapsed()
        position = number = left_out = 0
        if known is None:
            forget_run(database, run)
            database.execute("INSERT INTO run (name) VALUES (?)", (run,))
        else:
            elapsed = Elapsed(known["earlier"], known["began"], known["last"])
            position, number, left_out = known["position"], known["lines"], known["left_out"]
            if known["before"] and not known["before"].endswith(b"\n"):
                position += 1  # the line's end, which a kill cost and a resumed run writes
        for line in lines_from(file, position, longest_line):
            position = line.end
            if line.content is None or format_problem(line.content):
                left_out += 1
            else:
                elapsed.take(line.content)
                _add_line(database, run, number, line, line.content, reading)
            number += 1
        progress = (position, _before(file, position), number, left_out)
        times = (elapsed.before, elapsed.began, elapsed.last, reading)
        values = (state.inode, state.modified, state.size, *progress, *times, run)
        database.execute(_PROGRESS, values)


def forget_run(database: sqlite3.Connection, run: str) -> None:
    """Remove a run from the index, within a transaction."""
    database.execute("DELETE FROM run WHERE name = ?", (run,))


def _before(file: IO[bytes], position: int) -> bytes:
    """Return the end of what is before a position."""
    begin = max(position - _COMPARED, 0)
    file.seek(begin)
    return file.read(position - begin)


def _add_line(
    database: sqlite3.Connection,
    run: str,
    number: int,
    line: JsonLine,
    content: Mapping[str, Any],
    reading: int,
) -> None:
    kind = content.get("type")
    if kind == "item":
        _add_item(database, run, number, line, content, reading)
    elif kind == "teardown":
        _fail_item(database, run, content)
    row = run_row(content)
    # The first start counts, and the end of the last session: a resumed run has several.
    end = row.pop("exit_status")
    firsts = "".join(f", {column} = COALESCE({column}, ?)" for column in row)
    change = f"UPDATE run SET exit_status = ?{firsts} WHERE name = ?"
    database.execute(change, (end, *row.values(), run))


def _add_item(
    database: sqlite3.Connection,
    run: str,
    number: int,
    line: JsonLine,
    content: Mapping[str, Any],
    reading: int,
) -> None:
    row = {**item_row(content), "received": reading}
    again = "UPDATE item SET is_last = 0 WHERE run = ? AND nodeid = ?"
    database.execute(again, (run, row["nodeid"]))
    row.update(run=run, number=number, position=line.position, length=line.length, is_last=1)
    _insert(database, "item", row)
    for software in software_rows(content):
        _insert(database, "software", {**software, "run": run, "number": number})
    files = [(run, number, name, path) for name, path in _files(content) if is_file_of_run(path)]
    database.executemany("INSERT OR REPLACE INTO artifact VALUES (?, ?, ?, ?)", files)


def _insert(database: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> None:
    marks = ", ".join(f":{column}" for column in row)
    database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", row)


def _files(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the names and paths of an item's artifacts, and of its logs, which have no names."""
    artifacts = content.get("artifacts")
    if isinstance(artifacts, dict):
        yield from ((name, path) for name, path in artifacts.items() if isinstance(path, str))
    logs = content.get("logs")
    if isinstance(logs, list):
        yield from ((path, path) for path in logs if isinstance(path, str))


def _fail_item(database: sqlite3.Connection, run: str, content: Mapping[str, Any]) -> None:
    """Note that the tear-down of an item failed after its line was written, as ItemLines does."""
    change = """
        UPDATE item SET verdict = 'ERROR', teardown = ?
        WHERE run = ? AND nodeid = ? AND is_last AND COALESCE(repetition, 1) = ?
    """
    row = item_row(content)
    message = str(content.get("message") or "")
    database.execute(change, (message, run, row["nodeid"], row["repetition"] or 1))


def item_row(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of an item that its line has; a text that is missing is empty."""
    return {
        "nodeid": _text(line, "nodeid"),
        "repetition": _whole(line.get("repetition")),
        "point": _text(line, "case"),
        "kind": _text(line, "kind"),
        "verdict": _text(line, "verdict"),
        "model": _text(line, "manifest", "name"),
        "version": _text(line, "manifest", "version"),
        "framework": _text(line, "framework"),
        "stack": _text(line, "stack", "name"),
        "device": _text(line, "device"),
        "host": _text(line, "machine", "host"),
        "machine": _machine(line),
        "time": _text(line, "time"),
        "cost_batch": _whole(_value(line, "trace", "cost") and line.get("batch_size", 1)),
    }


def _machine(line: Mapping[str, Any]) -> str:
    """Return the class of the machine; "" where its facts are damaged."""
    try:
        return machine_class(line["machine"], line["device"])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return ""


def software_rows(line: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the software of each side of an item, where its framework has a version.

    Upgrades have that of both sides in their rounds.
    """
    rounds = line.get("rounds")
    first = rounds[0] if isinstance(rounds, list) and rounds else {}
    of_sides = {"a": "against", "b": "stack"}
    framework = _text(line, "framework")
    for side, stack in of_sides.items():
        version = _text(first, "sides", side, "versions", framework)
        if side == "b":
            version = version or _text(line, "versions", framework)
        if version:
            yield {
                "side": side,
                "host": _text(line, "machine", "host"),
                "stack": _text(line, stack, "name"),
                "framework": framework,
                "version": version,
                "time": _text(line, "time"),
            }


def run_row(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a run that a line tells."""
    kind = line.get("type")
    status = _whole(line.get("exit_status")) if kind == "end" else None
    row = {"started": _text(line, "time"), "exit_status": status}
    if kind == "run":
        row["started"] = _text(line, "began") or row["started"]  # old lines have their time only
        row["plugin"] = _text(line, "plugin")
        row["started_by"] = started_by(line) or None
    elif kind == "item":
        row["host"] = _text(line, "machine", "host")
    return row


def _whole(value: object) -> int | None:
    """Return a whole number that SQLite can have; None for anything else."""
    if not isinstance(value, int) or value.bit_length() > 63:
        return None
    return value


def _text(line: Any, *keys: str) -> str:
    value = _value(line, *keys)
    return value if isinstance(value, str) else ""


def _value(line: Any, *keys: str) -> Any:
    value = line
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
