"""Runs added to a history, on each kind of database."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, func, select

from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.adding import (
    Rows,
    add_lines,
    add_run,
    ids_of_series,
    insert_missing,
    insert_rows,
)
from pytest_mlms.keep.history.errors import HistoryError
from pytest_mlms.keep.history.store import open_history, open_to_read, writing
from tests.support.histories import (
    item_line,
    run_lines,
    run_name,
    write_lines,
    write_run,
)

COLUMNS = ("key", "parts", "name", "quantity", "unit", "better", "control")
MANY = 1_000
"""Series that PostgreSQL takes by COPY."""

TEXTS = ["", "\\N", "\\.", "a\tb\nc\r\\d", "quotes \"'", "ключ 漢字 🎲", "%s ? :name {}"]


@pytest.fixture
def connection(address: str) -> Iterator[Connection]:
    """A connection of a transaction that writes to a new history."""
    history = open_history(address)
    with writing(history) as opened:
        yield opened
    history.dispose()


def series(*keys: str, name: str = "n") -> Rows:
    of_all = ("{}", name, "latency_p50", "s", "lower", False)
    return Rows(schema.series, COLUMNS, [(key, *of_all) for key in keys])


def named(connection: Connection) -> dict[str, str]:
    rows = connection.execute(select(schema.series.c.key, schema.series.c.name))
    return {row.key: row.name for row in rows}


@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_read_as_they_were_written(connection: Connection, text: str) -> None:
    columns = ("lock_sha256", "framework", "python", "driver")
    insert_rows(connection, Rows(schema.stack, columns, [("1", text, None, None)]))
    row: Any = connection.execute(select(schema.stack)).one()
    assert (row.framework, row.python) == (text, None)


@pytest.mark.parametrize("count", [3, MANY])
def test_rows_that_are_there_are_left_as_they_are(connection: Connection, count: int) -> None:
    keys = [f"{number:04}" for number in range(count)]
    insert_missing(connection, series(*keys[: count // 2], name="old"))
    insert_missing(connection, series(*keys, name="new"))
    found = named(connection)
    assert sorted(found) == keys
    assert [found[key] for key in keys].count("old") == count // 2


def test_many_rows_may_come_twice_in_one_transaction(connection: Connection) -> None:
    for start in range(2):
        keys = [f"{number:04}" for number in range(start, MANY + start)]
        insert_missing(connection, series(*keys))
    assert len(named(connection)) == MANY + 1


def test_ids_are_those_of_the_keys_that_there_are(connection: Connection) -> None:
    insert_missing(connection, series("b", "a"))
    ids = ids_of_series(connection, ["a", "b", "c"])
    found = connection.execute(select(schema.series.c.key, schema.series.c.id))
    assert ids == {row.key: row.id for row in found}
    assert set(ids) == {"a", "b"}


def test_without_rows_there_is_no_statement(connection: Connection) -> None:
    insert_rows(connection, series())
    insert_missing(connection, series())
    assert ids_of_series(connection, []) == {}
    assert named(connection) == {}


QUANTITIES = 9
"""The points of the item that tests/support/histories.py makes."""


def encode(lines: Sequence[Mapping[str, Any]]) -> list[bytes]:
    return [f"{json.dumps(line)}\n".encode() for line in lines]


def count(history: Engine, table: Any) -> int:
    with history.connect() as connection:
        found: int = connection.scalar(select(func.count()).select_from(table)) or 0
        return found


def run_row(history: Engine, number: int = 0) -> Any:
    with history.connect() as connection:
        query = select(schema.run).where(schema.run.c.id == run_name(number))
        return connection.execute(query).one()


def verdicts(history: Engine) -> dict[int, str]:
    """Return the verdicts of the lines that have points, by their number."""
    with history.connect() as connection:
        found = connection.execute(select(schema.point.c.number, schema.point.c.verdict).distinct())
        return {row.number: row.verdict for row in found}


def test_a_run_that_is_added_twice_changes_nothing(address: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "results", 0, items=2)
    history = open_history(address)
    added = add_run(history, run)
    assert (added.lines, added.points, added.is_new) == (4, 2 * QUANTITIES, True)
    again = add_run(history, run)
    assert (again.lines, again.points, again.is_new) == (0, 0, False)
    assert count(history, schema.point) == 2 * QUANTITIES


def test_a_run_that_grows_is_added_as_it_grows(address: str) -> None:
    lines = encode(list(run_lines(0, items=5)))
    history = open_history(address)
    for size in range(1, len(lines)):
        assert add_lines(history, lines[:size], "it").lines == 1
        assert run_row(history).exit_status is None
    add_lines(history, lines, "it")
    assert run_row(history).exit_status == 0
    assert count(history, schema.point) == 5 * QUANTITIES
    resumed = [*lines, *encode([item_line(0, item=9)])]
    add_lines(history, resumed, "it")
    assert run_row(history).exit_status is None


def test_results_cut_at_any_byte_are_added_up_to_there_and_completed_later(
    address: str,
) -> None:
    data = b"".join(encode([*run_lines(0, items=3)]))
    ends = [position + 1 for position, byte in enumerate(data) if byte == ord("\n")]
    cuts = {end + step for end in ends for step in (-2, -1, 0, 1)}
    cuts.update(random.Random(0).sample(range(len(data)), 20))
    history = open_history(address)
    for cut in sorted(cut for cut in cuts if ends[0] - 1 <= cut <= len(data)):
        add_lines(history, data[:cut].splitlines(keepends=True), "it")
        whole = data[:cut].count(b"\n")
        assert count(history, schema.line) in (whole, whole + 1)  # one may lack only its newline
    assert count(history, schema.line) == 5
    assert count(history, schema.point) == 3 * QUANTITIES


def test_another_run_of_the_same_name_is_refused_and_nothing_is_overwritten(
    address: str, tmp_path: Path
) -> None:
    history = open_history(address)
    add_run(history, write_run(tmp_path / "a", 0, items=2))
    other = write_run(tmp_path / "b", 0, items=3, ratio=1.5)
    with pytest.raises(HistoryError, match=r"results\.jsonl:2: .* a run is never overwritten"):
        add_run(history, other)
    assert count(history, schema.line) == 4
    assert count(history, schema.point) == 2 * QUANTITIES


def test_a_line_that_is_wrong_is_named_and_nothing_of_the_run_is_added(
    address: str, tmp_path: Path
) -> None:
    run = write_run(tmp_path, 0, items=2)
    file = run / "results.jsonl"
    lines = file.read_text().splitlines()
    lines[2] = json.dumps({**json.loads(lines[2]), "verdict": "GREAT"})
    file.write_text("\n".join(lines))
    history = open_history(address)
    with pytest.raises(HistoryError, match=r"results\.jsonl:3: verdict: input should be 'ERROR'"):
        add_run(history, run)
    assert count(history, schema.line) == 0


def test_the_last_line_of_an_item_gives_its_points(address: str) -> None:
    first, end = list(run_lines(0, items=0))
    lines = [
        first,
        item_line(0, 0, verdict="FAILED"),
        item_line(0, 1, verdict="ERROR", estimates=None),
        item_line(0, 2, outcome="interrupted"),
        item_line(0, 3, verdict="INVALID"),
        item_line(0, 4),
        item_line(0, 0, repetition=2),
        {**first, "type": "teardown", "nodeid": item_line(0, 4)["nodeid"], "verdict": "ERROR"},
        end,
    ]
    at_once = open_history(address)
    add_lines(at_once, encode(lines), "it")
    assert verdicts(at_once) == {4: "INVALID", 6: "PASSED"}


def test_an_item_that_ran_again_in_a_resumed_run_loses_its_earlier_points(address: str) -> None:
    first, end = list(run_lines(0, items=0))
    lines = [first, item_line(0, 0, verdict="FAILED"), item_line(0, 1), end]
    history = open_history(address)
    add_lines(history, encode(lines), "it")
    assert verdicts(history) == {1: "FAILED", 2: "PASSED"}
    teardown = {**first, "type": "teardown", "nodeid": item_line(0, 1)["nodeid"]}
    lines += [first, item_line(0, 0, ratio=1.1), teardown, end]
    add_lines(history, encode(lines), "it")
    assert verdicts(history) == {5: "PASSED"}


def test_a_tear_down_that_fails_late_costs_its_own_repetition_alone(address: str) -> None:
    first, end = list(run_lines(0, items=0))
    late = {**first, "type": "teardown", "nodeid": item_line(0, 0)["nodeid"]}
    lines = [first, item_line(0, 0), item_line(0, 0, repetition=2), end, late]
    history = open_history(address)
    for count_of_lines in (3, 5):
        add_lines(history, encode(lines[:count_of_lines]), "it")
        assert verdicts(history) == {2: "PASSED"}
    add_lines(history, encode([*lines, {**late, "repetition": 2}]), "it")
    assert verdicts(history) == {}


def test_clocks_that_step_back_change_the_order_and_nothing_else(address: str) -> None:
    history = open_history(address)
    for number, time in enumerate(["2026-03-01T00:00:00+00:00", "2026-02-01T02:00:00+02:00"]):
        lines = [{**line, "time": time} for line in run_lines(number)]
        lines[-1]["time"] = "2020-01-01T00:00:00Z"
        add_lines(history, encode(lines), "it")
    assert run_row(history, 1).started == "2026-02-01T00:00:00.000+00:00"
    with history.connect() as connection:
        query = select(schema.run.c.id).order_by(schema.run.c.started, schema.run.c.id)
        assert list(connection.scalars(query)) == [run_name(1), run_name(0)]
    assert count(history, schema.point) == 2 * QUANTITIES


def add_all(address: str, runs: Sequence[Path], seed: int) -> None:
    mixed = list(runs)
    random.Random(seed).shuffle(mixed)
    history = open_history(address)
    for run in mixed:
        add_run(history, run)


def test_eight_writers_at_once_lose_nothing_and_write_nothing_twice(
    address: str, tmp_path: Path
) -> None:
    runs = [write_run(tmp_path / "results", night, items=4) for night in range(6)]
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=add_all, args=(address, runs, seed)) for seed in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 8
    history = open_to_read(address)
    assert count(history, schema.run) == 6
    assert count(history, schema.line) == 6 * 6
    assert count(history, schema.series) == 4 * QUANTITIES
    assert count(history, schema.point) == 6 * 4 * QUANTITIES


STOP_BEFORE_COMMIT = """
import sys, time
from pathlib import Path
from pytest_mlms.keep.history import adding, schema
from pytest_mlms.keep.history.store import open_history
insert_rows = adding.insert_rows
def insert_and_stop(connection, rows):
    insert_rows(connection, rows)
    if rows.table is schema.point:
        print("written", flush=True)
        time.sleep(3600)
adding.insert_rows = insert_and_stop
adding.add_run(open_history(sys.argv[1]), Path(sys.argv[2]))
"""


def test_a_writer_that_is_killed_leaves_nothing_half_added(address: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "results", 0, items=3)
    command = [sys.executable, "-c", STOP_BEFORE_COMMIT, address, str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        os.kill(writer.pid, signal.SIGKILL)
    history = open_history(address)
    assert count(history, schema.point) == 0
    assert add_run(history, run).points == 3 * QUANTITIES


def test_a_folder_that_was_renamed_and_resumed_is_one_run(address: str, tmp_path: Path) -> None:
    lines = list(run_lines(0, items=2))
    lines[-1]["run"] = "before-the-upgrade"
    write_lines(tmp_path / "before-the-upgrade", lines)
    history = open_history(address)
    assert add_run(history, tmp_path / "before-the-upgrade").run == run_name(0)
    assert count(history, schema.run) == 1


def test_a_missing_file_is_a_history_error(address: str, tmp_path: Path) -> None:
    history = open_history(address)
    with pytest.raises(HistoryError, match="name a run's folder"):
        add_run(history, tmp_path)
    (tmp_path / "results.jsonl").touch()
    with pytest.raises(HistoryError, match="it has no whole line"):
        add_run(history, tmp_path)
