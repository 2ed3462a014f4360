"""Mutants of files: each is given by a seed's bytes and a random generator, and nothing else."""

from __future__ import annotations

import bz2
import copy
import gzip
import io
import json
import lzma
import random
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import yaml

__all__ = [
    "changed_values",
    "mutated_archive",
    "mutated_bytes",
    "mutated_json",
    "mutated_lines",
    "mutated_npz",
    "mutated_picture",
    "mutated_protobuf",
    "mutated_request",
    "mutated_tensors",
    "mutated_text",
    "mutated_toml",
    "mutated_yaml",
]

Mutate = Callable[[bytes, Sequence[bytes], random.Random], bytes]

_MOST_PLACES = 2000
_DEEP = "nested more deeply than anybody reads"
_BRACKETS = "[" * 20_000 + "]" * 20_000

_TOKENS = [
    *[
        "",
        " ",
        "\n",
        "\t",
        "\r",
        "\0",
        "\x1b[2J",
        "\x85",
        "\u2028",
        "\ufeff",
        "\ud7ff",
        "\U0010ffff",
    ],
    *[
        "0",
        "-1",
        "1",
        "00",
        "1e999",
        "-1e999",
        "1e-999",
        ".nan",
        ".inf",
        "-.inf",
        "0x",
        "0o8",
        "NaN",
    ],
    *[
        str(2**31),
        str(2**63),
        str(2**64),
        "9" * 400,
        "0x" + "f" * 400,
        "5e999999999 ms",
        "1_0",
        "٣",
    ],
    *[
        "null",
        "~",
        "true",
        "no",
        "[]",
        "{}",
        "''",
        '""',
        "[[]]",
        "{a: {b: c}}",
        "- ",
        ": ",
        "#",
        "?",
    ],
    *[
        "&a [*a]",
        "*a",
        "&a",
        "!!python/object:x",
        "!",
        "|",
        ">",
        "%YAML 1.1",
        "---",
        "...",
        "<<: *m",
    ],
    *[
        "../../etc/passwd",
        "/dev/zero",
        "/proc/self/mem",
        "~root",
        ".",
        "a" * 3000,
        "é模",
        "c:\\x",
        "//",
    ],
    *[
        "file://",
        "http://",
        "https://[",
        "ftp://a",
        "x.zip#..",
        "#",
        "%00",
        "user:pw@host",
        "C" * 255,
    ],
    *[
        "batch",
        "cpu",
        "cuda:",
        "cuda:0",
        "onnxruntime >=",
        "== 1.*",
        "MiB",
        "%",
        "/s",
        ">= ",
        "'",
        '"',
    ],
]
"""Parts that readers of text stumble over."""

_WORDS = [b"\x00", b"\xff", b"\x7f", b"\x80", b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\xff" * 8]
_WORDS += [struct.pack("<I", 1 << 31), struct.pack(">I", 1 << 31), struct.pack(">I", 0x10000)]
"""Parts that readers of binary files stumble over."""


_NAMES = ["", ".", "..", "../x", "/x", "items", "items/../x", "items/a", "items/x/", "agents/é"]
_NAMES += ["history.sqlite", "results.jsonl", "RESULTS.JSONL", "items/\x1b[2J", "items/\udc80"]
_NAMES += ["items/" * 200 + "x"]
_TYPES = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE]
_TYPES += [tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE]
_FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
"""Names and types of members that an archive from a stranger may have."""

_DATATYPES = ["BOOL", "UINT8", "UINT64", "INT8", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES"]
"""Types of tensors of the Open Inference Protocol."""

_NESTED = 2  # the type of a field of protobuf behind its length


def mutated_bytes(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Return a binary file with a few places changed, cut out, doubled or taken from a seed."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        start = rng.randrange(len(changed) + 1)
        end = min(len(changed), start + rng.choice([1, 1, 2, 4, 8, 64, 1 << 20]))
        action = rng.randrange(6)
        if action == 0 and start < len(changed):
            changed[start] ^= 1 << rng.randrange(8)
        elif action == 1:
            changed[start:end] = rng.choice(_WORDS)
        elif action == 2:
            del changed[start:end]
        elif action == 3:
            changed[start:start] = changed[start:end]
        elif action == 4:
            other = rng.choice(seeds)
            place = rng.randrange(len(other) + 1)
            changed[start:end] = other[place : place + end - start]
        else:
            changed[start:end] = rng.randbytes(end - start)
    return bytes(changed[: 1 << 20])


def mutated_text(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Return a text with words or lines replaced, moved, doubled or removed."""
    text = data.decode("utf-8", "surrogateescape")
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        text = _change(text, rng)
    if rng.random() < 0.05:
        return mutated_bytes(text.encode("utf-8", "surrogateescape"), seeds, rng)
    return text.encode("utf-8", "surrogateescape")


def _change(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    number = rng.randrange(len(lines))
    action = rng.randrange(7)
    if action == 0:
        lines.insert(rng.randrange(len(lines)), lines[number])
    elif action == 1:
        del lines[number]
    elif action == 2:
        lines[number] = " " * rng.randrange(6) + lines[number].lstrip()
    else:
        words = lines[number].replace(",", " , ").replace(":", " : ").split(" ")
        place = rng.randrange(len(words))
        token = rng.choice(_TOKENS)
        words[place] = token if action < 6 else token * rng.choice([2, 100, 3000])
        separators = " " if rng.random() < 0.9 else ""
        lines[number] = separators.join(words).replace(" : ", ": ").replace(" , ", ",")
    return "\n".join(lines)


_JUNK: list[Any] = [
    *[None, True, False, 0, -1, 1, 2**31, 2**63, 2**64 - 1, -(2**63), 0.5, -0.0, 1e308, 5e-324],
    *[float("nan"), float("inf"), 10**400],
    *[
        _DEEP,
        "",
        " ",
        "x",
        "batch",
        "a" * 2000,
        "../x",
        "/dev/zero",
        "\x1b[2J",
        "0",
        "1.0.0",
        "é\u202e",
        "a\nb",
    ],
    *[
        "5 ms",
        "1e-400 s",
        "99 %",
        "1e400 GiB",
        ">= 1e99 GiB",
        "cuda:99999999999",
        "http://[x",
        "x#",
    ],
    *[
        [],
        {},
        [[]],
        [1, 1],
        [0],
        [-1, 1],
        ["batch", "batch"],
        {"a": 1},
        [None],
        {"": ""},
        [[[[1]]]],
    ],
]


_LITERAL = re.compile(r'"[^"\n]*"|\b\d+\b')
_VALUES = ["nan", "-inf", "true", "1979-05-27", "{}", "{a = 1}", "[[]]", "[{a = 1}]", "1e308", "-1"]
_VALUES += [str(2**63), "9" * 400, "''", "[1, 'a']"]
"""Values of TOML that no field of ours has."""


def mutated_toml(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Return TOML with a few keys or values replaced or changed; now and then any text."""
    if rng.random() < 0.2:
        return mutated_text(data, seeds, rng)
    text = data.decode("utf-8", "surrogateescape")
    for _ in range(rng.choice([1, 1, 2])):
        literals = list(_LITERAL.finditer(text))
        if not literals:
            break
        place = rng.choice(literals)
        words = place[0].strip('"')
        cut = rng.randrange(len(words) + 1)
        changed = json.dumps(words[:cut] + rng.choice(_TOKENS) + words[cut:], ensure_ascii=False)
        value = rng.choice([rng.choice(literals)[0], rng.choice(_VALUES), changed])
        text = text[: place.start()] + value + text[place.end() :]
    return text.encode("utf-8", "surrogateescape")


def mutated_yaml(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Return a document with a few of its values replaced, removed, renamed, doubled or swapped."""
    content = copy.deepcopy(_loaded(data))
    places = _places(content)
    if not places:
        return mutated_text(data, seeds, rng)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        _change_value(*rng.choice(places), places, rng)
    unicode = rng.random() < 0.5
    return _dump(content, allow_unicode=unicode).encode()


@lru_cache(maxsize=1000)
def _loaded(data: bytes) -> Any:
    """Return the values of a seed; None for one that PyYAML can't read and write."""
    try:
        content = yaml.safe_load(data)
        _dump(content)
    except (yaml.YAMLError, ValueError, RecursionError, AttributeError):
        return None
    return content


def _dump(content: Any, **options: Any) -> str:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(content, Dumper=dumper, sort_keys=False, **options)
    return text


def _places(content: Any) -> list[tuple[Any, Any]]:
    """Return each container in a value with each of its keys, up to a bound."""
    found: list[tuple[Any, Any]] = []
    seen = set()
    waiting = [content]
    while waiting and len(found) < _MOST_PLACES:
        parent = waiting.pop()
        if not isinstance(parent, (dict, list)) or id(parent) in seen:
            continue
        seen.add(id(parent))
        keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
        for key in keys:
            found.append((parent, key))
            waiting.append(parent[key])
    return found[:_MOST_PLACES]


def _change_value(parent: Any, key: Any, places: Sequence[Any], rng: random.Random) -> None:
    is_there = key in parent if isinstance(parent, dict) else key < len(parent)
    if not is_there:
        return
    action = rng.randrange(6)
    if action == 0 and isinstance(parent, dict):
        parent[rng.choice(["", "x", "name", "\x07", "a" * 300])] = parent.pop(key)
    elif action == 1 and isinstance(parent, dict):
        del parent[key]
    elif action == 2:
        parent[key] = [parent[key]] * rng.choice([1, 2, 300])
    elif action == 3:
        donor, donor_key = rng.choice(places)
        if donor is not parent and _is_leaf(donor, donor_key):
            parent[key] = donor[donor_key]
    else:
        parent[key] = rng.choice(_JUNK)


def _is_leaf(parent: Any, key: Any) -> bool:
    try:
        return not isinstance(parent[key], (dict, list))
    except (KeyError, IndexError):
        return False


def mutated_npz(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Return an .npz file that is damaged itself, or that is whole and has damaged arrays."""
    if rng.random() < 0.3:
        return mutated_bytes(data, seeds, rng)
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(target, "w") as made:
        for member in source.infolist():
            content = source.read(member)
            if rng.random() < 0.7:
                head = mutated_text if rng.random() < 0.5 else mutated_bytes
                content = head(content[:128], [content[:128]], rng) + content[128:]
            made.writestr(zipfile.ZipInfo(member.filename), content, rng.choice([0, 8]))
    return target.getvalue()


def mutated_archive(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Return a zip or tar file that is damaged itself, or that is whole and has another member.

    JSON in it keeps its form most of the time.
    """
    change = _with_other_member if data.startswith(b"PK") else _with_other_tar_member
    try:
        if rng.random() < 0.8:
            return change(data, rng)
    except (RuntimeError, ValueError, LookupError, zipfile.BadZipFile, tarfile.TarError):
        pass  # the seed is damaged itself
    return mutated_bytes(data, seeds, rng)


def _with_other_member(data: bytes, rng: random.Random) -> bytes:
    """Return a zip file with one of its members changed, or its name."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(target, "w") as made:
        chosen = rng.choice(source.namelist())
        for member in source.infolist():
            content = source.read(member)
            name = member.filename
            info = zipfile.ZipInfo(name)  # the time stays
            if name == chosen:
                content = _mutated_member(name, content, rng)
                info.filename = _other_name(name, rng)
            made.writestr(info, content, rng.choice([0, 8]))
    return target.getvalue()


def _with_other_tar_member(data: bytes, rng: random.Random) -> bytes:
    """Return a tar file with one of its members changed, or its name or type."""
    target = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(data)) as source,
        tarfile.open(fileobj=target, mode="w", format=rng.choice(_FORMATS)) as made,
    ):
        members = source.getmembers()
        chosen = rng.choice(members)
        for member in members:
            file = source.extractfile(member)
            content = file.read() if file else b""
            info = tarfile.TarInfo(member.name)
            if member is chosen:
                content = _mutated_member(member.name, content, rng)
                info.name = _other_name(member.name, rng)
                info.type = rng.choice(_TYPES) if rng.random() < 0.1 else info.type
                info.linkname = rng.choice(_NAMES)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    packers: list[Callable[[bytes], bytes]] = [bytes, bz2.compress, _gz, _xz]
    return rng.choice(packers)(target.getvalue())


def _gz(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def _xz(data: bytes) -> bytes:
    return lzma.compress(data, preset=0)


def _other_name(name: str, rng: random.Random) -> str:
    return name if rng.random() < 0.9 else rng.choice([*_NAMES, f"./{name}", f"{name}/", name * 40])


def _mutated_member(name: str, content: bytes, rng: random.Random) -> bytes:
    if name.endswith(".npz"):
        return mutated_npz(content, [content], rng)
    if name.endswith(".jsonl"):
        return mutated_lines(content, [content], rng)
    if not name.endswith(".json"):
        return mutated_bytes(content, [content], rng)
    return mutated_json(content, [content], rng)


def mutated_json(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Return JSON with other values; now and then damaged JSON."""
    if rng.random() < 0.1:
        return mutated_bytes(data, seeds, rng)
    try:
        value = json.loads(data)
    except ValueError:  # the seed has something else beside
        return mutated_text(data, seeds, rng)
    changed_values(value, rng)
    return json.dumps(value, default=str).replace(json.dumps(_DEEP), _BRACKETS).encode()


def mutated_lines(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Return lines of results of which one has other values; now and then one that is no JSON.

    Most of the time an item's line is by itself: the others are read as they were.
    """
    lines = data.splitlines()
    if not lines or rng.random() < 0.05:
        return mutated_bytes(data, seeds, rng)
    chosen = rng.randrange(len(lines))
    is_item = b'"type": "item"' in lines[chosen]
    lines[chosen] = mutated_json(lines[chosen], seeds, rng)
    if is_item and rng.random() < 0.8:
        lines = [lines[chosen]]
    return b"\n".join(lines) + b"\n"


def changed_values(value: Any, rng: random.Random) -> None:
    """Replace, remove, rename, double or swap a few values of JSON, in place."""
    places = _places(value)
    for _ in range(rng.choice([1, 1, 2])):
        _change_value(*rng.choice(places), places, rng)


def mutated_request(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Return a form or JSON with other values of the same types; at times with any others."""
    if rng.random() < 0.3:
        return mutated_json(data, seeds, rng)
    if not data.startswith(b"--"):
        return _dumped_alike(json.loads(data), rng)
    pieces = data.split(b"\r\n--b")
    number = rng.randrange(len(pieces) - 1)
    head, blank, content = pieces[number].partition(b"\r\n\r\n")
    change = mutated_picture if b"filename" in head else mutated_text
    pieces[number] = head + blank + change(content, [content], rng)
    return b"\r\n--b".join(pieces)


def mutated_tensors(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Return a request of tensors with other values of the same types; at times with any others.

    Its first line is the length of its JSON, behind which is binary data; it is empty without any.
    """
    if rng.random() < 0.3:
        return mutated_text(data, seeds, rng)
    length, _, body = data.partition(b"\n")
    size = int(length or len(body))
    text = _dumped_alike(json.loads(body[:size]), rng)
    binary = bytearray(body[size:])
    if binary:
        binary[rng.randrange(len(binary))] = rng.choice([0, 1, 127, 128, 255])
    return b"%s\n%s%s" % (str(len(text)).encode() if length else b"", text, binary)


def _dumped_alike(content: Any, rng: random.Random) -> bytes:
    """Return JSON of which a few values are replaced by others of their types."""
    places = _places(content)
    for _ in range(rng.choice([1, 1, 2, 3])):
        parent, key = rng.choice(places)
        old = parent[key]
        others = [donor[name] for donor, name in places] + _JUNK + _DATATYPES
        alike = [one for one in others if type(one) is type(old)]
        if isinstance(old, list):
            alike += [[1, *old], [*old, *old], [old], old[::-1], old[:-1]]
        parent[key] = copy.deepcopy(rng.choice(alike))
    return json.dumps(content).encode()


def mutated_protobuf(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Return a message of protobuf with another field at some depth; the lengths around it fit."""
    fields = _fields_of(data)
    if not fields or rng.random() < 0.1:
        if rng.random() < 0.3:
            return rng.choice(_DATATYPES).encode()
        return mutated_bytes(data, seeds, rng)
    number = rng.randrange(len(fields))
    key, content = fields[number]
    action = rng.randrange(10)
    if action == 0:
        del fields[number]
    elif action == 1:
        fields.insert(rng.randrange(len(fields) + 1), (key, content))
    elif action == 2:
        fields[number] = (key, rng.choice(fields)[1])
    elif key & 7 == _NESTED:
        fields[number] = (key, mutated_protobuf(content, [content], rng))
    elif key & 7 == 0:
        values = [*range(4), 127, 128, 2**31, 2**32 - 1, 2**63, 2**64 - 1]
        fields[number] = (key, _varint(rng.choice(values)))
    else:
        fields[number] = (key, rng.choice([rng.randbytes(8), b"\xff" * 8])[: len(content)])
    return b"".join(
        _varint(key) + (_varint(len(content)) if key & 7 == _NESTED else b"") + content
        for key, content in fields
    )


def _fields_of(data: bytes) -> list[tuple[int, bytes]]:
    """Return the keys and contents of a message; [] for what is none."""
    found = []
    file = io.BytesIO(data)
    try:
        while file.tell() < len(data):
            key = _read_varint(file)
            sizes = {1: 8, 5: 4}
            if key & 7 == 0:
                content = _varint(_read_varint(file))
            else:
                size = _read_varint(file) if key & 7 == _NESTED else sizes[key & 7]
                content = file.read(size)
                if len(content) < size:
                    return []
            found.append((key, content))
    except (IndexError, KeyError):
        return []
    return found


def _read_varint(file: io.BytesIO) -> int:
    value = 0
    for place in range(10):
        byte = file.read(1)[0]
        value |= (byte & 127) << 7 * place
        if byte < 128:
            break
    return value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def mutated_picture(data: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """Return a damaged picture; the checksums of a PNG are made to fit most of the time."""
    mutant = mutated_bytes(data, seeds, rng)
    if mutant.startswith(b"\x89PNG") and rng.random() < 0.8:
        return _with_checksums(mutant)
    return mutant


def _with_checksums(data: bytes) -> bytes:
    fixed = bytearray(data)
    place = 8
    while place + 12 <= len(fixed):
        (length,) = struct.unpack_from(">I", fixed, place)
        end = place + 8 + length
        if end + 4 > len(fixed):
            break
        struct.pack_into(">I", fixed, end, zlib.crc32(fixed[place + 4 : end]))
        place = end + 4
    return bytes(fixed)
