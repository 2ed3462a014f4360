"""The database of a history: SQLite in a file, or PostgreSQL.

Every error of a driver becomes a HistoryError, whose text has no password.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil
from sqlalchemy import URL, Connection, Engine, create_engine, event, insert, inspect, select
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.pool import NullPool

from pytest_mlms.core.extras import missing_extra
from pytest_mlms.core.files import open_regular
from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.errors import (
    HistoryConflict,
    HistoryError,
    HistoryOutdated,
    HistoryUnavailable,
    address_of,
    damaged,
    file_of,
    show_address,
    translate,
)

__all__ = [
    "HistoryError",
    "HistoryUnavailable",
    "alone",
    "check_history",
    "make_tables",
    "open_history",
    "open_to_read",
    "open_unchecked",
    "transact",
    "writing",
]

Result = TypeVar("Result")

_COMPRESS_QUICKLY = """
SELECT set_config(name, 'lz4', true) FROM pg_settings
WHERE name = 'default_toast_compression' AND 'lz4' = ANY(enumvals)
"""
"""Has PostgreSQL compress lines by lz4 where it can: its own method takes a second for 60 MB."""

_BUSY_SECONDS = 60
"""How long a writer of SQLite waits for another one: adding a large run takes seconds."""

_CONNECT_SECONDS = 10
_ATTEMPTS = 8
_NETWORKS = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afpfs", "afs", "webdav", "davfs"),
        *("9p", "virtiofs", "vboxsf", "vmhgfs-fuse", "prl_fs", "grpcfuse", "osxfs", "fakeowner"),
        *("ceph", "ceph-fuse", "lustre", "gpfs", "beegfs", "glusterfs", "juicefs", "mfs", "panfs"),
        *("orangefs", "pvfs2", "ocfs2", "gfs2", "wekafs"),
        *("sshfs", "s3fs", "rclone", "gcsfuse", "goofys", "blobfuse", "blobfuse2"),
    )
)
"""File systems that hosts share: SQLite's log, which readers find by memory, can't be on them."""

_HEADER = b"SQLite format 3\0"
_SUFFIXES = (".sqlite", ".sqlite3", ".db")
_FORBIDDEN = "42501"  # insufficient_privilege, an error of PostgreSQL

_LOCK_KEY = 0x6D6C6D73
"""The advisory lock of PostgreSQL that writers share, and who makes tables has alone."""


def open_history(address: str | Path) -> Engine:
    """Return the engine of the history at a file's path or a database's URL.

    The tables are made where there are none; any number of processes may do so at once. Raises
    HistoryError; HistoryUnavailable where it may be possible later.
    """
    url = address_of(address)
    _make_folder(url)
    engine = _engine(url)
    with _closed_on_failure(engine):
        _set_journal(engine)
        with alone(engine) as connection:
            if _is_new(connection, show_address(url)):
                make_tables(connection)
    return engine


def open_unchecked(address: str | Path) -> Engine:
    """Return the engine of a history of this version or an older one, or of none.

    Raises HistoryError where a newer version, or something else, has made the tables.
    """
    url = address_of(address)
    _make_folder(url)
    engine = _engine(url)
    with _closed_on_failure(engine):
        _set_journal(engine)
        with engine.connect() as connection, contextlib.suppress(HistoryOutdated):
            _is_new(connection, show_address(url))
    return engine


def open_to_read(address: str | Path) -> Engine:
    """Return the engine of a history that exists, which is only read.

    Raises HistoryError, also where there is no history.
    """
    url = address_of(address)
    where = show_address(url)
    missing = f"{where}: there is no history; pytest --mlms-history makes one"
    file = file_of(url)
    if file is not None:
        if not file.exists():
            raise HistoryError(missing)
        check_file(file)
        url = _read_only(url, file)
    engine = _engine(url, where).execution_options(postgresql_readonly=True)
    with _closed_on_failure(engine), engine.connect() as connection:
        if _is_new(connection, where):
            raise HistoryError(missing)
    return engine


@contextlib.contextmanager
def _closed_on_failure(engine: Engine) -> Iterator[None]:
    """Close the connections of an engine that is not handed out."""
    try:
        yield
    except BaseException:
        engine.dispose()
        raise


def check_history(address: str | Path) -> None:
    """Check that a history can be used, or made; makes nothing. Raises HistoryError."""
    url = address_of(address)
    file = file_of(url)
    if file is None:
        with _engine(url).connect() as connection:
            _is_new(connection, show_address(url))
        return
    check_file(file)
    if file.exists() and file.stat().st_size:
        with _engine(_read_only(url, file), str(file)).connect() as connection:
            _is_new(connection, str(file))
        return
    nearest = next(parent for parent in file.absolute().parents if parent.exists())
    if not nearest.is_dir():
        raise HistoryError(f"{file}: {nearest} is a file; name a file in a folder")


@contextlib.contextmanager
def writing(history: Engine) -> Iterator[Connection]:
    """Yield the connection of a transaction that writes.

    On SQLite it has the lock from its beginning: a transaction that first reads and then writes
    would fail where another one has written in between.
    """
    with _transaction(history, "_shared") as connection:
        yield connection


@contextlib.contextmanager
def alone(history: Engine) -> Iterator[Connection]:
    """Yield the connection of a transaction that is the only one that writes."""
    with _transaction(history, "") as connection:
        yield connection


@contextlib.contextmanager
def _transaction(history: Engine, lock: str) -> Iterator[Connection]:
    where = _where(history)
    drivers_error = history.dialect.loaded_dbapi.Error
    try:
        with history.execution_options(mlms_writing=True).begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock{lock}({_LOCK_KEY})")
                connection.exec_driver_sql(_COMPRESS_QUICKLY)
            yield connection
    except drivers_error as error:  # of what does not pass through SQLAlchemy
        raise translate(where, error) from None


def transact(history: Engine, work: Callable[[Connection], Result]) -> Result:
    """Return what ``work`` returns, in a transaction that is tried again where writers conflict."""
    for attempt in range(1, _ATTEMPTS):
        try:
            with writing(history) as connection:
                return work(connection)
        except HistoryConflict:
            time.sleep(0.05 * 2**attempt)
    with writing(history) as connection:
        return work(connection)


def check_file(file: Path) -> None:
    """Refuse a file that is no database of SQLite, unless its name says that it was one.

    Advice on a damaged history must not lead to the loss of other files.
    """
    if file.is_dir():
        raise HistoryError(f"{file}: it is a folder; name a file in it")
    if not file.exists() or file.suffix in _SUFFIXES:
        return
    try:
        with open_regular(file) as opened:
            start = opened.read(len(_HEADER))
    except OSError as error:
        raise HistoryError(f"{file}: {error.strerror}; name another file") from None
    if start and start != _HEADER:
        raise HistoryError(f"{file}: it is no history; name another file, such as history.sqlite")


def _make_folder(url: URL) -> None:
    file = file_of(url)
    if file is None:
        return
    check_file(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HistoryError(f"{file}: {error.strerror}; name a file in a folder") from None


def _read_only(url: URL, file: Path) -> URL:
    query = {"mode": "ro", "uri": "true"}
    can_make_files = os.access(file.parent, os.W_OK) or _beside(file, "-shm").exists()
    if not can_make_files and _is_written_ahead(file):
        log = _beside(file, "-wal")
        if log.exists() and log.stat().st_size:
            problem = f"{log.name} has runs that can't be read in a folder that can't be written"
            raise HistoryError(f"{file}: {problem}; copy both files to one that can be")
        query["immutable"] = "1"  # SQLite could not make the files that readers share
    path = str(file.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return url.set(database=f"file:{path}", query=query)


def _is_written_ahead(file: Path) -> bool:
    """Return whether readers of a database need its log; SQLite's header says so in two bytes."""
    with contextlib.suppress(OSError), open_regular(file) as opened:
        return opened.read(20)[18:] == b"\2\2"
    return False


def _beside(file: Path, suffix: str) -> Path:
    """Return a file that SQLite has beside a database."""
    return file.with_name(file.name + suffix)


def _engine(url: URL, where: str = "") -> Engine:
    """Return an engine that has our settings, and whose errors are ours."""
    shown = where or show_address(url)
    is_server = url.get_backend_name() == "postgresql"
    arguments = _server_arguments(url) if is_server else {"timeout": _BUSY_SECONDS}
    try:
        engine = create_engine(
            url,
            connect_args=arguments,
            json_deserializer=_parts_of,
            poolclass=NullPool if "mode" in url.query else None,  # another file may take its place
        )
    except ImportError as error:
        raise HistoryError(f"{shown}: {missing_extra(error) or error}") from None
    except ValueError as error:
        raise HistoryError(f"{shown}: {error}") from None
    if not is_server:
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_on_sqlite)
    event.listen(engine, "handle_error", _raise_ours)
    engine.update_execution_options(mlms_where=shown)
    return engine


_PARTS = {"manifest", "kind", "device", "framework", "stack", "machine", "scenario", "test"}
"""The parts of a series that readers take by name."""


def _parts_of(text: str) -> dict[str, Any]:
    """Return the parts of a series, the only JSON of our tables; raises HistoryDamaged."""
    try:
        parts = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        raise damaged("a series' parts are no JSON") from None
    if not isinstance(parts, dict) or not parts.keys() >= _PARTS:
        raise damaged("a series' parts are not those of a series")
    return parts


def _server_arguments(url: URL) -> dict[str, Any]:
    """Return arguments of psycopg, so that a server that is away is noticed."""
    defaults = {
        "connect_timeout": _CONNECT_SECONDS,
        "tcp_user_timeout": 60_000,  # milliseconds
        "keepalives_idle": 30,
        "application_name": "pytest-mlms",
    }
    return {name: value for name, value in defaults.items() if name not in url.query}


def _set_up_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions begin where _begin_on_sqlite says
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")  # a commit of each run survives a loss of power


def _begin_on_sqlite(connection: Connection) -> None:
    is_writing = connection.get_execution_options().get("mlms_writing")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")


def _raise_ours(context: ExceptionContext) -> None:
    """Raise a driver's error in our words; errors of statements of ours stay what they are."""
    error = context.sqlalchemy_exception
    if not isinstance(error, DBAPIError) or _is_of_statement(error):
        return
    assert context.engine is not None
    raise translate(_where(context.engine), context.original_exception) from None


def _is_of_statement(error: DBAPIError) -> bool:
    if getattr(error.orig, "sqlstate", None) == _FORBIDDEN:
        return False
    return isinstance(error, IntegrityError | ProgrammingError | DataError)


def _where(engine: Engine) -> str:
    where: str = engine.get_execution_options()["mlms_where"]
    return where


def _set_journal(engine: Engine) -> None:
    """Have SQLite write ahead, so that readers do not wait for a writer.

    Hosts that share a folder have no memory in common, which that takes: there readers wait. The
    change needs the file alone, and SQLite does not wait for it.
    """
    file = file_of(engine.url)
    if file is None:
        return
    mode = "DELETE" if _is_shared_by_hosts(file) else "WAL"
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            with contextlib.closing(engine.raw_connection()) as connection:
                connection.cursor().execute(f"PRAGMA journal_mode = {mode}")
            return
        except HistoryError:
            raise
        except engine.dialect.loaded_dbapi.Error as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise translate(_where(engine), error) from None
        time.sleep(0.02)


def _is_shared_by_hosts(file: Path) -> bool:
    """Return whether a file is on a network's file system."""
    parents = {str(parent) for parent in file.resolve().parents}
    mounts = psutil.disk_partitions(all=True)
    above = [mount for mount in mounts if mount.mountpoint in parents]
    last_first = reversed(above)  # an automount has its place, and then the network's does
    nearest = max(last_first, key=lambda mount: len(mount.mountpoint), default=None)
    return nearest is not None and nearest.fstype.removeprefix("fuse.") in _NETWORKS


def _is_new(connection: Connection, where: str) -> bool:
    """Return whether there are no tables yet; raises HistoryError where they are not ours."""
    tables = set(inspect(connection).get_table_names())
    if schema.about.name not in tables:
        _check_strangers(connection, tables, where)
        return True
    query = select(schema.about.c.value).where(schema.about.c.name == "schema")
    _check_version(int(connection.scalar(query) or 0), where)
    return False


def _check_strangers(connection: Connection, tables: set[str], where: str) -> None:
    """Refuse a file of something else, and a database that has tables of our names."""
    if connection.dialect.name == "postgresql":
        tables = tables.intersection(schema.metadata.tables)
    if tables:
        names = ", ".join(sorted(tables)[:3])
        problem = f"it has tables of something else ({names})"
        raise HistoryError(f"{where}: {problem}; name a database of its own")


def _check_version(version: int, where: str) -> None:
    ours = schema.SCHEMA_VERSION
    versions = f"(schema {version}, this one has {ours})"
    if version > ours:
        problem = f"a newer version of pytest-mlms made it {versions}"
        raise HistoryUnavailable(f"{where}: {problem}; upgrade pytest-mlms")
    if version < ours:
        problem = f"an older version of pytest-mlms made it {versions}"
        raise HistoryOutdated(f"{where}: {problem}; run 'mlms history rebuild'")


def make_tables(connection: Connection) -> None:
    """Make the tables, and note their version."""
    schema.metadata.create_all(connection)
    row = {"name": "schema", "value": str(schema.SCHEMA_VERSION)}
    connection.execute(insert(schema.about), row)
