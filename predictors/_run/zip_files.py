"""Zip files that every reader must see alike.

Readers of zip files differ where a file is not plain: which of two equal names they take, whether
names differ in case, whether they trust the directory at the end or the headers before the members.
A check by one reader says nothing of what another one loads then. Files that pass have one meaning.
"""

import struct
import unicodedata
import zipfile
from typing import Any, Dict, List, NamedTuple

_HEADER = struct.Struct("<4s5H3L2H")  # before each member
_END = struct.Struct("<4s4H2LH")  # of the directory
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_DESCRIPTORS = [struct.Struct(form) for form in ("<4s3L", "<4sL2Q", "<3L", "<L2Q")]

_MEMBER = b"PK\x03\x04"
_DESCRIPTOR = b"PK\x07\x08"
_ENCRYPTED = 0x1
_HAS_DESCRIPTOR = 0x8
_IS_UTF8 = 0x800
_EXTRA_64 = 1
_MORE_16 = 0xFFFF
_MORE_32 = 0xFFFFFFFF
"""Values that say that the number is where it has more bits."""

_ERRORS = (zipfile.BadZipFile, struct.error, RuntimeError, ValueError, OverflowError, OSError)
"""Errors that zipfile raises for damaged files."""


class _Directory(NamedTuple):
    """The directory at the end of a file: where it begins, and the number of its members."""

    start: int
    members: int


def begins_as_zip(path: str) -> bool:
    """Return whether a file begins as a zip file with members does."""
    with open(path, "rb") as file:
        return file.read(len(_MEMBER)) == _MEMBER


def plain_members(path: str) -> List[zipfile.ZipInfo]:
    """Return the members of a zip file that every reader sees alike.

    Raises ValueError for a file that is damaged or encrypted, that has members of the same name
    (in any case of letters), a name that leads elsewhere, or bytes before, between or behind its
    members; and for headers that differ from the directory.
    """
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                check_names([member.filename for member in members])
                _check_directory(file, archive.start_dir, members)
        except _NotPlain:
            raise
        except _ERRORS as error:
            raise ValueError("it is a damaged zip file: %s" % error) from error
        return members


def check_names(names: List[str]) -> None:
    """Raise ValueError where a name leads out of a folder, or two are the same in a folder.

    Names that differ only in the case of letters, or in how an accent is written, are the same.
    """
    seen: Dict[str, str] = {}
    for name in names:
        check_name(name)
        key = comparable_name(name)
        if key in seen:
            raise _NotPlain("it has the members %r and %r" % (seen[key], name))
        seen[key] = name


def check_name(name: str) -> None:
    """Raise ValueError for a name that leads out of a folder, or is none on some systems."""
    if any(unicodedata.category(letter) == "Cc" for letter in name):
        raise _NotPlain("%r has a control character" % name)
    parts = name.replace("\\", "/").rstrip("/").split("/")
    if "\\" in name or any(part in ("", ".", "..") for part in parts):
        raise _NotPlain("%r would be written outside the folder" % name)


def comparable_name(name: str) -> str:
    """Return what two names have in common that are one to some disks and readers."""
    return unicodedata.normalize("NFC", name.rstrip("/")).casefold()


class _NotPlain(ValueError):
    """A file that two readers might see differently."""


def _check_directory(file, start, members):
    """Check that the members fill the file up to its directory, and that up to its end."""
    directory = _read_end(file)
    if directory.start != start or directory.members != len(members):
        raise _NotPlain("its directory is not where and what its end says")
    place = 0
    for member in sorted(members, key=lambda member: member.header_offset):
        if member.header_offset != place:
            raise _NotPlain("there are bytes before %r that belong to no member" % member.filename)
        place = _end_of(file, member)
    if place != start:
        raise _NotPlain("there are bytes before its directory that belong to no member")


def _read_end(file) -> _Directory:
    """Return the directory as the last bytes of the file describe it."""
    size = file.seek(0, 2)
    end = size - _END.size
    signature, _, _, _, count, length, start, comment = _unpacked(file, end, _END)
    if signature != b"PK\x05\x06" or comment:
        raise _NotPlain("it has bytes behind its end")
    place = end - _LOCATOR_64.size
    signature, _, place_64, _ = _unpacked(file, max(0, place), _LOCATOR_64)
    if signature == b"PK\x06\x07":
        end = place - _END_64.size
        found = _unpacked(file, max(0, end), _END_64)
        if found[0] != b"PK\x06\x06" or place_64 != end:
            raise _NotPlain("its end is not where it says")
        short = (count, length, start)
        count, length, start = found[7:]
        _check_short(short, (count, length, start))
    if start + length != end:
        raise _NotPlain("its directory doesn't reach to its end")
    return _Directory(start, count)


def _check_short(short, numbers):
    """Check that numbers agree with the older end's, where they fit there."""
    for limit, found, number in zip((_MORE_16, _MORE_32, _MORE_32), short, numbers):
        if found not in (limit, number):
            raise _NotPlain("it has two ends that differ")


def _end_of(file, member):
    """Return where a member ends; its header must be the directory's."""
    header = _unpacked(file, member.header_offset, _HEADER)
    signature, _, flags, method, _, _, crc, packed, size, name_size, extra_size = header
    name = file.read(name_size)
    encoding = "utf-8" if member.flag_bits & _IS_UTF8 else "cp437"
    same = (_MEMBER, member.flag_bits, member.compress_type, member.orig_filename.encode(encoding))
    if (signature, flags, method, name) != same or member.filename != member.orig_filename:
        raise _NotPlain("the header of %r differs from the directory" % member.filename)
    if flags & _ENCRYPTED:
        raise _NotPlain("%r is encrypted" % member.filename)
    _check_extra(member)
    end = member.header_offset + _HEADER.size + name_size + extra_size + member.compress_size
    facts = (member.CRC, member.compress_size, member.file_size)
    if flags & _HAS_DESCRIPTOR:
        return end + _descriptor_size(file, end, facts)
    sizes = (packed, size)
    if crc != member.CRC or any(
        found not in (_MORE_32, fact) for found, fact in zip(sizes, facts[1:])
    ):
        raise _NotPlain("the header of %r differs from the directory" % member.filename)
    return end


def _check_extra(member):
    """Check that a member's sizes are said once."""
    extra = member.extra
    count = 0
    while len(extra) >= 4:
        kind, size = struct.unpack("<2H", extra[:4])
        count += kind == _EXTRA_64
        extra = extra[4 + size :]
    if count > 1:
        raise _NotPlain("the sizes of %r are given twice" % member.filename)


def _descriptor_size(file, place, facts):
    """Return the bytes of what repeats a member's sizes behind it."""
    for form in _DESCRIPTORS:
        file.seek(place)
        data = file.read(form.size)
        if len(data) == form.size:
            found = form.unpack(data)
            if found[-3:] == facts and found[:-3] in ((), (_DESCRIPTOR,)):
                return form.size
    raise _NotPlain("the sizes behind a member differ from the directory")


def _unpacked(file: Any, place: int, form: struct.Struct) -> Any:
    file.seek(place)
    return form.unpack(file.read(form.size))
