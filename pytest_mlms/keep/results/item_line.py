"""The line of an item of results.jsonl as a whole, with what items of some kinds note."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Comparison, InputGroup, LayerChange, PeakRecord
from pytest_mlms.core.serialization import from_plain
from pytest_mlms.keep.results.line import ItemFields, NotedFields, NotedReference
from pytest_mlms.keep.results.run_line import HeadOfItem, format_problem
from pytest_mlms.measure.pipeline.dataset import SkippedElement
from pytest_mlms.measure.trace.records import TraceSummary


@dataclass(frozen=True)
class NotedProcess:
    """The facts that are read of a fresh process of a performance item."""

    load_seconds: float | None = None
    first_seconds: float | None = None
    loop_seconds: float | None = None
    calls: int = 0
    steady: bool = True
    waited: float | None = None
    peak_bytes: int | None = None


@dataclass(frozen=True)
class NotedSide:
    """The software of one side of a round, as it is read."""

    versions: Mapping[str, str] = field(default_factory=dict)
    python: str = ""


@dataclass(frozen=True)
class NotedRound:
    """Facts of a round of an upgrade: by quantity ``(a, b, log(b / a), error, calls)``.

    ``peaks`` are those of both sides, where they were searched.
    """

    figures: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    sides: Mapping[str, NotedSide] = field(default_factory=dict)
    seconds: float | None = None
    pairs: int = 0
    steady: bool = True
    peaks: Mapping[str, PeakRecord] = field(default_factory=dict)


@dataclass(frozen=True)
class NotedTerms:
    """Criteria of an upgrade: tolerances by quantity, and those that must be shown.

    ``places`` has the line or the option that set each tolerance; a default has none.
    """

    tolerances: Mapping[str, float] = field(default_factory=dict)
    gates: tuple[str, ...] = ()
    clock: str | None = None
    places: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Notes:
    """Fields that items of some kinds note, and under whose names a user's test may note anything.

    What isn't read as it is declared is left out of an item.
    """

    changed_packages: tuple[str, ...] = ()
    clock: str | None = None
    comparisons: tuple[Comparison, ...] = ()
    complete: bool = True
    culprit_lacking: str = ""
    culprit_options: tuple[str, ...] = ()
    doubts: str = ""
    ended: str = ""
    gpu_notes: tuple[str, ...] = ()
    input_groups: tuple[InputGroup, ...] = ()
    inputs_seed: int | None = None
    inputs_timed: int = 0
    layers: tuple[LayerChange, ...] = ()
    layers_lacking: str | None = None
    outputs_of: str | None = None
    processes: tuple[NotedProcess, ...] = ()
    reference: NotedReference | None = None
    rounds: tuple[NotedRound, ...] = ()
    skipped_elements: tuple[SkippedElement, ...] = ()
    slow_inputs: tuple[str, ...] = ()
    terms: NotedTerms | None = None
    trace: TraceSummary | None = None
    worse_inputs: tuple[str, ...] = ()


NOTED = frozenset(note.name for note in (*fields(Notes), *fields(NotedFields)))


@dataclass(frozen=True, kw_only=True)
class ItemRecord(Notes, ItemFields):
    """The line of an item as it is shown.

    ``folder`` is the run's, below which its files are. ``unread`` has why fields are not those of
    docs/results.md, by name. ``teardown`` is the text of a tear-down that failed.
    """

    folder: Path
    unread: Mapping[str, str] = field(default_factory=dict)
    teardown: str | None = None


Item = TypeVar("Item", bound=ItemRecord)


def check_head(line: Mapping[str, Any], path: Path, number: int) -> None:
    """Raise MlmsError for a line of a later format, or of a tear-down that names no item.

    Where either is left out, an item may look better than it is.
    """
    problem = format_problem(line)
    if not problem and line.get("type") == "teardown":
        try:
            from_plain(
                HeadOfItem, {name: value for name, value in line.items() if value is not None}
            )
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            problem = f"{where}: {first['msg']}; this is no line of an item's tear-down"
    if problem:
        raise MlmsError(f"{path}:{number}: {problem}")


def item_of(kind: type[Item], line: Mapping[str, Any], path: Path, number: int) -> Item:
    """Return the item of a line; fields that a later version added are left out.

    Raises MlmsError where the line is of no item, or of a later format.
    """
    check_head(line, path, number)
    known = {name: value for name, value in line.items() if value is not None}
    known.update(folder=path.parent, unread={})
    try:
        return from_plain(kind, known)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
    unread = {str(problem["loc"][0]): problem["msg"] for problem in problems}
    if unread.keys() <= NOTED:  # a user's test noted something else under these names
        kept = {name: value for name, value in known.items() if name not in unread}
        return from_plain(kind, {**kept, "unread": unread})
    first = next(problem for problem in problems if problem["loc"][0] not in NOTED)
    where = ".".join(map(str, first["loc"]))
    raise MlmsError(f"{path}:{number}: {where}: {first['msg']}; this is no line of a run's item")
