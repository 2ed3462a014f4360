"""Exact packages of a stack, as results tell them: a line each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

NONE = "none"
"""The version of a package that a side doesn't have."""

_VERSION = re.compile(r"(?P<name>\w[\w.-]*)==(?P<version>[^\s#;]+)( # (?P<origin>.+))?")
_ADDRESS = re.compile(r"(?P<name>\w[\w.-]*) @ (?P<origin>\S+)")
_IMAGE = re.compile(r".+ @ (?P<id>(sha256:)?[0-9a-f]{12,64})")
_EDITABLE = "editable "
_ARCHIVES = (".whl", ".tar.gz", ".zip")
_MOST_NAMED = 2
_MOST_LACKING = 6


class ExactPackage(NamedTuple):
    """A package: its name, its version, and its origin where that is no index.

    The version is empty where pip lists only the address. The origin is an address, ``editable``
    with one, or the name of another installer, such as conda.
    """

    name: str
    version: str
    origin: str = ""

    @property
    def key(self) -> str:
        """The name, of which there is one spelling."""
        return str(canonicalize_name(self.name))

    @property
    def address(self) -> str:
        """The address that it was installed from, with a scheme; "" for none."""
        address = self.origin.removeprefix(_EDITABLE)
        return address if urlsplit(address).scheme else ""

    @property
    def is_developed(self) -> bool:
        """True for an editable install or one of a folder, which a person works on."""
        if self.origin.startswith(_EDITABLE):
            return True
        return self.file is not None and not self.file.name.endswith(_ARCHIVES)

    @property
    def file(self) -> Path | None:
        """The local file or folder that it was installed from; None for none."""
        parts = urlsplit(self.address)
        if parts.scheme != "file":
            return None
        return Path(unquote(parts.path))


def parse_package(line: str) -> ExactPackage | None:
    """Return the package of a line; None for a line of another form.

    The forms are ``name==version``, the same with `` # origin``, and pip's ``name @ address``.
    """
    found = _VERSION.fullmatch(line) or _ADDRESS.fullmatch(line)
    if found is None:
        return None
    parts = found.groupdict()
    return ExactPackage(parts["name"], parts.get("version") or "", parts["origin"] or "")


def image_of(packages: tuple[str, ...]) -> str:
    """Return the id of the image that a container's one line has; "" for packages."""
    if len(packages) != 1:
        return ""
    found = _IMAGE.fullmatch(packages[0])
    return found["id"] if found else ""


class Difference(NamedTuple):
    """A package with the versions of both sides; Python is one, too."""

    package: str
    a: str
    b: str

    def __str__(self) -> str:
        return f"{self.package} {self.a} → {self.b}"

    @classmethod
    def parse(cls, text: str) -> Difference:
        """Return the difference that ``str`` made a text of."""
        package, _, versions = text.partition(" ")
        a, _, b = versions.partition(" → ")
        return cls(package, a, b)


def told_differences(texts: Sequence[str]) -> str:
    """Return differences as a text; of more than a few packages that one side lacks, the number."""
    parsed = list(map(Difference.parse, texts))
    lacking = [difference for difference in parsed if NONE in difference[1:]]
    if len(lacking) <= _MOST_LACKING:
        return ", ".join(texts)
    told = [str(difference) for difference in parsed if difference not in lacking]
    only_a = sum(difference.b == NONE for difference in lacking)
    told.append(f"{only_a} that only A has, {len(lacking) - only_a} that only B has")
    return ", ".join(told)


def new_releases(
    first: str, others: Sequence[Difference], shown: Callable[[str], str] = str
) -> str:
    """Return a release with what changed together with it, as any of that may be the cause.

    That is "onnx 1.18 with numpy 2.0, no six", or, of many, "onnx 1.18 with 9 other packages".
    ``shown`` makes the text of a release.
    """
    parts = []
    for name, _, new in others:
        parts.append(f"no {shown(name)}" if new == NONE else shown(f"{name} {new}"))
    if len(parts) > _MOST_NAMED:
        parts = [f"{len(parts):,} other packages"]
    return " with ".join([shown(first), ", ".join(parts)] if parts else [shown(first)])


def differing_packages(before: Iterable[str], after: Iterable[str]) -> list[Difference]:
    """Return the packages that two lists of exact ones differ in, by name."""
    old = _versions(before)
    new = _versions(after)
    found = []
    for name in sorted({*old, *new}):
        difference = Difference(name, old.get(name, NONE), new.get(name, NONE))
        if difference.a != difference.b:
            found.append(difference)
    return found


def _versions(packages: Iterable[str]) -> Mapping[str, str]:
    versions: dict[str, str] = {}
    for line in packages:
        name, _, version = line.partition("==")
        name, _, address = name.partition(" @ ")
        versions[canonicalize_name(name)] = version or address
    return versions
