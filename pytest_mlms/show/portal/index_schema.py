"""Tables of the index of runs, in SQLite. They can be made again from the results at any time."""

from __future__ import annotations

import sqlite3
from pathlib import Path

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
