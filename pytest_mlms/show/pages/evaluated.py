"""The records of first screens: items as lists know them, and what got worse in a history."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, NamedTuple

from pytest_mlms.core.records import UNUSABLE, Verdict
from pytest_mlms.show.pages.item import BAD, ItemView

if TYPE_CHECKING:
    from pytest_mlms.show.pages.series import ChangeView, SeriesView

BAD_VERDICTS = frozenset(verdict.value for verdict in BAD)
WORSE_VERDICTS = (Verdict.REGRESSED.value, Verdict.FAILED.value)
FINE_VERDICTS = (Verdict.PASSED.value, Verdict.IMPROVED.value)


@dataclass(frozen=True)
class Evaluated:
    """An item, as lists know it.

    ``stack`` is its name for people, ``version`` that of the framework, ``baseline`` that of an
    upgrade's other side, and ``whole`` whether its run ended and all its lines can be read.
    ``received`` counts what read it: items that were read together have the same.
    """

    run: str
    number: int
    link: str
    nodeid: str
    model: str
    stack: str
    framework: str
    version: str
    baseline: str
    kind: str
    case: str
    machine: str
    host: str
    verdict: str
    time: str
    whole: bool
    received: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """The run and the number of the item's line."""
        return self.run, self.number


class Unfinished(NamedTuple):
    """A run that goes on, was killed or has lines that can't be read, and when it started."""

    run: str
    started: str


class Loss(NamedTuple):
    """The weightiest of the changes for the worse of a model on a stack that began together.

    When it began is when all of them did, on the first screen: ``ids`` are theirs, and ``others``
    counts the rest of them. ``moved`` is what differs between the runs before and after;
    that and the series are None of losses after the first ones. ``stack`` is its name for people,
    and ``came`` has the packages with their versions that may have come with it, as places of
    changes are estimates; None where that is not known.
    """

    change: ChangeView
    others: int
    moved: str | None
    series: SeriesView | None
    stack: str
    came: Collection[tuple[str, str]] | None
    ids: Collection[int] = ()


class Losses(NamedTuple):
    """Losses, and why there may be more than these; "" where there are not."""

    found: Sequence[Loss] = ()
    lack: str = ""


def evaluated_of(item: ItemView, number: int, whole: bool) -> Evaluated:
    """Return an item of a report as lists know it; its link leads to its place in the page."""
    sides = item.rounds[0].sides if item.rounds else {}
    versions = sides["b"].versions if "b" in sides else item.versions
    before = sides["a"].versions if "a" in sides else {}
    return Evaluated(
        run=item.run,
        number=number,
        link=f"#{item.anchor}",
        nodeid=item.nodeid,
        model=item.manifest.name,
        stack=item.stack_label,
        framework=item.framework,
        version=versions.get(item.framework, ""),
        baseline=before.get(item.framework, ""),
        kind=item.kind,
        case=item.case,
        machine=item.machine.text,
        host=item.machine.host,
        verdict=item.verdict.value,
        time=item.time,
        whole=whole,
    )


def newest_of(evaluated: Iterable[Evaluated], by_version: bool = False) -> list[Evaluated]:
    """Return the newest items of each case on each class of machine, also of each version.

    Newest is the last one by its time, and the last one to be read, as the clock of a host may
    have been set back: where these are two items, both count. One that was skipped takes the place
    of none that failed or is undecided, and one whose time is to come, by a clock that was wrong,
    of none before. Of one version, what got worse stands also where a later item could not be
    measured.
    """
    now = datetime.now(timezone.utc).isoformat()
    by_time = sorted(evaluated, key=lambda each: each.time)
    found: dict[Evaluated, None] = {}
    for ordered in (by_time, sorted(by_time, key=lambda each: each.received)):
        newest: dict[tuple[object, ...], Evaluated] = {}
        for each in ordered:
            place: tuple[object, ...] = (each.model, each.stack, each.framework, each.nodeid)
            place += (each.machine, each.time > now)
            place += (each.version, each.baseline) if by_version else ()
            before = newest[place].verdict if place in newest else "SKIPPED"
            stands = each.verdict == "SKIPPED" and before not in (*FINE_VERDICTS, "SKIPPED")
            if by_version and before in WORSE_VERDICTS and each.verdict in UNUSABLE:
                stands = True
            if not stands:
                newest[place] = each
        found.update(dict.fromkeys(newest.values()))
    return list(found)
