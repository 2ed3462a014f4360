"""Opening of histories: tables, versions, damage, addresses and their secrets."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from sqlalchemy import func, select, update

from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.errors import (
    HistoryDamaged,
    HistoryError,
    HistoryUnavailable,
    address_of,
    show_address,
)
from pytest_mlms.keep.history.store import check_history, open_history, open_to_read, writing
from tests.support.postgresql import PASSWORD, Server


def set_version(address: str, version: int) -> None:
    with writing(open_history(address)) as connection:
        connection.execute(update(schema.about).values(value=str(version)))


def test_a_history_of_a_newer_version_is_refused_and_not_changed(address: str) -> None:
    set_version(address, schema.SCHEMA_VERSION + 1)
    for use in (open_history, open_to_read, check_history):
        with pytest.raises(HistoryUnavailable, match=r"newer version.*upgrade pytest-mlms"):
            use(address)


def test_a_history_of_an_older_version_is_refused_with_the_command_that_rebuilds_it(
    address: str,
) -> None:
    set_version(address, schema.SCHEMA_VERSION - 1)
    with pytest.raises(HistoryUnavailable, match="mlms history rebuild"):
        open_history(address)


def test_a_history_that_does_not_exist_is_not_made_by_reading_it(address: str) -> None:
    for _ in range(2):
        with pytest.raises(HistoryError, match="there is no history"):
            open_to_read(address)


def test_a_check_makes_nothing(address: str) -> None:
    check_history(address)
    with pytest.raises(HistoryError, match="there is no history"):
        open_to_read(address)


def test_a_history_that_is_read_can_not_be_written(address: str) -> None:
    open_history(address).dispose()
    with (
        pytest.raises(HistoryError, match="read"),
        writing(open_to_read(address)) as connection,
    ):
        connection.execute(update(schema.about).values(value="0"))


def open_it(address: str) -> None:
    open_history(address)


def test_eight_processes_may_make_one_history_at_once(address: str) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=open_it, args=(address,)) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 8
    with open_to_read(address).connect() as connection:
        assert connection.scalar(select(func.count()).select_from(schema.about)) == 1


@pytest.mark.parametrize("damage", [b"x" * 4096, b"SQLite format 3\0" + b"x" * 4096])
def test_a_damaged_file_is_told_from_one_that_is_away(tmp_path: Path, damage: bytes) -> None:
    file = tmp_path / "history.sqlite"
    file.write_bytes(damage)
    with pytest.raises(HistoryDamaged, match="run 'mlms history rebuild'"):
        open_history(file)


def test_pages_that_are_damaged_are_recognised_where_they_are_read(tmp_path: Path) -> None:
    file = tmp_path / "history.sqlite"
    history = open_history(file)
    with writing(history) as connection:
        rows = [{"name": f"name-{number}", "value": "x" * 500} for number in range(200)]
        connection.execute(schema.about.insert(), rows)
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    history.dispose()
    data = bytearray(file.read_bytes())
    data[40_000:100_000] = b"\xff" * 60_000
    file.write_bytes(data)
    with (
        pytest.raises(HistoryDamaged, match="damaged"),
        open_to_read(file).connect() as connection,
    ):
        connection.execute(select(schema.about)).all()


def test_another_file_is_not_called_damaged(tmp_path: Path) -> None:
    file = tmp_path / "test_model.py"
    file.write_text("def test_model(): pass\n")
    with pytest.raises(HistoryError, match="it is no history; name another file") as raised:
        open_history(file)
    assert not isinstance(raised.value, HistoryUnavailable)


@pytest.mark.parametrize("address", ["postgres//h/d", "postgresql:/h/d", "joe:s3cret@h:5432/d"])
def test_a_mistyped_url_is_no_file_of_a_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for use in (open_history, open_to_read, check_history):
        with pytest.raises(HistoryError, match="looks like a URL that lacks ://; ") as raised:
            use(address)
        assert "s3cret" not in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_tables_of_something_else_are_left_alone(address: str) -> None:
    url = address_of(address)
    from sqlalchemy import create_engine, text

    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE run (theirs INTEGER)"))
    with pytest.raises(HistoryError, match="tables of something else"):
        open_history(address)


def test_a_folder_is_no_file_of_a_history(tmp_path: Path) -> None:
    for use in (open_history, open_to_read, check_history):
        with pytest.raises(HistoryError, match="it is a folder"):
            use(tmp_path)


def test_a_file_in_a_read_only_folder_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "a folder#?%" / "history.sqlite"
    open_history(file).dispose()
    file.parent.chmod(0o555)
    try:
        with open_to_read(file).connect() as connection:
            assert connection.execute(select(schema.series)).all() == []
    finally:
        file.parent.chmod(0o755)


def test_runs_that_are_only_in_the_log_are_read_or_missed_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "history.sqlite"
    copy = tmp_path / "copy.sqlite"
    writer = open_history(file)
    with writing(writer) as connection:
        connection.execute(schema.about.insert(), {"name": "new", "value": "1"})
    for suffix in ("", "-wal"):
        data = file.with_name(file.name + suffix).read_bytes()
        copy.with_name(copy.name + suffix).write_bytes(data)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write any folder
    with open_to_read(file).connect() as connection:
        assert "new" in connection.scalars(select(schema.about.c.name)).all()
    with pytest.raises(HistoryError, match=r"copy.sqlite-wal has runs that can't be read"):
        open_to_read(copy)
    writer.dispose()


@pytest.mark.parametrize(
    ("kinds", "mode"),
    [
        (["ext4"], "wal"),
        (["nfs4"], "delete"),
        (["fuse.sshfs"], "delete"),
        (["fuse.ceph-fuse"], "delete"),
        (["autofs", "nfs4"], "delete"),
        (["nfs4", "tmpfs"], "wal"),
    ],
)
def test_hosts_that_share_a_folder_have_no_log_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: list[str], mode: str
) -> None:
    mounts = [SimpleNamespace(mountpoint="/", fstype="ext4")]
    for kind in kinds:  # the last one hides the others
        mounts.append(SimpleNamespace(mountpoint=str(tmp_path.resolve()), fstype=kind))
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: mounts)
    with open_history(tmp_path / "history.sqlite").connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == mode


def test_a_history_that_takes_the_place_of_another_is_read_anew(tmp_path: Path) -> None:
    file, other = tmp_path / "history.sqlite", tmp_path / "other.sqlite"
    for each in (file, other):
        open_history(each).dispose()
    reader = open_to_read(file)
    writer = open_history(other)
    with writing(writer) as connection:
        connection.execute(schema.about.insert(), {"name": "new", "value": "1"})
    writer.dispose()
    other.replace(file)
    with reader.connect() as connection:
        assert "new" in connection.scalars(select(schema.about.c.name)).all()


def test_what_others_add_to_a_shared_history_is_read_where_its_folder_can_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = [SimpleNamespace(mountpoint=str(tmp_path.resolve()), fstype="nfs4")]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: mounts)
    writer = open_history(tmp_path / "history.sqlite")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write any folder
    reader = open_to_read(tmp_path / "history.sqlite")
    names = select(schema.about.c.name)
    with reader.connect() as connection:
        assert connection.scalars(names).all() == ["schema"]
    with writing(writer) as connection:
        connection.execute(schema.about.insert(), {"name": "new", "value": "1"})
    with reader.connect() as connection:
        assert sorted(connection.scalars(names)) == ["new", "schema"]
    writer.dispose()


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("", "is empty"),
        ("mysql://u:s3cret@h/d", "mysql:// is no address of a history"),
        ("sqlite://", "sqlite:// is no address of a history"),
        ("postgresql://u:s3cret@h:port/d", "can't be read"),
        ("postgresql://u:s3c@ret@h/d", "write %40"),
    ],
)
def test_an_address_that_is_wrong_is_refused_without_its_password(
    address: str, problem: str
) -> None:
    with pytest.raises(HistoryError, match=problem) as raised:
        open_history(address)
    assert "s3c" not in str(raised.value)
    assert not isinstance(raised.value, HistoryUnavailable)


def test_the_shown_address_has_no_user_and_no_password() -> None:
    url = address_of("postgresql://u:s3cret@h:5433/d?password=s3cret&sslmode=require")
    assert show_address(url) == "postgresql+psycopg://***@h:5433/d?password=***&sslmode=***"


def test_a_server_that_is_away_is_told_from_a_wrong_address() -> None:
    with pytest.raises(HistoryUnavailable, match="refused") as raised:
        check_history("postgresql://u:s3cret@127.0.0.1:1/d")
    assert "s3cret" not in str(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (PASSWORD, "wr0ng-s3cret", "password authentication failed"),
        ("/history", "/nowhere", "does not exist"),
    ],
)
def test_an_address_that_the_server_refuses_is_a_wrong_address(
    postgresql: Server, old: str, new: str, problem: str
) -> None:
    address = postgresql.database().replace(old, new)
    with pytest.raises(HistoryError, match=problem) as raised:
        check_history(address)
    assert not isinstance(raised.value, HistoryUnavailable)
    assert "s3cret" not in str(raised.value)


@pytest.mark.slow
def test_missing_rights_are_a_history_error(postgresql: Server) -> None:
    address = postgresql.database()
    name = address.rpartition("/")[2]
    open_history(address).dispose()
    postgresql.sql(f"CREATE ROLE reader{name} LOGIN PASSWORD '{PASSWORD}'")
    as_reader = address.replace("postgres:", f"reader{name}:")
    with pytest.raises(HistoryError, match="permission denied"):
        open_history(as_reader)
