"""Mutants of files: each is given by a seed's bytes and a random generator, and nothing else."""

from __future__ import annotations

import copy
import io
import json
import random
import struct
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
    "mutated_npz",
    "mutated_picture",
    "mutated_text",
    "mutated_yaml",
]

Mutate = Callable[[bytes, Sequence[bytes], random.Random], bytes]

_MOST_PLACES = 500

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
    *[
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
    """Return a zip file that is damaged itself, or that is whole and has damaged members.

    JSON in it keeps its form most of the time.
    """
    try:
        if rng.random() < 0.8:
            return _with_other_member(data, rng)
    except (RuntimeError, ValueError, zipfile.BadZipFile):  # the seed is damaged itself
        pass
    return mutated_bytes(data, seeds, rng)


def _with_other_member(data: bytes, rng: random.Random) -> bytes:
    """Return a zip file with one of its members changed."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(target, "w") as made:
        chosen = rng.choice(source.namelist())
        for member in source.infolist():
            content = source.read(member)
            name = member.filename
            if name == chosen:
                content = _mutated_member(name, content, rng)
            made.writestr(zipfile.ZipInfo(name), content, rng.choice([0, 8]))  # the time stays
    return target.getvalue()


def _mutated_member(name: str, content: bytes, rng: random.Random) -> bytes:
    if name.endswith(".npz"):
        return mutated_npz(content, [content], rng)
    if not name.endswith(".json") or rng.random() < 0.1:
        return mutated_bytes(content, [content], rng)
    value = json.loads(content)
    changed_values(value, rng)
    return json.dumps(value).encode()


def changed_values(value: Any, rng: random.Random) -> None:
    """Replace, remove, rename, double or swap a few values of JSON, in place."""
    places = _places(value)
    for _ in range(rng.choice([1, 1, 2])):
        _change_value(*rng.choice(places), places, rng)


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
