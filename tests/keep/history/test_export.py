"""Export and rebuilding of histories, on each kind of database."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, func, insert, select, text, update

from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.errors import HistoryError, HistoryUnavailable
from pytest_mlms.keep.history.export import export_lines, rebuild
from pytest_mlms.keep.history.store import open_history, open_to_read, writing
from tests.support.histories import run_name, write_run
from tests.support.small_disk import fill as fill_disk
from tests.support.small_disk import mount_small_disk

CHANGE = {
    "kind": "step",
    "first_run": run_name(1),
    "found_run": run_name(2),
    "before": 1.0,
    "after": 1.1,
    "ratio": 1.1,
    "status": "accepted",
    "reason": "a new compiler",
}


def fill(address: str, results: Path, nights: range) -> Engine:
    history = open_history(address)
    for night in nights:
        add_run(history, write_run(results, night, items=2))
    return history


def add_change(history: Engine, **values: Any) -> None:
    with writing(history) as connection:
        series = connection.scalar(select(schema.series.c.id).order_by(schema.series.c.id.desc()))
        connection.execute(insert(schema.change), {**CHANGE, "series": series, **values})


def content_of(address: str | Path) -> dict[str, list[Any]]:
    """Return what a history has, without ids."""
    series, point, change = schema.series.c, schema.point.c, schema.change.c
    points = select(series.key, point.run, point.number, point.value, point.low, point.stack)
    changes = select(series.key, change.first_run, change.status, change.reason)
    queries = {
        "lines": select(schema.line.c.run, schema.line.c.number, schema.line.c.json),
        "runs": select(schema.run),
        "packages": select(schema.package),
        "points": points.join(schema.series, series.id == point.series),
        "changes": changes.join(schema.series, series.id == change.series),
    }
    with open_to_read(address).connect() as connection:
        return {
            name: sorted(map(tuple, connection.execute(query)), key=repr)
            for name, query in queries.items()
        }


def write_export(address: str, file: Path) -> None:
    with open_to_read(address).connect() as connection:
        file.write_text("".join(f"{line}\n" for line in export_lines(connection)))


def test_without_a_history_and_without_results_nothing_is_made(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "history.sqlite"
    with pytest.raises(HistoryError, match="there is no history; name folders of results"):
        rebuild(file, [])
    assert not file.parent.exists()


def test_a_rebuilt_history_is_the_same_with_its_changes(address: str, tmp_path: Path) -> None:
    add_change(fill(address, tmp_path / "results", range(3)))
    before = content_of(address)
    rebuilt = rebuild(address, [])
    assert (rebuilt.runs, rebuilt.points, rebuilt.lost_changes) == (3, 54, 0)
    assert rebuilt.problems == []
    assert content_of(address) == before


def test_a_history_of_an_older_version_is_rebuilt(address: str, tmp_path: Path) -> None:
    history = fill(address, tmp_path / "results", range(2))
    add_change(history)
    before = content_of(address)
    with writing(history) as connection:
        connection.execute(update(schema.about).values(value="0"))
        connection.execute(text("ALTER TABLE point DROP COLUMN replicates"))
        connection.execute(text("ALTER TABLE series DROP COLUMN name"))
        connection.execute(text("UPDATE series SET key = 'old-' || key"))
    with pytest.raises(HistoryUnavailable, match="run 'mlms history rebuild'"):
        open_history(address)
    assert rebuild(address, []).problems == []
    assert content_of(address) == before


def test_a_newer_history_is_not_rebuilt(address: str, tmp_path: Path) -> None:
    history = fill(address, tmp_path / "results", range(1))
    with writing(history) as connection:
        connection.execute(update(schema.about).values(value="999"))
    with pytest.raises(HistoryUnavailable, match="newer version"):
        rebuild(address, [])


def test_an_export_makes_the_same_history_elsewhere(address: str, tmp_path: Path) -> None:
    add_change(fill(address, tmp_path / "results", range(2)))
    export = tmp_path / "export.jsonl"
    write_export(address, export)
    other = tmp_path / "other.sqlite"
    assert rebuild(other, [export]).problems == []
    assert content_of(other) == content_of(address)


def test_two_histories_are_merged_by_an_export(address: str, tmp_path: Path) -> None:
    add_change(fill(address, tmp_path / "results", range(3)), status="open", reason=None)
    other = str(tmp_path / "other.sqlite")
    add_change(fill(other, tmp_path / "others", range(1, 5)))
    export = tmp_path / "export.jsonl"
    write_export(other, export)
    rebuilt = rebuild(address, [export])
    assert (rebuilt.runs, rebuilt.problems) == (5, [])
    merged = content_of(address)
    assert len(merged["points"]) == 5 * 18
    assert [change[2:] for change in merged["changes"]] == [("accepted", "a new compiler")]


def test_a_failed_rebuild_leaves_the_history(address: str, tmp_path: Path) -> None:
    fill(address, tmp_path / "results", range(1))
    before = content_of(address)
    cut = tmp_path / "cut.jsonl"
    write_export(address, cut)
    cut.write_text("".join(cut.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(HistoryError, match=r"cut.jsonl:4: it ends within the run .* again"):
        rebuild(address, [cut])
    assert content_of(address) == before


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mount_small_disk(tmp_path / "disk", "1m") as folder:
        yield folder


def test_a_rebuild_on_a_full_disk_leaves_the_history(tmp_path: Path, disk: Path) -> None:
    """The migration of an older history: it is the old one until the new one is whole."""
    file = disk / "history.sqlite"
    history = open_history(file)
    add_run(history, write_run(tmp_path / "results", 0))
    before = content_of(file)
    with writing(history) as connection:
        connection.execute(update(schema.about).values(value="0"))
    history.dispose()
    filler = fill_disk(disk)
    with pytest.raises(HistoryError, match="full"):
        rebuild(file, [])
    filler.unlink()
    with pytest.raises(HistoryUnavailable, match="run 'mlms history rebuild'"):
        open_history(file)
    roomy = tmp_path / "roomy"
    shutil.copytree(disk, roomy)  # with what was written ahead
    assert rebuild(roomy / file.name, []).problems == []
    assert content_of(roomy / file.name) == before


def test_a_run_that_differs_is_a_problem_and_the_others_are_added(
    address: str, tmp_path: Path
) -> None:
    fill(address, tmp_path / "results", range(1))
    before = content_of(address)
    write_run(tmp_path / "others", 0, items=2, ratio=2.0)
    write_run(tmp_path / "others", 1, items=2)
    rebuilt = rebuild(address, [tmp_path / "others"])
    assert rebuilt.runs == 2
    assert "a run is never overwritten" in rebuilt.problems[0]
    with open_to_read(address).connect() as connection:
        assert connection.scalar(select(func.count()).select_from(schema.point)) == 36
    assert set(before["points"]) < set(content_of(address)["points"])


def damage(file: Path, start: int, size: int) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = bytearray(file.read_bytes())
    data[start : start + size] = b"\xff" * len(data[start : start + size])
    file.write_bytes(data)


@pytest.mark.parametrize(("start", "size"), [(0, 100), (0, 1 << 30), (50_000, 100_000)])
def test_a_damaged_file_is_moved_aside_and_made_anew_of_the_results(
    tmp_path: Path, start: int, size: int
) -> None:
    file = tmp_path / "history.sqlite"
    fill(str(file), tmp_path / "results", range(12)).dispose()
    before = content_of(file)
    damage(file, start, size)
    damaged = file.read_bytes()
    rebuilt = rebuild(file, [tmp_path / "results"])
    assert content_of(file) == before
    assert rebuilt.aside is not None
    assert rebuilt.aside.read_bytes() == damaged
    assert "damaged" in rebuilt.problems[0]
    names = {path.name for path in tmp_path.iterdir()}
    names = {name for name in names if not name.endswith(("-wal", "-shm"))}
    assert names == {"results", "history.sqlite", rebuilt.aside.name}


def test_runs_that_can_still_be_read_of_a_damaged_file_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "history.sqlite"
    fill(str(file), tmp_path / "results", range(12)).dispose()
    whole = content_of(file)
    damage(file, 150_000, 30_000)
    rebuilt = rebuild(file, [])
    assert 0 < rebuilt.runs <= 12
    assert set(content_of(file)["lines"]) < set(whole["lines"])


def test_a_damaged_file_stays_where_nothing_of_it_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "history.sqlite"
    file.write_bytes(b"x" * 5000)
    with pytest.raises(HistoryError, match="name the folder of your results"):
        rebuild(file, [])
    assert [path.name for path in tmp_path.iterdir()] == ["history.sqlite"]
