"""What reports and the portal begin with: may we upgrade, what needs a look, the newest verdicts.

What was evaluated comes from an index of runs or from the items of a report, and series from a
history, if there is one. Nothing here judges: verdicts and changes are those that were written.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from markupsafe import Markup

from pytest_mlms.core.records import (
    Verdict,
    change_form,
    main_comparison,
    regressed_comparison,
)
from pytest_mlms.core.text import shortened
from pytest_mlms.show.pages.findings import findings_of
from pytest_mlms.show.pages.item import BAD, ItemView
from pytest_mlms.show.pages.numbers import quantity_label, signed
from pytest_mlms.show.pages.sparkline import sparkline

if TYPE_CHECKING:
    from pytest_mlms.show.pages.series import ChangeView, SeriesView

MOST_LOOKS = 12
_MOST_MODELS = 30
_MOST_STACKS = 12
_MOST_ANSWERS = 6
_LONGEST = 200  # characters of the text of an error
_ORDER = {verdict.value: place for place, verdict in enumerate(Verdict)}
_BAD = frozenset(verdict.value for verdict in BAD)
_LOOKS = ("REGRESSED", "FAILED", "CHANGED", "ERROR", "INVALID")  # what got worse comes first
_FINE = ("PASSED", "IMPROVED")
_KINDS = ("performance", "accuracy", "agreement")  # by which a stack is followed, the first there


@dataclass(frozen=True)
class Evaluated:
    """An item, as lists know it.

    ``stack`` is its name for people, ``version`` that of the framework, ``baseline`` that of an
    upgrade's other side, and ``whole`` whether its run ended and all its lines can be read.
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

    @property
    def key(self) -> tuple[str, int]:
        """The run and the number of the item's line."""
        return self.run, self.number


class Loss(NamedTuple):
    """The weightiest of the changes for the worse of a model that began at one run.

    ``others`` counts the rest of them. ``moved`` is what differs between the runs before and after;
    that and the series are None of losses after the first ones.
    """

    change: ChangeView
    others: int
    moved: str | None
    series: SeriesView | None


class Losses(NamedTuple):
    """Losses, and whether these are all: there may be too many changes to read."""

    found: Sequence[Loss] = ()
    are_all: bool = True


class Bench(Protocol):
    """What an overview asks for about few of the items; ``has_pages`` if there are pages to link.

    Without a history there are neither series nor losses.
    """

    has_pages: bool

    def item(self, each: Evaluated) -> ItemView | None:
        """Return the whole item; None where it can't be read."""

    def since(self, each: Evaluated) -> str:
        """Return when an item that fails began to fail; "" where it isn't known."""

    def series(self, items: Sequence[Evaluated]) -> Mapping[tuple[str, int], SeriesView]:
        """Return the main series of each item that has one, by its key."""

    def losses(self, models: Collection[str]) -> Losses:
        """Return the open and confirmed changes for the worse, confirmed and large ones first."""


class Answer(NamedTuple):
    """Whether to upgrade to a version: "yes", "no" or "open", and why."""

    word: str
    target: str
    reason: str


@dataclass(frozen=True)
class Look:
    """Something that needs a look; all but ``picture`` are texts, "" where nothing is known."""

    verdict: str
    title: str
    link: str
    change: str
    values: str
    cause: str
    since: str
    state: str
    gate: str
    picture: Markup


@dataclass(frozen=True)
class Cell:
    """The newest results of a model on a stack: the worst verdict, and how its figure moved.

    ``change`` is by the newest upgrade if there is one, else by the runs before, as ``against``
    says. ``verdicts`` are those of all cases.
    """

    verdict: str
    link: str
    time: str
    value: str
    change: str
    against: str
    picture: Markup
    verdicts: Mapping[str, int]


class Column(NamedTuple):
    """A stack, and the newest version of its framework that was evaluated."""

    name: str
    framework: str
    version: str


class Row(NamedTuple):
    """A model with its cells in the order of the columns; None where it was not evaluated."""

    model: str
    cells: Sequence[Cell | None]


@dataclass(frozen=True)
class Overview:
    """The first screen. ``left_out`` counts the models, stacks and looks that have no room."""

    counts: Mapping[str, int]
    hosts: int
    newest: str
    answers: Sequence[Answer]
    looks: Sequence[Look]
    columns: Sequence[Column]
    rows: Sequence[Row]
    left_out: Mapping[str, int]


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


def make_overview(evaluated: Iterable[Evaluated], bench: Bench) -> Overview:
    """Return the first screen of what was evaluated."""
    newest = _newest(evaluated)
    losses, are_all = bench.losses({each.model for each in newest})
    columns = _columns(newest)
    cells: dict[tuple[str, str, str], list[Evaluated]] = defaultdict(list)
    for each in newest:
        cells[each.model, each.stack, each.framework].append(each)
    worst: dict[str, int] = {}
    for each in newest:
        worst[each.model] = min(worst.get(each.model, len(_ORDER)), _ORDER.get(each.verdict, 0))
    models = sorted(worst, key=lambda model: (worst[model], model))[:_MOST_MODELS]
    shown = columns[:_MOST_STACKS]
    places = [(model, column.name, column.framework) for model in models for column in shown]
    bad = _bad_groups(newest)
    followed = {place: _followed(cells[place]) for place in places if place in cells}
    firsts = [group[0] for group in bad[:MOST_LOOKS]]
    series = dict(bench.series([*followed.values(), *firsts]))
    rows = []
    for model in models:
        of_model = [(model, column.name, column.framework) for column in shown]
        made = [
            _cell(cells[place], series.get(followed[place].key), bench) if place in cells else None
            for place in of_model
        ]
        rows.append(Row(model, made))
    for first in firsts:  # an upgrade has no series: it is shown with that of its stack
        stands_for = followed.get((first.model, first.stack, first.framework), first)
        if first.key not in series and stands_for.key in series:
            series[first.key] = series[stands_for.key]
    looks = [*_looks_at_losses(losses, bench), *_looks_at_items(bad, series, bench)]
    looks.sort(key=lambda look: _LOOKS.index(look.verdict))
    return Overview(
        counts={
            verdict: count
            for verdict in _ORDER
            if (count := sum(each.verdict == verdict for each in newest))
        },
        hosts=len({each.host for each in newest if each.host}),
        newest=max((each.time for each in newest), default=""),
        answers=answers_of(newest, Losses(losses, are_all)),
        looks=looks[:MOST_LOOKS],
        columns=shown,
        rows=rows,
        left_out={
            "models": len(worst) - len(models),
            "stacks": len(columns) - len(shown),
            "looks": len(bad) + len(losses) - min(len(looks), MOST_LOOKS),
        },
    )


def _newest(evaluated: Iterable[Evaluated]) -> list[Evaluated]:
    """Return the newest item of each case on each class of machine."""
    newest: dict[tuple[str, ...], Evaluated] = {}
    for each in evaluated:
        case = (each.model, each.stack, each.framework, each.nodeid, each.machine)
        if case not in newest or newest[case].time <= each.time:
            newest[case] = each
    return list(newest.values())


def _columns(newest: Sequence[Evaluated]) -> list[Column]:
    """Return the stacks, those of the most models first."""
    found: dict[tuple[str, str], list[Evaluated]] = defaultdict(list)
    for each in newest:
        found[each.stack, each.framework].append(each)
    counts = {stack: len({each.model for each in items}) for stack, items in found.items()}
    columns = []
    for stack in sorted(found, key=lambda stack: (-counts[stack], stack)):
        with_version = [each for each in found[stack] if each.version]
        last = max(with_version, key=lambda each: each.time, default=None)
        columns.append(Column(*stack, last.version if last else ""))
    return columns


def _followed(items: Sequence[Evaluated]) -> Evaluated:
    """Return the item whose figure stands for a cell: of the smallest case that was timed."""

    def order(each: Evaluated) -> tuple[int, int, str]:
        kind = _KINDS.index(each.kind) if each.kind in _KINDS else len(_KINDS)
        return kind, len(each.case), each.case

    return min(items, key=order)


def _bad_groups(newest: Sequence[Evaluated]) -> list[list[Evaluated]]:
    """Return the items that make a run fail, those of a model, stack, kind and verdict together.

    What regressed or failed comes before errors.
    """
    groups: dict[tuple[str, ...], list[Evaluated]] = defaultdict(list)
    for each in sorted(newest, key=lambda each: (len(each.case), each.case)):
        if each.verdict in _BAD:
            groups[each.verdict, each.kind, each.model, each.stack, each.framework].append(each)
    ordered = sorted(groups, key=lambda key: (_LOOKS.index(key[0]), *key[1:]))
    return [groups[key] for key in ordered]


def _cell(items: Sequence[Evaluated], series: SeriesView | None, bench: Bench) -> Cell:
    worst = min(items, key=lambda each: (_ORDER.get(each.verdict, 0), each.case))
    upgrades = [each for each in items if each.kind == "upgrade"]
    headline = ""
    if series is None and (item := bench.item(_followed(items))):
        headline = item.headline
    change = series.drift_text if series else ""
    against = "to the median of the runs before" if change else ""
    lost = series.last_change if series else None
    if lost is not None and lost.is_loss:
        change = signed(lost.ratio)
        against = f"since {lost.started[:10]}, {lost.status}"
    if upgrades:
        upgrade = min(upgrades, key=lambda each: (_ORDER.get(each.verdict, 0), each.case))
        of_upgrade = _upgrade_text(bench.item(upgrade))
        change = of_upgrade or change
        against = f"to {upgrade.baseline or 'the baseline'}" if of_upgrade else against
    return Cell(
        verdict=worst.verdict,
        link=worst.link,
        time=max(each.time for each in items),
        value=series.last_text.partition(" (")[0] if series else headline,
        change=change,
        against=against,
        picture=sparkline(series) if series else Markup(),
        verdicts=Counter(each.verdict for each in items),
    )


def _upgrade_text(item: ItemView | None) -> str:
    """Return the change that says most of an upgrade: "latency +7.9 %"."""
    comparisons = item.comparisons if item else ()
    told = regressed_comparison(comparisons) or main_comparison(comparisons)
    if told is None or not told.ratio > 0:
        return ""
    if change_form(told.quantity, told.of) != "ratio":
        return quantity_label(told.quantity)
    return f"{quantity_label(told.quantity)} {signed(told.ratio)}"


def _looks_at_items(
    bad: Sequence[Sequence[Evaluated]],
    series: Mapping[tuple[str, int], SeriesView],
    bench: Bench,
) -> Iterator[Look]:
    """Yield the first item of each group that makes a run fail."""
    for group in bad[:MOST_LOOKS]:
        each = group[0]
        item = bench.item(each)
        change, values = _figures_of(item) if item else ("", "")
        cause = f"{each.framework} {each.version}".strip()
        if each.baseline and each.baseline != each.version:
            cause = f"{each.framework} {each.baseline} → {each.version}"
        others = f"{len(group) - 1} more of its cases" if len(group) > 1 else ""
        yield Look(
            verdict=each.verdict,
            title=item.title if item else each.model,
            link=each.link,
            change=change,
            values=values,
            cause=", ".join(part for part in (cause, each.host, others) if part),
            since=bench.since(each),
            state="measured in turns by the gate" if each.kind == "upgrade" else each.kind,
            gate="",
            picture=sparkline(series[each.key]) if each.key in series else Markup(),
        )


def _figures_of(item: ItemView) -> tuple[str, str]:
    """Return what was measured and what it should have been, or the message of an error."""
    for finding in findings_of(item):
        bound = "; ".join(part for part in (finding.distance, finding.bound) if part)
        return f"{finding.quantity} {finding.measured}", bound
    return shortened(item.explanation.partition("\n")[0], _LONGEST), ""


def _looks_at_losses(losses: Sequence[Loss], bench: Bench) -> Iterator[Look]:
    """Yield the first of the changes, with what moved at their places."""
    for change, others, moved, series in losses[:MOST_LOOKS]:
        more = f"; {others} more series of the model changed, too" if others else ""
        is_confirmed = change.status == "confirmed"
        yield Look(
            verdict="REGRESSED" if is_confirmed else "CHANGED",
            title=f"{change.model}: {quantity_label(change.quantity)}, {change.case}",
            link=f"/series/{change.series}" if bench.has_pages else "",
            change=change.text,
            values=change.levels,
            cause=f"{moved or 'nothing that was recorded moved with it'}{more}",
            since=change.started,
            state="confirmed by the gate" if is_confirmed else "not confirmed by the gate",
            gate=change.confirmed_by or "" if bench.has_pages else "",
            picture=sparkline(series) if series else Markup(),
        )


def answers_of(newest: Sequence[Evaluated], losses: Losses) -> Sequence[Answer]:
    """Return whether to upgrade to each version that an upgrade was measured to.

    "yes" needs all of its upgrades to pass, in runs that ended, and nothing else of that version to
    be bad or undecided; its reason says of how many models that is known.
    """
    upgrades: dict[str, list[Evaluated]] = defaultdict(list)
    for each in newest:
        if each.kind == "upgrade":
            upgrades[_target(each)].append(each)
    answers = []
    for target, items in upgrades.items():
        stacks = {(each.stack, each.framework) for each in items}
        others = [
            each
            for each in newest
            if each.kind != "upgrade"
            and (_target(each) == target or (each.stack, each.framework) in stacks)
        ]
        came = [loss for loss in losses.found if _may_come_with(target, loss)]
        answers.append(_answer(target, items, others, Losses(came, losses.are_all)))
    answers.sort(key=lambda answer: (("no", "open", "yes").index(answer.word), answer.target))
    return answers[:_MOST_ANSWERS]


def _target(each: Evaluated) -> str:
    """Return what an item's upgrade leads to: the framework's version, else the stack."""
    is_other = each.version and each.version != each.baseline
    return f"{each.framework} {each.version}" if is_other else f"the stack {each.stack}"


def _may_come_with(target: str, loss: Loss) -> bool:
    """Return whether a change came with a version, is one of a stack, or wasn't asked about."""
    if loss.moved is None:
        return True
    of_stack = f"the stack {loss.change.case}".startswith(f"{target}-")
    return of_stack or target in _after(loss.moved)


def _after(moved: str) -> set[str]:
    """Return names with their versions after a change, of its text: a 1 → 2, b 3 → 4."""
    parts = [part.split(" ") for part in moved.split(", ")]
    return {f"{part[0]} {part[-1]}" for part in parts}


def _answer(
    target: str, upgrades: Sequence[Evaluated], others: Sequence[Evaluated], losses: Losses
) -> Answer:
    count = len(upgrades)
    noun = "upgrade" if count == 1 else "upgrades"
    bad = Counter(each.verdict for each in upgrades if each.verdict in _BAD)
    if bad:
        told = ", ".join(f"{number} {verdict}" for verdict, number in bad.items())
        return Answer("no", target, f"of {count} {noun}, {told}")
    if any(loss.moved and loss.change.status == "confirmed" for loss in losses.found):
        return Answer("no", target, "a confirmed change for the worse came with it")
    passed = [each for each in upgrades if each.verdict in _FINE]
    told = f"{len(passed)} of {count} {noun} passed"
    failed = sum(each.verdict in _BAD for each in others)
    undecided = sum(each.verdict == "INCONCLUSIVE" for each in others)
    doubts = [
        f"of its other items, {failed} failed" if failed else "",
        f"of its other items, {undecided} undecided" if undecided else "",
        "changes that came with it, or may have, are open" if losses.found else "",
        "" if losses.are_all else "there are too many open changes to read",
        "a run is not whole" if not all(each.whole for each in [*upgrades, *others]) else "",
    ]
    if len(passed) < count or any(doubts):
        return Answer("open", target, "; ".join([told, *filter(None, doubts)]))
    models = len({each.model for each in upgrades})
    return Answer("yes", target, f"{told}, of {models} {'model' if models == 1 else 'models'}")
