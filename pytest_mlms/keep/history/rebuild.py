"""Rebuilding of a history: all tables are made anew from the lines that it has.

It is one transaction, so that readers see the old history or the new one, for which they wait on
PostgreSQL, and a kill leaves the old one. A file that is damaged is moved aside, and what can still
be read of it is taken over.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.adding import add_content
from pytest_mlms.keep.history.address import address_of, file_of, show_address
from pytest_mlms.keep.history.errors import HistoryDamaged, HistoryError
from pytest_mlms.keep.history.export import (
    ExportReader,
    StoredRun,
    add_changes,
    is_export,
    read_changes,
    readable_runs,
)
from pytest_mlms.keep.history.run_content import gather
from pytest_mlms.keep.history.run_lines import read_run
from pytest_mlms.keep.history.store import alone, make_tables, open_history, open_unchecked

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
