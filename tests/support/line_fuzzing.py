"""Mutated lines of results through all of their readers."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, StaticPool, create_engine

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.recorded import recorded_artifacts
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.decide.upgrade.replay import read_upgrades, replay_upgrade
from pytest_mlms.explain.bisect.judgement import judgement_of
from pytest_mlms.explain.repro.expectation import expectation_of
from pytest_mlms.explain.repro.items import find_item
from pytest_mlms.items.resume import finished_items
from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.adding import add_content
from pytest_mlms.keep.history.run_content import gather
from pytest_mlms.keep.history.run_lines import read_run as read_for_history
from pytest_mlms.keep.lockfile.from_results import items_of_run, renewed
from pytest_mlms.keep.lockfile.lock import Lock
from pytest_mlms.keep.lockfile.reading import lock_text, parse_lock
from pytest_mlms.keep.results.checked_lines import read_lines
from pytest_mlms.provide.stacks.exact import ExactSoftware, RecordedStack, recreated_stack
from pytest_mlms.provide.stacks.trust import Trust, trusted_keys
from pytest_mlms.show.pages.report import render_report
from pytest_mlms.show.pages.run import read_run
from pytest_mlms.show.portal.index_writer import FileState, open_index
from pytest_mlms.show.portal.index_writer import read_run as read_for_index
from pytest_mlms.show.report.upgrade_report import item_report

__all__ = ["READERS", "read_mutated_lines"]

_SOME = 16
"""One of so many mutants becomes a page, rows of a history and a lock file, too: these take long."""

_LONGEST = 1 << 20  # bytes of a line of the portal's index


def read_mutated_lines(data: bytes, folder: Path) -> None:
    """Read lines by each reader; an error of ours in one of them doesn't keep the others from it."""
    path = folder / "results.jsonl"
    path.write_bytes(data)
    errors = []
    for name, read in READERS.items():
        try:
            read(path)
        except MlmsError as error:
            errors.append(f"{name}: {error}")
    if errors:
        raise MlmsError("; ".join(errors))


def _is_one_of_some(path: Path) -> bool:
    return zlib.crc32(path.read_bytes()) % _SOME == 0


def _report(path: Path) -> None:
    run = read_run(path.parent)
    json.dumps(to_plain(run)).encode()
    for item in run.items:
        assert item.title is not None
        assert item.explanation is not None
        for name in item.artifacts:
            item.artifact(name)
    if _is_one_of_some(path):
        render_report([run])
        for item in run.items:
            assert item.kind != "upgrade" or item_report(item, "results.jsonl")


def _portal(path: Path) -> None:
    state = FileState(1, 1, path.stat().st_size)
    with path.open("rb") as file:
        read_for_index(_index(), "run", file, state, None, _LONGEST, 1)


@cache
def _index() -> sqlite3.Connection:
    return open_index(Path(":memory:"))


def _lock(path: Path) -> None:
    items = items_of_run(read_lines(path), path.parent)
    items.refused()
    lock = renewed(Lock(), items.written(force=True), ())
    text = lock_text(lock)
    if _is_one_of_some(path):
        assert parse_lock(text.encode(), "again") == lock


def _repro(path: Path) -> None:
    for line in read_lines(path):
        if line.get("type") == "item":
            found = find_item(f"{path.parent}::{line['nodeid']}", path.parent)
            with contextlib.suppress(MlmsError):
                expectation_of(found.line)
            for file in recorded_artifacts(found.line).values():
                file.file_below(path.parent)
            _recreate(RecordedStack.of(found.line))


def _recreate(recorded: RecordedStack) -> None:
    assert recorded.identity is not None
    with contextlib.suppress(MlmsError):
        trusted_keys(recorded.declared, Trust(), recorded.name)
    exact = ExactSoftware(recorded.name, recorded.framework, recorded.python, recorded.packages)
    with contextlib.suppress(MlmsError):
        recreated_stack("again", exact, Trust())


def _resume(path: Path) -> None:
    finished_items(path.parent)


def _history(path: Path) -> None:
    with path.open("rb") as lines:
        content = gather(read_for_history(lines, str(path)))
    if content is not None and _is_one_of_some(path):
        with _empty_history().connect() as connection:
            add_content(connection, content, str(path))
            connection.rollback()


@cache
def _empty_history() -> Engine:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    schema.metadata.create_all(engine)
    return engine


def _judge(path: Path) -> None:
    if b'"rounds"' not in path.read_bytes():
        return
    folder, upgrades = read_upgrades(path)
    for upgrade in upgrades:
        replay_upgrade(folder, upgrade, None, None)


def _bisect(path: Path) -> None:
    for line in read_lines(path):
        if line.get("type") == "item" and line["kind"] == "upgrade":
            judgement_of(line, None)


READERS: dict[str, Callable[[Path], Any]] = {
    "report": _report,
    "portal": _portal,
    "lock": _lock,
    "repro": _repro,
    "resume": _resume,
    "history": _history,
    "judge": _judge,
    "bisect": _bisect,
}
"""The readers by name; each raises errors of ours only."""
