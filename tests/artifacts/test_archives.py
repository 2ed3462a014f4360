"""Archives made by the standard library, some of them hostile."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_mlms.artifacts.archives import UnsafeArchive, is_archive, unpack
from tests.support.archives import write_tar, write_zip


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz", "a.tgz", "a.tar.bz2", "a.tar.xz"])
def test_archives_are_known_by_their_suffix(name: str) -> None:
    assert is_archive(Path(name))


@pytest.mark.parametrize("name", ["a.gz", "a.npz", "zip", "a.zip.txt"])
def test_other_files_are_no_archives(name: str) -> None:
    assert not is_archive(Path(name))


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_an_archive_becomes_a_folder(tmp_path: Path, name: str) -> None:
    write = write_zip if name == "a.zip" else write_tar
    path = write(tmp_path / name, {"in/model.bin": b"model", "readme": b"text"})
    folder = tmp_path / "unpacked"
    unpack(path, folder)
    assert (folder / "in" / "model.bin").read_bytes() == b"model"
    assert sorted(path.name for path in folder.iterdir()) == ["in", "readme"]


def make_link(info: tarfile.TarInfo) -> None:
    info.type = tarfile.SYMTYPE
    info.linkname = "/etc/passwd"


def make_device(info: tarfile.TarInfo) -> None:
    info.type = tarfile.CHRTYPE


def check_is_refused(path: Path, folder: Path) -> None:
    with pytest.raises(UnsafeArchive):
        unpack(path, folder / "unpacked")
    assert list(folder.rglob("out")) == []
    assert not (folder / "unpacked").exists()


@pytest.mark.parametrize("member", ["../out", "/out", "in\\..\\..\\out"])
def test_a_zip_file_that_would_write_outside_is_refused(tmp_path: Path, member: str) -> None:
    path = write_zip(tmp_path / "a.zip", {member: b"x"})
    check_is_refused(path, tmp_path)


@pytest.mark.parametrize(
    ("member", "change"),
    [("../out", None), ("link", make_link), ("device", make_device)],
)
def test_a_tar_file_that_would_write_outside_is_refused(
    tmp_path: Path, member: str, change: Callable[[tarfile.TarInfo], None] | None
) -> None:
    path = write_tar(tmp_path / "a.tar.gz", {member: b""}, change)
    check_is_refused(path, tmp_path)


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_a_damaged_archive_leaves_nothing_behind(tmp_path: Path, name: str) -> None:
    write = write_zip if name == "a.zip" else write_tar
    path = write(tmp_path / name, {"x": b"data"})
    content = path.read_bytes()
    path.write_bytes(content[:-30])
    with pytest.raises(UnsafeArchive):
        unpack(path, tmp_path / "unpacked")
    assert [found.name for found in tmp_path.iterdir()] == [name]


def test_an_archive_larger_than_the_disk_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_zip(tmp_path / "a.zip", {"data": bytes(1000)})
    usage = SimpleNamespace(free=999)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(UnsafeArchive, match="unpacks to 1,000 bytes, and 999 are free"):
        unpack(path, tmp_path / "unpacked")
