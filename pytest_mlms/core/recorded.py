"""Values of a line of results that name a program, a package or a file.

A stranger may have written the line: runs are pushed, histories shared, folders sent. So a program
and a file of a line are no texts and no paths. Nothing can run or open them but by a converter of
``Recorded``, which says what it holds them against.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FOLDERS = ("items", "agents")
"""The folders of a run that have its files."""

_LONGEST = 1024  # characters of a path
_OF_DEVICES = re.compile("VISIBLE_DEVICES|DEVICE_ORDINAL|DEVICE_ORDER|AFFINITY_MASK")
"""Parts of the names of variables that choose a device, as schedulers of a cluster set them."""


class Recorded:
    """The name of a program or a file in a line of results."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return f"Recorded({self._text!r})"

    def among(self, known: Iterable[Path]) -> Path | None:
        """Return the operator's own file that this names; None for another."""
        return next((path for path in known if str(path) == self._text), None)

    def file_below(self, folder: Path) -> Path | None:
        """Return this file of a run's folder; None where it's missing, elsewhere or a link."""
        if not _is_plain(self._text):
            return None
        path = folder
        try:
            for part in self._text.split("/"):
                path = path / part
                if path.is_symlink():
                    return None
            return path if path.is_file() else None
        except OSError:  # a name that no file can have
            return None

    def trusted(self) -> Path:
        """Return the path as it is: of a run that the operator named as trusted, no other."""
        return Path(self._text)


@dataclass(frozen=True)
class RecordedLaunch:
    """The program and the exact packages of a stack's agents, or why these are lacking.

    ``inherited`` are the variables by which the caller changed what was measured; None where an
    older version didn't tell them. Of several like devices any may have been chosen.
    """

    program: Recorded | None
    lock: tuple[str, ...]
    packages: tuple[str, ...]
    lacking: str
    inherited: Mapping[str, str] | None = None

    @property
    def exact(self) -> tuple[str, ...]:
        """The exact packages, a line each; none where they aren't known."""
        return self.lock or self.packages


def recorded_launch(line: Mapping[str, Any], key: str = "launch") -> RecordedLaunch:
    """Return the launch of a side; fields of a line in another form are not known."""
    launch = line.get(key)
    fields = launch if isinstance(launch, Mapping) else {}
    command = _texts(fields.get("command"))
    lacking = fields.get("lacking")
    return RecordedLaunch(
        program=Recorded(command[0]) if command else None,
        lock=_texts(fields.get("lock")),
        packages=_texts(fields.get("packages")),
        lacking=lacking if isinstance(lacking, str) else "",
        inherited=_variables(fields.get("inherited"), line.get("machine")),
    )


def recorded_artifacts(line: Mapping[str, Any]) -> dict[str, Recorded]:
    """Return the files of an item by name."""
    found = line.get("artifacts")
    fields = found if isinstance(found, Mapping) else {}
    return {name: Recorded(path) for name, path in fields.items() if isinstance(path, str)}


def folder_of_item(nodeid: str) -> str:
    """Return a folder's name that a person can read and that no two items share.

    An item that runs again has a number behind it, as in ``NAME-2``.
    """
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", nodeid)
    short = readable.strip("-.")[-100:]
    digest = hashlib.sha256(nodeid.encode()).hexdigest()
    return f"{short}-{digest[:8]}"


def is_file_of_run(path: str) -> bool:
    """Return whether a path of a results' line is one that a run's files may have."""
    folder, is_below, _ = path.partition("/")
    return bool(is_below) and folder in _FOLDERS and _is_plain(path)


def _is_plain(path: str) -> bool:
    """Return whether a path leads down, by names that are shown as they are."""
    if not path.isprintable() or len(path) > _LONGEST or "\\" in path:
        return False
    return not {"", ".", ".."}.intersection(path.split("/"))


def without_devices(variables: Mapping[str, str]) -> dict[str, str]:
    """Return variables without those that choose a device."""
    return {name: value for name, value in variables.items() if not _OF_DEVICES.search(name)}


def _variables(values: Any, machine: Any) -> dict[str, str] | None:
    if not isinstance(values, Mapping):
        return None
    found = {name: value for name, value in values.items() if isinstance(value, str)}
    gpus = machine.get("gpus") if isinstance(machine, Mapping) else None
    known = [gpu for gpu in gpus if isinstance(gpu, Mapping)] if isinstance(gpus, list) else []
    are_alike = len({str(gpu.get("name")) for gpu in known}) <= 1
    return without_devices(found) if are_alike else found


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, (list, tuple)):
        return ()
    return tuple(value for value in values if isinstance(value, str))
