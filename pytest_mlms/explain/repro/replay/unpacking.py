"""Unpacking of a bundle from a stranger: nothing outside of a folder, nothing that fills a disk."""

import contextlib
import errno
import os
import posixpath
import stat
import struct
import zipfile
import zlib
from typing import IO, Iterator

from .record import NAME, Malformed, Record, from_text

_LARGEST = 1 << 34  # bytes of a member, and of all of them together
_LARGER = 8  # times the zip that its files may be: mlms repro compresses no weights
_SMALL = 1 << 30  # bytes that they may be at any rate
_LONGEST_DIRECTORY = 1 << 24  # bytes of the zip's directory, which Python reads whole
_LONGEST_RECORD = 1 << 24  # bytes of repro.json
_PART = 1 << 20  # bytes
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

DAMAGES = (
    ValueError,
    EOFError,
    OverflowError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""Errors that zipfile raises for damaged, encrypted and unusual files."""


class Packed:
    """A bundle of which only the names and sizes of its files and its record were read."""

    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        self._archive = archive
        self.record = _read_record(archive)
        _check_all(archive, size)
        self.sizes = {info.filename: info.file_size for info in archive.infolist()}
        record = self.record
        for name in filter(None, [record.inputs, record.reference, *record.files.values()]):
            if not any(one == name or one.startswith(name + "/") for one in self.sizes):
                raise Malformed("it has no file %r, which %s names" % (name, NAME))

    def unpack(self, folder: str) -> None:
        """Unpack all files below a folder; raises OSError and Malformed."""
        with _told_damages():
            for info in self._archive.infolist():
                _unpack(self._archive, info, os.path.join(folder, *info.filename.split("/")))


@contextlib.contextmanager
def opened(path: str) -> Iterator[Packed]:
    """Open a bundle, and unpack nothing of it yet; raises OSError and Malformed.

    No member is a link, none has a name outside of a folder, and none has more bytes than its
    entry says.
    """
    with _archive_of(path) as archive:
        with _told_damages():
            packed = Packed(archive, os.path.getsize(path))
        yield packed


def unpack(path: str, folder: str) -> Record:
    """Unpack a bundle below a folder, and return its record; raises OSError and Malformed."""
    with opened(path) as packed:
        packed.unpack(folder)
        return packed.record


@contextlib.contextmanager
def _told_damages() -> Iterator[None]:
    """Raise Malformed for what zipfile raises for a damaged file."""
    try:
        yield
    except DAMAGES as error:
        raise Malformed("it is damaged: %s" % error) from None
    except OSError as error:
        if error.filename or error.errno != errno.EINVAL:
            raise
        raise Malformed("it is damaged: a file in it begins before the zip does") from None


def _archive_of(path: str) -> zipfile.ZipFile:
    """Open a zip file whose directory has the size of one of a bundle."""
    with _told_damages(), open(path, "rb") as file:
        check_directory(file, _LONGEST_DIRECTORY)
        return zipfile.ZipFile(path)


def check_directory(file: IO[bytes], longest: int) -> None:
    """Raise Malformed for a zip file whose directory, which Python reads whole, is longer."""
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    if end is not None and end[zipfile._ECD_SIZE] > longest:  # type: ignore[attr-defined]
        raise Malformed("it has more files than a bundle")


def _read_record(archive: zipfile.ZipFile) -> Record:
    try:
        info = archive.getinfo(NAME)
    except KeyError:
        raise Malformed("there is no %s in it" % NAME) from None
    _check(info)
    if info.file_size > _LONGEST_RECORD:
        raise Malformed("%s has %d bytes, which no bundle has" % (NAME, info.file_size))
    with archive.open(info) as file:
        return from_text(file.read(_LONGEST_RECORD + 1).decode("utf-8"))


def _check_all(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse files that are no bundle's, before any is unpacked: nobody has agreed to more yet."""
    members = archive.infolist()
    for info in members:
        _check(info)
    most = min(_LARGEST, max(_SMALL, _LARGER * size))
    if sum(info.file_size for info in members) > most:
        raise Malformed("its files have more than %d bytes together" % most)
    names = [info.filename for info in members]
    if len(set(names)) != len(names):
        raise Malformed("it has two files of one name")


def _check(info):
    name = info.filename
    parts = name.split("/")
    is_inside = name == posixpath.normpath(name) and ".." not in parts and not name.startswith("/")
    if not is_inside or "\\" in name or ":" in name or "\0" in name:
        raise Malformed("its file %r would be outside of the folder" % name)
    if not name.isprintable():
        raise Malformed("its file %r has a name that could command a terminal" % name)
    if info.compress_type not in _METHODS:
        raise Malformed("its file %r is compressed in a way that no bundle has" % name)
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):  # 0: whoever made the zip did not say
        raise Malformed("its file %r is no regular file" % name)


def _unpack(archive, info, path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    left = info.file_size
    with archive.open(info) as source, open(path, "xb") as target:
        for part in iter(lambda: source.read(_PART), b""):
            left -= len(part)
            if left < 0:
                raise Malformed("its file %r is larger than it says" % info.filename)
            target.write(part)
