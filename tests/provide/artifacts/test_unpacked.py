"""Archives in the cache, and what happens to those that were changed there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import filelock
import psutil
import pytest

from pytest_mlms.core.records import Artifact, Place
from pytest_mlms.provide.artifacts import unpacked as module
from pytest_mlms.provide.artifacts.fetch import fetch
from pytest_mlms.provide.artifacts.unpacked import unpacked
from tests.support.archives import write_zip
from tests.support.project import sha256

MEMBERS = {"in/model.bin": b"weights", "labels.csv": b"file,label\n"}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return write_zip(tmp_path / "a.zip", MEMBERS)


@pytest.fixture
def folder(archive: Path, tmp_path: Path) -> Path:
    """The unpacked archive, as another process finds it."""
    folder = use(archive, tmp_path)
    module._known.clear()
    return folder


def use(archive: Path, tmp_path: Path) -> Path:
    digest = sha256(archive.read_bytes())
    return unpacked(archive, digest, tmp_path / "cache", 1 << 20)


def content(folder: Path) -> dict[str, bytes]:
    found = {}
    for path in folder.rglob("*"):
        if path.is_symlink() or path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def test_a_wait_for_another_process_names_it(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "a.zip", MEMBERS)
    artifact = Artifact(str(archive), sha256(archive.read_bytes()), Place(archive, 1))
    cache = tmp_path / "cache"
    lock = filelock.FileLock((use(archive, tmp_path)).with_suffix(".lock"))
    told: list[str] = []

    def say(step: str) -> None:
        told.append(step)
        if len(told) == 2:
            lock.release()

    with lock:
        fetch(artifact, cache, say=say)
    assert told == ["unpacking a.zip", f"a.zip, which {holder_text()} unpacks"]


def holder_text() -> str:
    command = " ".join(psutil.Process().cmdline()[:4])
    return f"process {os.getpid()} ({command})"


@pytest.mark.filterwarnings("error")
def test_an_archive_is_unpacked_once(archive: Path, folder: Path, tmp_path: Path) -> None:
    before = (folder / "labels.csv").stat().st_ctime_ns
    assert use(archive, tmp_path) == folder
    assert use(archive, tmp_path) == folder
    assert (folder / "labels.csv").stat().st_ctime_ns == before
    assert content(folder) == MEMBERS


def change_content(folder: Path) -> None:
    """Change a file, whose size and time stay as they are."""
    path = folder / "in" / "model.bin"
    status = path.stat()
    path.write_bytes(b"WEIGHTS")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def remove(folder: Path) -> None:
    (folder / "labels.csv").unlink()


def add(folder: Path) -> None:
    (folder / "in" / "more").write_bytes(b"x")


def replace_by_link(folder: Path) -> None:
    path = folder / "in" / "model.bin"
    path.rename(folder.parent / "model.bin")
    path.symlink_to(folder.parent / "model.bin")


def replace_folder_by_link(folder: Path) -> None:
    (folder / "in").rename(folder.parent / "in")
    (folder / "in").symlink_to(folder.parent / "in")


def replace_all_by_link(folder: Path) -> None:
    folder.rename(folder.parent / "all")
    (folder.parent / "all" / "labels.csv").write_bytes(b"x")
    folder.symlink_to(folder.parent / "all")


def change_table(folder: Path) -> None:
    folder.with_suffix(".json").write_text("{")


def add_pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


CHANGES = [
    change_content,
    remove,
    add,
    replace_by_link,
    replace_folder_by_link,
    replace_all_by_link,
    change_table,
    add_pipe,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_folder_that_was_changed_is_unpacked_again_with_a_warning(
    archive: Path, folder: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    change(folder)
    with pytest.warns(UserWarning, match="was changed since it was unpacked; it was unpacked"):
        assert use(archive, tmp_path) == folder
    assert content(folder) == MEMBERS
    assert not folder.is_symlink()


def test_a_change_while_the_process_runs_is_found(
    archive: Path, folder: Path, tmp_path: Path
) -> None:
    use(archive, tmp_path)
    change_content(folder)
    with pytest.warns(UserWarning, match="was changed"):
        use(archive, tmp_path)
    assert content(folder) == MEMBERS


@pytest.mark.filterwarnings("error")
def test_a_folder_of_an_earlier_version_is_unpacked_again(
    archive: Path, folder: Path, tmp_path: Path
) -> None:
    folder.with_suffix(".json").unlink()
    change_content(folder)
    use(archive, tmp_path)
    assert content(folder) == MEMBERS


def test_the_content_is_read_once_in_a_process(
    archive: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    def digest(path: Path) -> str:
        read.append(path.name)
        return sha256(path.read_bytes())

    monkeypatch.setattr(module, "sha256_of", digest)
    for _ in range(3):
        use(archive, tmp_path)
    assert sorted(read) == ["labels.csv", "model.bin"]
