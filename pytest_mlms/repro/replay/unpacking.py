"""Unpacking of a bundle from a stranger: nothing outside of a folder, nothing that fills a disk."""

import os
import posixpath
import stat
import zipfile

from .record import NAME, Malformed, Record, from_text

_LARGEST = 1 << 34  # bytes of a member, and of all of them together
_LONGEST_RECORD = 1 << 24  # bytes of repro.json
_PART = 1 << 20  # bytes


def read_record(archive: zipfile.ZipFile) -> Record:
    """Return the record in an open archive; raises Malformed."""
    try:
        info = archive.getinfo(NAME)
    except KeyError:
        raise Malformed("there is no %s in it; it is no bundle" % NAME) from None
    if info.file_size > _LONGEST_RECORD:
        raise Malformed("%s has %d bytes, which no bundle has" % (NAME, info.file_size))
    try:
        with archive.open(info) as file:
            return from_text(file.read(_LONGEST_RECORD + 1).decode("utf-8"))
    except (UnicodeDecodeError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise Malformed("%s can't be read: %s" % (NAME, error)) from None


def unpack(archive: zipfile.ZipFile, folder: str) -> None:
    """Unpack all members below a folder; raises Malformed for one that no bundle has.

    No member is a link, none has a name outside of the folder, and none has more bytes than its
    entry says.
    """
    members = archive.infolist()
    for info in members:
        _check(info)
    if sum(info.file_size for info in members) > _LARGEST:
        raise Malformed("its files have more than %d bytes together" % _LARGEST)
    names = [info.filename for info in members]
    if len(set(names)) != len(names):
        raise Malformed("it has two files of one name")
    for info in members:
        _unpack(archive, info, os.path.join(folder, *info.filename.split("/")))


def _check(info):
    name = info.filename
    parts = name.split("/")
    is_inside = name == posixpath.normpath(name) and ".." not in parts and not name.startswith("/")
    if not is_inside or "\\" in name or ":" in name or "\0" in name:
        raise Malformed("its file %r would be outside of the folder" % name)
    mode = info.external_attr >> 16
    if mode and not stat.S_ISREG(mode):
        raise Malformed("its file %r is no regular file" % name)


def _unpack(archive, info, path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    left = info.file_size
    try:
        with archive.open(info) as source, open(path, "xb") as target:
            for part in iter(lambda: source.read(_PART), b""):
                left -= len(part)
                if left < 0:
                    raise Malformed("its file %r is larger than it says" % info.filename)
                target.write(part)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise Malformed("its file %r can't be read: %s" % (info.filename, error)) from None
