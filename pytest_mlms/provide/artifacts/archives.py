"""Unpacking archives safely: nothing is written outside, and the folder appears when complete.

Members are written one by one, as files and folders of our own. Nothing is left to the extraction
of tarfile or zipfile, nor to tarfile's filters, which links have led out of the folder.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import lzma
import math
import os
import stat
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeVar, cast

from mlms_predictors._run.zip_files import begins_as_zip, check_name, comparable_name

from pytest_mlms.core.files import free_space
from pytest_mlms.core.units import format_quantity

_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")

_MOST_MEMBERS = 2_000_000
_SHOWN = 100  # characters of a name
_DEEPEST = 100  # folders: they are removed by calls within calls
_CHUNK = 1 << 16  # bytes
_LONGEST_HEADER = 1 << 20
"""The bytes that tarfile may read at once: a header of a member says how long it is itself."""

_DIRECTORY_BYTES, _DIRECTORY_END = 5, 9
"""Fields of what zipfile finds at the end of a file."""
_ZIP64_BYTES = 56 + 20  # behind the directory, where its numbers have 64 bits
_HEADER_BYTES = 46  # of a member in the directory, before its name
_LENGTHS = 28  # the place of the lengths of a name, extra fields and a comment, in a header

_DECODERS: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
"""How compressed files begin, and what reads them."""
_MAGIC_BYTES = 6

T = TypeVar("T")


class UnsafeArchive(Exception):
    """An archive that can't be unpacked, or must not be; the text says why."""


class ArchiveTooLarge(UnsafeArchive):
    """An archive unpacks to more bytes or more members than it may; the text says which."""


class MissingMember(Exception):
    """An archive has no such file; ``names`` are the names of its files."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names


@dataclass(frozen=True)
class _Member:
    """A file of an archive, which ``open`` opens; a folder has none."""

    name: str
    open: Callable[[], IO[bytes]] | None


def is_archive(path: Path) -> bool:
    """Return whether a file's name ends as of an archive that ``unpack`` reads."""
    return path.name.endswith(_SUFFIXES)


def unpack(
    path: Path, folder: Path, limit: float = math.inf, most: int = _MOST_MEMBERS
) -> dict[str, str]:
    """Unpack the archive ``path`` to ``folder``, which appears when it is complete.

    Return the sha256 of each file by its path. Raise UnsafeArchive for a damaged archive; for
    members that are neither files nor folders, that would be written outside of the folder, or that
    have one name; and for content of more than ``limit`` bytes, more than ``most`` members, or more
    than the disk has room for. Raise OSError where it can't be written.
    """
    read = _reader_of(path)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        target = Path(temporary, "content")
        target.mkdir()
        room = _Room(target, limit)
        with path.open("rb") as file:
            digests = _write_members(_translated(read(file, room, most)), target, most)
        target.rename(folder)
    return digests


def extract(path: Path, names: Collection[str], target: Path, limit: float = math.inf) -> None:
    """Write the first file of an archive that has one of ``names`` to ``target``.

    Raise MissingMember where none has; UnsafeArchive for a damaged archive, a link, and more than
    ``limit`` bytes up to it; and OSError where it can't be written.
    """
    room = _Room(target.parent, limit)
    others = []
    with path.open("rb") as file:
        for member in _translated(_reader_of(path)(file, room, _MOST_MEMBERS)):
            if member.name in names and member.open is not None:
                target.unlink(missing_ok=True)
                _write_file(target, member.open)
                return
            if member.open is not None:
                others.append(member.name)
    raise MissingMember(others)


def _reader_of(path: Path) -> Callable[[IO[bytes], _Room, int], Iterator[_Member]]:
    is_zip = path.suffix in (".zip", ".whl") or begins_as_zip(str(path))
    return _read_zip if is_zip else _read_tar


class _Room:
    """The bytes that an archive may still unpack to, by its limit and by the disk."""

    def __init__(self, target: Path, limit: float) -> None:
        self._target = target
        self._limit = limit
        self._taken = 0

    def take(self, size: int) -> None:
        """Count ``size`` bytes; raises UnsafeArchive where all so far are more than the limit."""
        self._taken += size
        if self._taken > self._limit:
            problem = f"it unpacks to more than {format_quantity(self._limit, 'B')}"
            raise ArchiveTooLarge(f"{problem}; allow more with --mlms-unpack-limit if you trust it")

    def check_disk(self, size: int) -> None:
        """Raise UnsafeArchive where the disk has no room for ``size`` bytes."""
        free = free_space(self._target)
        if free is not None and size > free:
            full = os.strerror(errno.ENOSPC)  # the system's words for it, as in other errors
            problem = f"it unpacks to {size:,} bytes, and {free:,} are free on that disk"
            raise UnsafeArchive(f"{full}: {problem}")


def _translated(parts: Iterator[T]) -> Iterator[T]:
    """Yield what a reader of the standard library yields; its errors become UnsafeArchive.

    Damaged files make tarfile, zipfile and their decoders raise nearly every type of error.
    """
    try:
        yield from parts
    except UnsafeArchive:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise UnsafeArchive(f"it is damaged: {reason}; get it or pack it again") from error


def _write_members(members: Iterator[_Member], target: Path, most: int) -> dict[str, str]:
    names: dict[str, _Member] = {}
    digests = {}
    for count, member in enumerate(members, 1):
        if count > most:
            raise _too_many(most)
        if member.name == ".":
            continue
        _claim(member, names)
        path = target / member.name
        try:
            if member.open is None:
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                digests[member.name] = _write_file(path, member.open)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise UnsafeArchive(f"{error.strerror}: {member.name[:_SHOWN]!r}") from None
    return digests


def _claim(member: _Member, names: dict[str, _Member]) -> None:
    """Note the names of a member and its folders; refuse one that isn't in the folder, or taken.

    Names that differ in case only would be one file on some disks.
    """
    try:
        check_name(member.name)
    except ValueError as error:
        raise UnsafeArchive(str(error)) from error
    if member.name.count("/") > _DEEPEST:
        raise UnsafeArchive(f"it has folders {member.name.count('/'):,} deep; pack them flatter")
    folders = [_Member(str(parent), None) for parent in PurePosixPath(member.name).parents]
    for part in (*folders[:-1], member):
        key = comparable_name(part.name)
        former = names.setdefault(key, part)
        is_same_folder = former.open is None and part == former
        if former is not part and not is_same_folder:
            raise UnsafeArchive(f"it has the members {former.name!r} and {part.name!r}")


def _write_file(path: Path, open_member: Callable[[], IO[bytes]]) -> str:
    """Write a member, and return its sha256."""
    digest = hashlib.sha256()
    with path.open("xb") as written:
        for chunk in _translated(_chunks(open_member)):
            written.write(chunk)
            digest.update(chunk)
    return digest.hexdigest()


def _chunks(open_member: Callable[[], IO[bytes]]) -> Iterator[bytes]:
    with open_member() as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _too_many(most: int) -> ArchiveTooLarge:
    return ArchiveTooLarge(f"it has more than {most:,} members; make several of it")


def _read_zip(file: IO[bytes], room: _Room, most: int) -> Iterator[_Member]:
    _check_directory(file, most)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        size = sum(member.file_size for member in members)
        room.take(size)
        room.check_disk(size)
        for member in members:
            name = str(PurePosixPath(member.filename))
            mode = stat.S_IFMT(member.external_attr >> 16)  # 0 where it is from another system
            if mode not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _not_a_file(name)
            if member.is_dir():
                yield _Member(name, None)
            else:
                yield _Member(name, partial(archive.open, member))


def _check_directory(file: IO[bytes], most: int) -> None:
    """Raise ArchiveTooLarge for a zip file of too many members, before zipfile has objects of them.

    The end of the directory is found as zipfile finds it, in Python 3.10 to 3.14.
    """
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    if not end or end[_DIRECTORY_BYTES] <= most * _HEADER_BYTES:
        return  # zipfile tells what is wrong with it
    file.seek(
        end[_DIRECTORY_END] - end[_DIRECTORY_BYTES] - _ZIP64_BYTES * (end[0] == b"PK\x06\x06")
    )
    left = end[_DIRECTORY_BYTES]
    for _ in range(most):
        header = file.read(_HEADER_BYTES)
        if len(header) < _HEADER_BYTES:
            return
        behind = sum(struct.unpack_from("<3H", header, _LENGTHS))
        file.seek(behind, os.SEEK_CUR)
        left -= len(header) + behind
    if left > 0:
        raise _too_many(most)


def _read_tar(file: IO[bytes], room: _Room, most: int) -> Iterator[_Member]:
    with _decompressed(file) as content:
        stream = _Stream(content, room)
        with tarfile.open(fileobj=stream, mode="r:") as archive:  # type: ignore[call-overload]
            for member in archive:
                name = str(PurePosixPath(member.name))
                if member.isdir():
                    yield _Member(name, None)
                elif member.type in tarfile.REGULAR_TYPES and not member.issparse():
                    room.check_disk(member.size)
                    yield _Member(name, partial(_open_tar_member, archive, member))
                else:
                    raise _not_a_file(name)
                archive.members.clear()  # a list of all would take memory
        stream.finish()


def _not_a_file(name: str) -> UnsafeArchive:
    problem = f"{name!r} is a link, a device or a sparse file"
    advice = "archives may have files and folders (tar --hard-dereference --dereference)"
    return UnsafeArchive(f"{problem}; {advice}")


def _open_tar_member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    file = archive.extractfile(member)
    assert file is not None, "only links and folders have none"
    return file


def _decompressed(file: IO[bytes]) -> IO[bytes]:
    """Return the content of a file that may be compressed, whatever its name says."""
    beginning = file.read(_MAGIC_BYTES)
    file.seek(0)
    for magic, open_compressed in _DECODERS.items():
        if beginning.startswith(magic):
            return cast(IO[bytes], open_compressed(file))
    return file


class _Stream:
    """The content of a tar file, which is read forwards only and in small parts.

    The sizes in damaged headers lead tarfile back, where it would go in circles, or to read all
    there is into memory.
    """

    def __init__(self, content: IO[bytes], room: _Room) -> None:
        self._content = content
        self._room = room
        self._place = 0
        self._last = b""

    def tell(self) -> int:
        """Return the place that is read next."""
        return self._place

    def seek(self, place: int) -> None:
        """Read up to a place."""
        if place < self._place:
            raise tarfile.ReadError("a member begins before the end of the one ahead of it")
        while self._place < place and self.read(min(_CHUNK, place - self._place)):
            pass

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes."""
        if not 0 <= size <= _LONGEST_HEADER:
            raise tarfile.ReadError(f"a header says that it has {size:,} bytes")
        data = self._content.read(size)
        self._room.take(len(data))
        self._place += len(data)
        self._last = data
        return data

    def finish(self) -> None:
        """Check that tarfile stopped at the mark of the end, and what the decoder checks there.

        tarfile also stops at a header that is damaged or cut short.
        """
        if self._last != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError("it ends before its end, or a header is damaged")
        while self.read(_CHUNK):
            pass
