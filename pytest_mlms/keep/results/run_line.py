"""The lines of results.jsonl that are of no item: of sessions that began and ended, and others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pytest_mlms.core.serialization import OrDefault
from pytest_mlms.keep.results.strict import Count, Name, Text

FORMAT = 1
"""The format of the lines: raised when a field changes its meaning, not when one is added."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """The head of each line: format, name of the run, time (ISO 8601, UTC), its type."""

    format: Annotated[int, OrDefault(1)] = 1
    run: Name = ""
    time: str = ""
    type: Annotated[Name, OrDefault("")] = ""


@dataclass(frozen=True)
class GitRecord:
    """A commit, whether tracked files differ from it, and its branch; None where git can't say."""

    sha: Text = ""
    dirty: bool | None = None
    branch: Text | None = None


@dataclass(frozen=True)
class JobRecord:
    """A job of a CI service, the address of its page, and what started it, if that is known."""

    service: str = ""
    url: Text | None = None
    event: Text | None = None


@dataclass(frozen=True)
class Session:
    """A session that began: when, how, by what, and where it came from."""

    began: Annotated[str, OrDefault("")] = ""
    command: Annotated[tuple[str, ...], OrDefault(())] = ()
    python: Annotated[str, OrDefault("")] = ""
    plugin: Annotated[Text, OrDefault("")] = ""
    git: Annotated[GitRecord | None, OrDefault(None)] = None
    ci: Annotated[JobRecord | None, OrDefault(None)] = None


@dataclass(frozen=True, kw_only=True)
class RunRecord(Session, Head):
    """The line of a session that began."""


@dataclass(frozen=True, kw_only=True)
class EndRecord(Head):
    """The line of a session that ended, with pytest's exit status."""

    exit_status: Count


@dataclass(frozen=True, kw_only=True)
class HeadOfItem(Head):
    """The head of the line of an item, and of that of its tear-down if it failed."""

    nodeid: Text
    repetition: Count = 1


def format_problem(line: Mapping[str, Any]) -> str:
    """Return why a line can't be read, whose fields have other meanings by then; "" if it can."""
    version = line.get("format")
    if isinstance(version, int) and version > FORMAT:
        return f"it has format {version}, this version reads {FORMAT}; upgrade it"
    return ""
