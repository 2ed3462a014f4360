"""Digests of a manifest's files: those that it lacks, and those of unpinned files.

A digest that is lacking is told in errors, and written into the manifest's text. The digest of an
unpinned file is recorded beside the manifest when the file is first used: ``m.sha256`` has the
digests of ``m.yaml``, in the form of sha256sum: a digest, two blanks and the address or path, a
line each.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urlsplit
from urllib.request import url2pathname

import yaml

from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.files import read_regular
from pytest_mlms.core.records import RecordedDigest
from pytest_mlms.core.text import redact
from pytest_mlms.manifest import yaml12
from pytest_mlms.manifest.sources import is_remote, scheme_of, split_source

_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")
_MOST_BYTES = 1 << 20
_KEPT = 12  # digits of the digest of an address that isn't shown


def recorded_in(manifest: Path, source: str) -> RecordedDigest:
    """Return the place where the digest of an unpinned file of a manifest is recorded.

    ``source`` is an address or an absolute path. Secrets of an address are not written.
    """
    name = os.path.relpath(source, manifest.parent)
    if is_remote(source):
        name = redact(source)
        if name != source:
            name += f" ({hashlib.sha256(source.encode()).hexdigest()[:_KEPT]})"
    return RecordedDigest(manifest.with_suffix(".sha256"), " ".join(name.split()))


def recorded_digest(place: RecordedDigest) -> str | None:
    """Return the digest that is recorded at a place, if there is one.

    Raises ArtifactError for a file of another form, or with two digests of the file.
    """
    return _read(place.file).get(place.name)


def _read(path: Path) -> Mapping[str, str]:
    try:
        text = read_regular(path, _MOST_BYTES).decode()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{path}: can't be read: {error}; correct or remove it") from error
    digests: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        found = _LINE.fullmatch(line)
        if not found:
            advice = "write a digest, two blanks and an address, or remove the line"
            raise ArtifactError(f"{path}:{number}: {line[:_KEPT]!r} is no digest; {advice}")
        digest, name = found.groups()
        if digests.setdefault(name, digest) != digest:
            advice = "remove the one that you don't mean"
            raise ArtifactError(f"{path}:{number}: {name} has another digest above; {advice}")
    return digests


def add_digest(place: RecordedDigest, digest: str) -> None:
    """Record the digest of a file. Raises OSError where it can't be written.

    A line is written at once, so that several processes may record digests.
    """
    line = f"{digest}  {place.name}\n".encode()
    descriptor = os.open(place.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


_Event = Any  # a yaml.Event, whose attributes depend on its class
_LINE_END = re.compile(r"\r\n|\r|\n|\Z")


class CannotEdit(Exception):
    """The text is written in a form that isn't edited here, such as an alias."""


@dataclass
class _Node:
    """A value in a text: its beginning, its end and its parts.

    ``start`` and ``end`` are places in the text, ``column`` is the column of its first key.
    """

    start: int
    end: int
    column: int = 0
    is_flow: bool = False
    is_alias: bool = False
    keys: dict[str | int, _Node] = field(default_factory=dict)


def add_key(text: str, path: yaml12.Path, key: str, value: str, after: str) -> str:
    """Return a text with ``key: value`` in the mapping at ``path``, behind its key ``after``.

    In a block it is a line of its own, behind the line on which the value of ``after`` ends. Raises
    CannotEdit.
    """
    owner = _node_at(text, path)
    neighbour = owner.keys.get(after)
    if neighbour is None or neighbour.is_alias:
        raise CannotEdit
    if owner.is_flow:
        edited = f"{text[: neighbour.end]}, {key}: {value}{text[neighbour.end :]}"
    else:
        edited = _with_line(text, neighbour.end, f"{' ' * owner.column}{key}: {value}")
    return _checked(text, edited, path, key, value)


def replace_value(text: str, path: yaml12.Path, value: str) -> str:
    """Return a text with another value at ``path``. Raises CannotEdit."""
    node = _node_at(text, path)
    if node.is_alias:
        raise CannotEdit
    blank = "" if node.start < node.end or text[node.start - 1 : node.start] == " " else " "
    edited = f"{text[: node.start]}{blank}{value}{text[node.end :]}"
    return _checked(text, edited, path[:-1], str(path[-1]), value)


def _with_line(text: str, end: int, line: str) -> str:
    """Return a text with a line more, behind the one that ``end`` is on."""
    at_line_start = end > 0 and text[end - 1] in "\r\n"  # behind a block of text
    first_end = _LINE_END.search(text)
    newline = (first_end[0] if first_end else "") or "\n"
    if at_line_start:
        return f"{text[:end]}{line}{newline}{text[end:]}"
    found = _LINE_END.search(text, end)
    place = found.end() if found else len(text)
    before = text[:place]
    if not before.endswith(("\r", "\n")):
        before += newline
    return f"{before}{line}{newline}{text[place:]}"


def _checked(text: str, edited: str, path: yaml12.Path, key: str, value: str) -> str:
    """Return the edited text; raises CannotEdit unless it says what was meant."""
    expected = yaml12.parse(text).value
    owner = expected
    for part in path:
        owner = owner[part]
    owner[key] = yaml12.parse(value).value
    document = yaml12.parse(edited)
    if document.errors or document.value != expected:
        raise CannotEdit
    return edited


def _node_at(text: str, path: yaml12.Path) -> _Node:
    """Return the node at ``path``; raises CannotEdit where it isn't written there."""
    node = _composed(text)
    for part in path:
        found = node.keys.get(part)
        if found is None:
            raise CannotEdit
        node = found
    return node


def _composed(text: str) -> _Node:
    """Return the only document of a text that ``yaml12`` has read without an error."""
    events = iter(yaml.parse(text, Loader=yaml.SafeLoader))
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            return _compose(next(events), events)
    raise CannotEdit


def _compose(event: _Event, events: Iterator[_Event]) -> _Node:
    node = _Node(event.start_mark.index, event.end_mark.index)
    node.is_alias = isinstance(event, yaml.AliasEvent)
    if isinstance(event, yaml.MappingStartEvent):
        _compose_mapping(node, event, events)
    elif isinstance(event, yaml.SequenceStartEvent):
        _compose_sequence(node, event, events)
    return node


def _compose_mapping(node: _Node, event: _Event, events: Iterator[_Event]) -> None:
    node.is_flow = bool(event.flow_style)
    node.column = event.start_mark.column
    for key in events:
        if isinstance(key, yaml.MappingEndEvent):
            node.end = _end_of(key)
            return
        if not node.keys:
            node.column = key.start_mark.column
        node.keys[key.value] = _compose(next(events), events)


def _compose_sequence(node: _Node, event: _Event, events: Iterator[_Event]) -> None:
    node.is_flow = bool(event.flow_style)
    for item in events:
        if isinstance(item, yaml.SequenceEndEvent):
            node.end = _end_of(item)
            return
        node.keys[len(node.keys)] = _compose(item, events)


def _end_of(event: _Event) -> int:
    return int(event.end_mark.index)


_SOURCES = ("graph", "weights", "source", "labels", "file")
"""Keys that name a file, beside its ``sha256``."""

_CHUNK = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}|md5:[0-9a-f]{32}|unpinned")
_NUMBER = re.compile(r"[0-9]+(e[0-9]+)?")


@dataclass(frozen=True)
class MissingDigest:
    """A mapping of a manifest that names files and not the digests of all.

    ``path`` leads to the mapping, ``sources`` has the files by role. A role is the key that names
    the file. ``written`` is the value of its ``sha256``, None for none. ``is_needed`` is False for
    a local file of class names, which may have one.
    """

    path: yaml12.Path
    sources: Mapping[str, str]
    written: Any
    is_needed: bool = True

    def write(self, text: str, digests: Mapping[str, str]) -> str:
        """Return the text of the manifest with the digests by role. Raises CannotEdit."""
        place = (*self.path, "sha256")
        if isinstance(self.written, dict) and self.written:
            return self._by_role(text, digests)
        ordered = {role: digests[role] for role in self.sources}
        if place in yaml12.parse(text).lines:
            return replace_value(text, place, digest_text(ordered))
        last = list(self.sources)[-1]
        return add_key(text, self.path, "sha256", digest_text(ordered), after=last)

    def _by_role(self, text: str, digests: Mapping[str, str]) -> str:
        """Return the text with digests in the mapping of roles that is there."""
        place = (*self.path, "sha256")
        last = list(self.written)[-1]
        for role, digest in digests.items():
            if role not in self.written:
                text = add_key(text, place, role, _quoted(digest), after=last)
            elif self.written[role] != digest:
                text = replace_value(text, (*place, role), _quoted(digest))
        return text

    def known(self) -> dict[str, str]:
        """Return the digests that are written as they must be, by role."""
        if isinstance(self.written, Mapping):
            return {role: text for role, text in self.written.items() if _is_digest(text)}
        return {}


def digest_text(digests: Mapping[str, str]) -> str:
    """Return the value of ``sha256`` as it is written; by role for more than one file."""
    quoted = {role: _quoted(digest) for role, digest in digests.items()}
    if len(quoted) == 1:
        return next(iter(quoted.values()))
    pairs = ", ".join(f"{role}: {digest}" for role, digest in quoted.items())
    return f"{{{pairs}}}"


def _quoted(digest: str) -> str:
    """Return a digest in quotes where YAML would read a number."""
    return f'"{digest}"' if _NUMBER.fullmatch(digest) else digest


def missing_digests(content: Any) -> Iterator[MissingDigest]:
    """Yield what lacks a digest in the values of a manifest, which may have errors."""
    for path, owner in _owners(content, ()):
        sources = {role: owner[role] for role in _SOURCES if isinstance(owner.get(role), str)}
        if not sources:
            continue
        is_needed = "labels" not in sources or is_remote(sources["labels"])
        written = owner.get("sha256")
        if not _is_complete(written, sources) and (is_needed or written is not None):
            yield MissingDigest(path, sources, written, is_needed)


def _owners(value: Any, path: yaml12.Path) -> Iterator[tuple[yaml12.Path, Mapping[str, Any]]]:
    """Yield the mappings that name files, with their paths."""
    if isinstance(value, dict):
        if any(role in value for role in _SOURCES):
            yield path, value
        for key, part in value.items():
            if key != "sha256":  # its roles have digests, not files
                yield from _owners(part, (*path, key))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _owners(part, (*path, number))


def _is_complete(written: Any, sources: Mapping[str, str]) -> bool:
    if isinstance(written, Mapping):
        return set(written) >= set(sources) and all(map(_is_digest, written.values()))
    return _is_digest(written) and len(sources) == 1


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def found_digests(location: Sequence[str | int], content: Any, folder: Path) -> str:
    """Return the advice of an error at ``location`` that is about digests: the line to write.

    ``content`` is the manifest's, ``folder`` the manifest's folder. Returns "" for errors that are
    not about a digest, and for files that are not there.
    """
    if "sha256" not in location:
        return ""
    index = location.index("sha256")
    owner = content
    for part in location[:index]:
        try:
            owner = owner[part]
        except (KeyError, IndexError, TypeError):  # the place of a part that isn't written there
            return ""
    if not isinstance(owner, Mapping):
        return ""
    role = str(location[-1])
    is_by_role = role in _SOURCES and isinstance(owner.get("sha256"), dict)
    roles = [role] if role in _SOURCES else _SOURCES
    found = dict(_digests(owner, roles, folder))
    if not found:
        return ""
    key = role if is_by_role else "sha256"
    names = " and ".join(os.path.basename(urldefrag(owner[found_role])[0]) for found_role in found)
    line = f"{key}: {digest_text(found)}"
    return f"for {names} write '{line}', or let mlms lint --fix write it"


def _digests(
    owner: Mapping[str, Any], roles: Sequence[str], folder: Path
) -> Iterator[tuple[str, str]]:
    """Yield role and digest of the local files that can be read."""
    for role in roles:
        with contextlib.suppress(OSError, ValueError):  # other errors tell what is wrong with it
            path = local_file(owner.get(role), folder)
            if path is not None:
                yield role, digest_of(path)


def local_file(source: Any, folder: Path) -> Path | None:
    """Return the path of the local file that a manifest names, if there is one."""
    if not isinstance(source, str):
        return None
    location, _ = split_source(source)
    scheme = scheme_of(location)
    if scheme == "file":
        location = url2pathname(urlsplit(location).path)
    elif scheme:
        return None
    path = folder / location
    return path if os.path.isfile(path) else None  # also where the name is too long for one


def digest_of(path: Path) -> str:
    """Return the sha256 of a file, with one part of it in memory at a time."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
