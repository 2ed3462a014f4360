"""Views of a history: series with their points, changes, and the software that differed.

``history.queries`` has runs and hosts as records that are shown as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from pytest_mlms.decide.upgrade.labels import percent
from pytest_mlms.keep.history.changes import Change, read_changes
from pytest_mlms.keep.history.errors import HistoryError
from pytest_mlms.keep.history.queries import (
    PointRow,
    SeriesInfo,
    StackInfo,
    changes_between,
    last_points,
    series_by_id,
    series_ids,
    stacks,
)
from pytest_mlms.keep.history.run_content import ItemPoints, gather
from pytest_mlms.keep.history.run_lines import read_run
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.numbers import interval_text

_LAST = 200  # points of a series
_MOST_PACKAGES = 3  # that a text names; the rest is counted


@dataclass(frozen=True)
class SeriesPoint:
    """A point; ``software`` is what differs from the stack of the point before it, "" if nothing.

    Values are in the unit of the series.
    """

    run: str
    started: str
    value: float
    low: float | None
    high: float | None
    verdict: str
    git_sha: str | None
    host: str | None
    software: str = ""


@dataclass(frozen=True)
class ChangeView:
    """A change of a series: ``text`` says by how much, with its interval."""

    id: int
    series: int
    model: str
    quantity: str
    unit: str
    first_run: str
    started: str
    before: float
    after: float
    ratio: float
    low: float | None
    high: float | None
    status: str
    cause: str | None
    is_worse: bool
    text: str


@dataclass(frozen=True)
class SeriesView:
    """A series with its last points, the newest last, and the changes among these."""

    id: int
    model: str
    kind: str
    case: str
    machine: str
    quantity: str
    unit: str
    better: str
    control: bool
    points: tuple[SeriesPoint, ...]
    changes: tuple[ChangeView, ...]

    @property
    def last_text(self) -> str:
        """The newest value with its interval, "-" without points."""
        if not self.points:
            return "-"
        last = self.points[-1]
        return interval_text(last.value, last.low, last.high, self.unit)


def read_series(history: Engine, ids: Iterable[int], last: int = _LAST) -> Sequence[SeriesView]:
    """Return series by their ids, each with its last points; those that there aren't are left out.

    Raises HistoryError.
    """
    wanted = list(ids)
    changes = change_views(history)
    with history.connect() as connection:
        known = series_by_id(connection, wanted)
        rows = last_points(connection, [info.id for info in known], last)
        digests = {row.stack for points in rows.values() for row in points}
        software = stacks(connection, digests)
    found = []
    for info in known:
        of_series = [change for change in changes if change.series == info.id]
        found.append(_series_view(info, rows[info.id], software, of_series))
    return found


def _series_view(
    info: SeriesInfo,
    rows: Sequence[PointRow],
    software: Mapping[str, StackInfo],
    changes: Iterable[ChangeView],
) -> SeriesView:
    runs = {row.run for row in rows}
    return SeriesView(
        id=info.id,
        model=info.model,
        kind=info.kind,
        case=info.case,
        machine=info.machine,
        quantity=info.quantity,
        unit=info.unit,
        better=info.better,
        control=info.control,
        points=tuple(_points(rows, software)),
        changes=tuple(change for change in changes if change.first_run in runs),
    )


def _points(rows: Sequence[PointRow], software: Mapping[str, StackInfo]) -> Iterator[SeriesPoint]:
    before: StackInfo | None = None
    for row in rows:
        stack = software.get(row.stack or "")
        yield SeriesPoint(
            run=row.run,
            started=row.started,
            value=row.value,
            low=row.low,
            high=row.high,
            verdict=row.verdict,
            git_sha=row.git_sha,
            host=row.host,
            software=_difference(before, stack),
        )
        before = stack or before


def _difference(before: StackInfo | None, after: StackInfo | None) -> str:
    """Return what differs between two stacks: "onnxruntime 1.31.0 → 1.32.0"."""
    if before is None or after is None:
        return ""
    changes = changes_between(before, after)
    texts = []
    for change in changes[:_MOST_PACKAGES]:
        texts.append(f"{change.name} {change.before or 'none'} → {change.after or 'none'}")
    if len(changes) > _MOST_PACKAGES:
        texts.append(f"{len(changes) - _MOST_PACKAGES} more")
    return ", ".join(texts)


def change_views(history: Engine) -> Sequence[ChangeView]:
    """Return all changes of a history, the oldest first; raises HistoryError."""
    return [_change_view(change) for change in read_changes(history)]


def _change_view(change: Change) -> ChangeView:
    return ChangeView(
        id=change.id,
        series=change.series,
        model=str(change.parts.get("manifest", "")),
        quantity=change.quantity,
        unit=change.unit,
        first_run=change.first_run,
        started=change.started,
        before=change.before,
        after=change.after,
        ratio=change.ratio,
        low=change.low,
        high=change.high,
        status=change.status,
        cause=change.cause,
        is_worse=change.is_worse,
        text=_change_text(change),
    )


def _change_text(change: Change) -> str:
    """Return a ratio with its interval in percent: "+8.1 % (+7.2 % to +9.0 %)"."""
    text = _signed(change.ratio)
    if change.low is None or change.high is None:
        return text
    return f"{text} ({_signed(change.low)} to {_signed(change.high)})"


def _signed(ratio: float) -> str:
    sign = "+" if ratio >= 1 else "−"
    return f"{sign}{percent(abs(ratio - 1), '.2g')}"


def series_of_items(history: Engine, items: Sequence[ItemView]) -> Mapping[str, Sequence[int]]:
    """Return the ids of the series of each item by its anchor: those that its points are of.

    The limits of an item come first among its quantities. Raises HistoryError.
    """
    quantities: dict[tuple[Path, str], Mapping[str, str]] = {}
    for folder in dict.fromkeys(item.folder for item in items):
        for nodeid, measured in _points_of_run(folder).items():
            points = measured.points.items()
            names = {key: point.series.quantity for key, point in points}
            quantities[folder, nodeid] = names
    with history.connect() as connection:
        ids = series_ids(connection, [key for names in quantities.values() for key in names])
    found = {}
    for item in items:
        limited = [limit.quantity for limit in item.limits]
        of_item = quantities.get((item.folder, item.nodeid), {})
        ordered = sorted(of_item, key=lambda key: of_item[key] not in limited)
        found[item.anchor] = [ids[key] for key in ordered if key in ids]
    return found


def _points_of_run(folder: Path) -> Mapping[str, ItemPoints]:
    """Return the points of a run's items by node id."""
    path = folder / "results.jsonl"
    try:
        with path.open("rb") as file:
            content = gather(read_run(file, str(path)))
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror}; name the folder of a run") from None
    return content.items if content else {}
