"""The lines of results.jsonl that are of no item: of sessions that began and ended, and others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pytest_mlms.core.serialization import OrDefault
from pytest_mlms.keep.results.strict import Count, Name, Text

__all__ = ["EndRecord", "GitRecord", "Head", "HeadOfItem", "JobRecord", "RunRecord"]


@dataclass(frozen=True, kw_only=True)
class Head:
    """What each line has: the format, the name of the run, the time (ISO 8601, UTC), its type."""

    format: Annotated[int, OrDefault(1)] = 1
    run: Name = ""
    time: str = ""
    type: Annotated[Name, OrDefault("")] = ""


@dataclass(frozen=True)
class GitRecord:
    """The commit that was checked out, and whether files differed from it."""

    sha: Text = ""
    branch: Text | None = None
    dirty: bool | None = None


@dataclass(frozen=True)
class JobRecord:
    """The job of CI that a run was a part of."""

    url: Text = ""


@dataclass(frozen=True, kw_only=True)
class RunRecord(Head):
    """The line of a session that began."""

    began: str | None = None
    plugin: Text = ""
    git: GitRecord | None = None
    ci: JobRecord | None = None


@dataclass(frozen=True, kw_only=True)
class EndRecord(Head):
    """The line of a session that ended, with pytest's exit status."""

    exit_status: Count


@dataclass(frozen=True, kw_only=True)
class HeadOfItem(Head):
    """What the line of an item has, and that of its tear-down if it failed."""

    nodeid: Text
    repetition: Count = 1
