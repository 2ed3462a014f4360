"""Facts of first screens: of items, and of a history; whether to upgrade, by version.

Nothing here judges: what was written is counted. "yes" is said only of what is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, NamedTuple

from packaging.utils import canonicalize_name

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


_NOTED = {"SKIPPED": "skipped", "XFAILED": "expected to fail"}


class Answer(NamedTuple):
    """An answer to an upgrade to a version: "yes", "no" or "open", and why."""

    word: str
    target: str
    reason: str


def answers_of(
    evaluated: Iterable[Evaluated], losses: Losses, unfinished: Sequence[Unfinished] = ()
) -> Sequence[Answer]:
    """Return whether to upgrade to each version of a newest upgrade; "no" comes first.

    "no" needs an upgrade that got worse, or a confirmed change that came with it. "yes" needs all
    of its upgrades to pass, in runs that ended and after which none was cut off, one for each
    model of its framework, and nothing else of that version or stack to be bad or undecided, also
    where that was measured with another version since. Its reason says of how many models.
    """
    known = _with_versions(list(evaluated))
    newest = newest_of(known)
    by_version = newest_of(known, by_version=True)
    targets = {_target(each) for each in newest if each.kind == "upgrade"}
    answers = []
    for target in sorted(targets):
        of_target = [each for each in by_version if _target(each) == target]
        upgrades = [each for each in of_target if each.kind == "upgrade"]
        stacks = {(each.stack, each.framework) for each in upgrades}
        on_stacks = [each for each in newest if (each.stack, each.framework) in stacks]
        others = [each for each in {*of_target, *on_stacks} if each.kind != "upgrade"]
        doubts = _doubts(upgrades, others, newest, unfinished) + _of_losses(target, losses)
        worse = _worse(target, upgrades, losses)
        no = Answer("no", target, worse)
        answers.append(no if worse else _unless(doubts, target, upgrades, others))
    answers.sort(key=lambda answer: ("no", "open", "yes").index(answer.word))
    return answers


def _with_versions(evaluated: Sequence[Evaluated]) -> Sequence[Evaluated]:
    """Return the items, those without a version with the one that their stack had beside them.

    An upgrade that was skipped or ended in an error has none of its own.
    """
    of_stack: dict[tuple[str, ...], Evaluated] = {}
    for each in sorted(evaluated, key=lambda each: each.time):
        if each.version:
            kind = "upgrade" if each.kind == "upgrade" else ""
            of_stack[each.stack, each.framework, kind] = each
            of_stack[each.stack, each.framework, kind, each.run] = each
    found = []
    for each in evaluated:
        stack = (each.stack, each.framework, "upgrade" if each.kind == "upgrade" else "")
        beside = of_stack.get((*stack, each.run)) or of_stack.get(stack)
        if each.version or beside is None:
            found.append(each)
        else:
            found.append(replace(each, version=beside.version, baseline=beside.baseline))
    return found


def _target(each: Evaluated) -> str:
    """Return what an item's upgrade leads to: the framework's version, else the stack."""
    is_other = each.version and each.version != each.baseline
    return f"{each.framework} {each.version}" if is_other else f"the stack {each.stack}"


def _worse(target: str, upgrades: Sequence[Evaluated], losses: Losses) -> str:
    """Return what is known to have got worse; "" where nothing is."""
    worse = Counter(each.verdict for each in upgrades if each.verdict in WORSE_VERDICTS)
    if worse:
        told = ", ".join(f"{number} {verdict}" for verdict, number in worse.items())
        return f"of {_counted(len(upgrades), 'upgrade')}, {told}"
    for loss in losses.found:
        is_known = loss.came is not None and _may_come_with(target, loss)
        if is_known and loss.change.status == "confirmed":
            return "a confirmed change for the worse came with it"
    return ""


def _may_come_with(target: str, loss: Loss) -> bool:
    """Return whether a change came with a version, is one of a stack, or isn't known to not be."""
    if loss.came is None or target == f"the stack {loss.stack}":
        return True
    framework, _, version = target.rpartition(" ")
    return (canonicalize_name(framework), version) in loss.came


def _of_losses(target: str, losses: Losses) -> list[str]:
    came = any(_may_come_with(target, loss) for loss in losses.found)
    open_ones = "changes that came with it, or may have, are open" if came else ""
    return [open_ones, losses.lack]


def _doubts(
    upgrades: Sequence[Evaluated],
    others: Sequence[Evaluated],
    newest: Sequence[Evaluated],
    unfinished: Sequence[Unfinished],
) -> list[str]:
    """Return why an upgrade of which nothing got worse may still be none; "" for what is fine."""
    failed = sum(each.verdict in BAD_VERDICTS for each in others)
    settled = (*BAD_VERDICTS, *FINE_VERDICTS, *_NOTED)
    undecided = sum(each.verdict not in settled for each in others)
    frameworks = {each.framework for each in upgrades}
    ran = [each for each in newest if each.verdict != "SKIPPED"]
    measured = {each.model for each in ran if each.framework in frameworks}
    missing = len(measured - {each.model for each in upgrades})
    first = min(each.time for each in upgrades)
    cut = [each.run for each in unfinished if each.started > first]
    return [
        f"of its other items, {failed} failed" if failed else "",
        f"of its other items, {undecided} undecided" if undecided else "",
        f"{_counted(missing, 'other model')} had no upgrade to it" if missing else "",
        "a run is not whole" if not all(each.whole for each in [*upgrades, *others]) else "",
        f"a later run is not whole: {cut[0]}" if cut else "",
    ]


def _unless(
    doubts: Sequence[str], target: str, upgrades: Sequence[Evaluated], others: Sequence[Evaluated]
) -> Answer:
    """Return "yes" if all upgrades passed and nothing is in doubt, else "open"."""
    verdicts = Counter(each.verdict for each in upgrades)
    passed = sum(verdicts.pop(fine, 0) for fine in FINE_VERDICTS)
    told = f"{passed} of {_counted(len(upgrades), 'upgrade')} passed"
    if verdicts or any(doubts):
        rest = [f"{number} {verdict}" for verdict, number in verdicts.items()]
        return Answer("open", target, "; ".join([told, *rest, *filter(None, doubts)]))
    models = len({each.model for each in upgrades})
    noted = Counter(_NOTED[each.verdict] for each in others if each.verdict in _NOTED)
    notes = [f"of its other items, {number} {note}" for note, number in noted.items()]
    return Answer("yes", target, "; ".join([f"{told}, of {_counted(models, 'model')}", *notes]))


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
