"""Archives made by the standard library, some of them hostile."""

from __future__ import annotations

import io
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_mlms.provide.artifacts.archives import (
    ArchiveTooLarge,
    UnsafeArchive,
    is_archive,
    unpack,
)
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
    usage = SimpleNamespace(total=5000, free=999)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(UnsafeArchive, match="unpacks to 1,000 bytes, and 999 are free"):
        unpack(path, tmp_path / "unpacked")
    usage.total = usage.free = 0  # of a file system that counts nothing
    unpack(path, tmp_path / "unpacked")


def write_links(path: Path) -> None:
    """Write CVE-2025-4517: links whose real path is too long to be resolved, then a file."""
    folder = "d" * 247
    steps = "abcdefghijklmnop"
    parent = ""
    with tarfile.open(path, "w") as archive:

        def add(name: str, kind: bytes, target: str = "", data: bytes = b"") -> None:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.linkname = target
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))

        for step in steps:
            add(f"{parent}{folder}", tarfile.DIRTYPE)
            add(f"{parent}{step}", tarfile.SYMTYPE, folder)
            parent += f"{folder}/"
        long = "/".join(steps) + "/" + "l" * 254
        add(long, tarfile.SYMTYPE, "../" * len(steps))
        add("escape", tarfile.SYMTYPE, f"{long}/../../../..")
        add("escape/out", tarfile.REGTYPE, data=b"x")


def test_a_tar_file_whose_links_lead_out_by_a_long_path_writes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "1" / "2" / "3" / "4" / "5"
    folder.mkdir(parents=True)
    write_links(tmp_path / "a.tar")
    check_is_refused(tmp_path / "a.tar", folder)
    assert list(tmp_path.rglob("out")) == []


def make_hard_link(info: tarfile.TarInfo) -> None:
    info.type = tarfile.LNKTYPE
    info.linkname = "a"


def make_pipe(info: tarfile.TarInfo) -> None:
    info.type = tarfile.FIFOTYPE


@pytest.mark.parametrize("change", [make_link, make_hard_link, make_device, make_pipe])
def test_what_is_neither_a_file_nor_a_folder_is_refused_with_advice(
    tmp_path: Path, change: Callable[[tarfile.TarInfo], None]
) -> None:
    path = write_tar(tmp_path / "a.tar.gz", {"b": b""}, change)
    with pytest.raises(UnsafeArchive, match=r"'b' is a link, a device or .*tar --hard-dereference"):
        unpack(path, tmp_path / "unpacked")


def test_a_link_in_a_zip_file_is_refused(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    check_is_refused(tmp_path / "a.zip", tmp_path)


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
@pytest.mark.parametrize(
    "names", [("A", "a"), ("é", "e\u0301"), ("in/A", "IN/b"), ("a", "a/b"), ("a/b", "A")]
)
def test_members_that_are_one_file_on_some_disks_are_refused(
    tmp_path: Path, name: str, names: tuple[str, str]
) -> None:
    write = write_zip if name == "a.zip" else write_tar
    path = write(tmp_path / name, dict.fromkeys(names, b""))
    with pytest.raises(UnsafeArchive, match="it has the members "):
        unpack(path, tmp_path / "unpacked")


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_folders_that_tar_names_itself_are_kept(tmp_path: Path, mode: Any) -> None:
    source = tmp_path / "source"
    (source / "in" / "empty").mkdir(parents=True)
    (source / "in" / "model").write_bytes(bytes(100_000))
    path = tmp_path / f"a.tar.{mode[2:]}".rstrip(".")
    with tarfile.open(path, mode) as archive:
        archive.add(source, ".")
    unpack(path, tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / "in" / "model").read_bytes() == bytes(100_000)
    assert (tmp_path / "unpacked" / "in" / "empty").is_dir()


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_an_archive_that_unpacks_to_more_than_the_limit_is_refused(
    tmp_path: Path, name: str
) -> None:
    if name == "a.zip":
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("zeros", bytes(10 << 20))
    else:
        write_tar(tmp_path / name, {"zeros": bytes(10 << 20)})
    message = "it unpacks to more than 1.00 MiB; allow more with --mlms-unpack-limit"
    with pytest.raises(UnsafeArchive, match=message):
        unpack(tmp_path / name, tmp_path / "unpacked", limit=1 << 20)
    unpack(tmp_path / name, tmp_path / "unpacked", limit=11 << 20)


def test_too_many_members_are_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", dict.fromkeys("abc", b""))
    with pytest.raises(UnsafeArchive, match="it has more than 2 members"):
        unpack(path, tmp_path / "unpacked", most=2)


def header(size: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    """Return a tar header whose size is these bytes, with a right checksum."""
    info = tarfile.TarInfo("a")
    info.type = kind
    block = bytearray(info.tobuf()[:512])
    block[124:136] = size
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(b"77777777777\0", id="8 GiB"),
        pytest.param(b"\xff" * 10 + b"\xfa\x00", id="negative"),
        pytest.param(b"\x80" + b"\xff" * 11, id="longer than any file"),
    ],
)
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.REGTYPE])
def test_a_tar_header_with_an_impossible_size_is_refused_at_once(
    tmp_path: Path, size: bytes, kind: bytes
) -> None:
    good = tarfile.TarInfo("good").tobuf()
    (tmp_path / "a.tar").write_bytes(good + header(size, kind) + bytes(10240))
    with pytest.raises(UnsafeArchive):
        unpack(tmp_path / "a.tar", tmp_path / "unpacked")


SMALL = {"in/model.bin": b"weights" * 30, "labels.csv": b"file,label\n", "é": b"x"}


def small_archive(path: Path) -> Path:
    """Write a small archive of the kind that its name says."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in SMALL.items():
                archive.writestr(name, data)
        return path
    mode: Any = "w:" + {"tar": "", "tgz": "gz"}.get(path.name[2:], path.suffix[1:])
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as tar:
        for name, data in SMALL.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def mutants(content: bytes, seed: int) -> Iterator[bytes]:
    """Yield a file cut at each of its last and many other places, and with bytes changed."""
    random = Random(seed)
    step = max(1, len(content) // 60)
    for place in [*range(0, len(content), step), *range(max(0, len(content) - 30), len(content))]:
        yield content[:place]
    for place in range(0, len(content), step):
        for value in (content[place] ^ 1 << random.randrange(8), random.randrange(256)):
            yield content[:place] + bytes([value]) + content[place + 1 :]
    for _ in range(60):
        changed = bytearray(content)
        for _ in range(random.randrange(1, 5)):
            changed[random.randrange(len(content))] = random.randrange(256)
        yield bytes(changed)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz", "a.tgz", "a.tar.bz2", "a.tar.xz"])
def test_every_mutant_of_an_archive_is_refused_or_stays_inside(tmp_path: Path, name: str) -> None:
    content = small_archive(tmp_path / name).read_bytes()
    refused = 0
    for mutant in mutants(content, seed=1):
        (tmp_path / name).write_bytes(mutant)
        try:
            unpack(tmp_path / name, tmp_path / "unpacked", limit=1 << 20)
        except UnsafeArchive as error:
            assert str(error)
            refused += 1
        else:
            shutil.rmtree(tmp_path / "unpacked")
        assert [found.name for found in tmp_path.iterdir()] == [name]
    assert refused > 60


@pytest.mark.parametrize("kind", [".gz", ".bz2", ".xz", ".zst", ""])
def test_what_is_no_tar_file_is_refused(tmp_path: Path, kind: str) -> None:
    beginnings = {".gz": b"\x1f\x8b", ".bz2": b"BZh9", ".xz": b"\xfd7zXZ\0", ".zst": b"(\xb5/\xfd"}
    path = tmp_path / f"a.tar{kind}"
    path.write_bytes(beginnings.get(kind, b"") + b"no archive" * 100)
    with pytest.raises(UnsafeArchive, match="it is damaged: .*; get it or pack it again"):
        unpack(path, tmp_path / "unpacked")


@pytest.mark.parametrize("members", [1001, 66_000])  # with numbers of 16 and of 64 bits
def test_the_members_of_a_zip_file_are_counted_before_zipfile_reads_them(
    tmp_path: Path, members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(members):
            archive.writestr(zipfile.ZipInfo(f"{number}"), b"")
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(ArchiveTooLarge, match="more than 1,000 members"):
        unpack(path, tmp_path / "unpacked", most=1000)


def test_as_many_members_as_there_may_be_are_unpacked(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {f"a-long-name-of-a-member-{n}": b"" for n in range(100)})
    assert len(unpack(path, tmp_path / "unpacked", most=100)) == 100


@pytest.mark.parametrize("name", ["a.zip", "a.tar"])
def test_folders_that_could_not_be_removed_again_are_refused(tmp_path: Path, name: str) -> None:
    write = write_zip if name == "a.zip" else write_tar
    path = write(tmp_path / name, {"d/" * 1500 + "file": b""})
    with pytest.raises(UnsafeArchive, match="folders 1,500 deep"):
        unpack(path, tmp_path / "unpacked")
