"""Locks in folders that hostile users share, with real other users where root runs this."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_mlms.core.errors import MlmsError, Unavailable
from pytest_mlms.provide.host.locks import exclusive, hold_lock_file, open_shared_folder
from tests.support.users import ALICE, MALLORY, needs_root, run_as, shared, start_as

__all__ = ["shared"]

TRY = """
try:
    with locks.exclusive("cuda", 0.1, Path(sys.argv[1])):
        print("held")
except Exception as error:
    print(error)
"""

HOLD = """
with locks.exclusive("cuda", 60, Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""

REMOVE = """
try:
    os.unlink(sys.argv[1])
    print("removed")
except OSError as error:
    print(error.strerror)
"""


def hold(folder: Path) -> None:
    with exclusive("cuda", 0.1, folder):
        pass


def test_the_folder_is_sticky_and_nobody_reads_anything_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    with exclusive("cuda", 0.1, folder):
        files = list(folder.iterdir())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert [path.name for path in files] == ["cuda-0.lock"]
    assert files[0].read_bytes() == b""


def test_a_folder_of_an_older_version_becomes_sticky(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    folder.mkdir()
    folder.chmod(0o777)
    hold(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777


def test_a_folder_of_a_group_is_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    folder.mkdir()
    folder.chmod(0o770)
    hold(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o770


def plant_link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def plant_dangling_link(path: Path, victim: Path) -> None:
    path.symlink_to(victim.with_name("not there"))


def plant_fifo(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def plant_folder(path: Path, victim: Path) -> None:
    path.mkdir()


def plant_second_name(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


PLANTED = [plant_link, plant_dangling_link, plant_fifo, plant_folder, plant_second_name]


@pytest.mark.parametrize("plant", PLANTED)
def test_a_lock_that_is_no_file_is_an_error_at_once(
    tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    folder = tmp_path / "locks"
    folder.mkdir()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    plant(folder / "cuda-0.lock", victim)
    message = r"can't lock device cuda by .*cuda-0\.lock: .*; .* remove it, or name another folder"
    with pytest.raises(MlmsError, match=message):
        hold(folder)
    assert victim.read_text() == "precious"
    assert not (tmp_path / "not there").exists()


def test_a_note_that_another_user_planted_is_not_written_to(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    folder.mkdir()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (folder / "cuda-0.owner").symlink_to(victim)
    (folder / "core-0.owner").symlink_to(victim)
    hold(folder)
    with exclusive("cpu", 60, folder, cores=[0]):
        pass
    assert victim.read_text() == "precious"


def test_the_folder_must_not_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "locks").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MlmsError, match="can't lock device cuda by .*locks: "):
        hold(tmp_path / "locks")


def test_a_lock_that_was_replaced_before_it_was_taken_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fstat
    path = tmp_path / "cuda-0.lock"
    path.touch()
    replaced: list[Path] = []

    def replace_once(descriptor: int) -> os.stat_result:
        status = real(descriptor)
        if stat.S_ISREG(status.st_mode) and not replaced:
            replaced.append(path.rename(tmp_path / "old"))
            path.touch()
        return status

    with open_shared_folder(tmp_path) as folder:
        monkeypatch.setattr(os, "fstat", replace_once)
        with hold_lock_file(folder, path.name, 60) as descriptor:
            assert os.path.samestat(real(descriptor), path.stat())
    assert replaced


def test_a_lock_that_is_removed_while_it_is_held_is_told(tmp_path: Path) -> None:
    message = "cuda-0.lock was removed while device cuda was measured; another session may"
    with pytest.warns(UserWarning, match=message), exclusive("cuda", 0.1, tmp_path):
        (tmp_path / "cuda-0.lock").unlink()


@needs_root
@pytest.mark.parametrize("users", [(ALICE, MALLORY), (0, ALICE), (ALICE, 0)])
def test_users_exclude_each_other_and_name_the_holder(shared: Path, users: tuple[int, int]) -> None:
    folder = shared / "locks"
    first, second = users
    with start_as(first, HOLD, folder) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        output = run_as(second, TRY, folder)
        holder.kill()
    assert f"device cuda is in use by process {holder.pid} of another user" in output
    assert run_as(second, TRY, folder) == "held\n"


@needs_root
def test_another_user_can_not_remove_a_lock(shared: Path) -> None:
    folder = shared / "locks"
    with start_as(ALICE, HOLD, folder) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        assert "not permitted" in run_as(MALLORY, REMOVE, folder / "cuda-0.lock")
        with pytest.raises(Unavailable):
            hold(folder)
        holder.kill()


@needs_root
def test_what_another_user_planted_neither_hangs_root_nor_is_written(shared: Path) -> None:
    victim = shared / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    plant = """
folder = Path(sys.argv[1])
folder.mkdir(0o777)
(folder / "cuda-0.owner").symlink_to(sys.argv[2])
os.mkfifo(folder / "core-0.owner")
os.mkfifo(folder / "core-0.lock")
"""
    folder = shared / "locks"
    assert run_as(MALLORY, plant, folder, victim) == ""
    hold(folder)
    with (
        pytest.raises(MlmsError, match=r"core-0\.lock: it is no regular file"),
        exclusive("cpu", 1, folder, cores=[0]),
    ):
        pass
    assert victim.read_text() == "precious"


@needs_root
def test_a_folder_of_another_user_that_is_not_sticky_is_refused(shared: Path) -> None:
    make = "Path(sys.argv[1]).mkdir(); os.chmod(sys.argv[1], 0o777)"
    folder = shared / "locks"
    run_as(MALLORY, make, folder)
    assert "lets every user remove the locks of others; have its owner run" in run_as(
        ALICE, TRY, folder
    )


@needs_root
def test_a_lock_that_another_user_closed_to_others_is_an_error(shared: Path) -> None:
    folder = shared / "locks"
    hold(folder)
    close = "os.close(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o600))"
    run_as(MALLORY, close, folder / "cuda-1.lock")
    code = TRY.replace('"cuda"', '"cuda:1"')
    assert "cuda-1.lock: Permission denied; grant access to it" in run_as(ALICE, code, folder)
