"""The beginning of reports and the portal: may we upgrade, what needs a look, the newest verdicts.

What was evaluated comes from an index of runs or from the items of a report, and series from a
history, if there is one. Nothing here judges: verdicts and changes are those that were written.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, Protocol

from markupsafe import Markup
from packaging.utils import canonicalize_name

from pytest_mlms.core.records import (
    Verdict,
    change_form,
    main_comparison,
    regressed_comparison,
)
from pytest_mlms.core.text import shortened
from pytest_mlms.show.pages.evaluated import (
    BAD_VERDICTS,
    WORSE_VERDICTS,
    Answer,
    Evaluated,
    Loss,
    Losses,
    Unfinished,
    answers_of,
    newest_of,
)
from pytest_mlms.show.pages.item import ItemView, findings_of
from pytest_mlms.show.pages.numbers import quantity_label, signed
from pytest_mlms.show.pages.sparkline import sparkline

if TYPE_CHECKING:
    from pytest_mlms.show.pages.series import SeriesView

MOST_LOOKS = 12
_MOST_ANSWERS = 6
_MOST_MODELS = 30
_MOST_STACKS = 12
_LONGEST = 200  # characters of the text of an error
_ORDER = {verdict.value: place for place, verdict in enumerate(Verdict)}
_LOOKS = ("REGRESSED", "FAILED", "CHANGED", "ERROR", "INVALID")  # what got worse comes first
_KINDS = ("performance", "accuracy", "agreement")  # by which a stack is followed, the first there


class Bench(Protocol):
    """The questions of an overview about few of the items.

    ``has_pages`` is whether there are pages to link. Without a history there are neither series
    nor losses.
    """

    has_pages: bool

    def item(self, each: Evaluated) -> ItemView | None:
        """Return the whole item; None where it can't be read."""

    def since(self, each: Evaluated) -> str:
        """Return when an item that fails began to fail; "" where it isn't known."""

    def series(self, items: Sequence[Evaluated]) -> Mapping[tuple[str, int], SeriesView]:
        """Return the main series of each item that has one, by its key."""

    def losses(self, models: Collection[str]) -> Losses | None:
        """Return the open and confirmed changes for the worse, confirmed and large ones first.

        None without a history.
        """


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
    says; ``since`` is when a change of the history began. ``verdicts`` are those of all cases.
    """

    verdict: str
    link: str
    time: str
    value: str
    change: str
    against: str
    since: str
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
    """The first screen. ``left_out`` counts the answers, models, stacks and looks without room.

    ``unseen`` says what of the runs and of a history isn't in it, so that nothing is called fine
    that wasn't seen; ``has_losses`` is whether changes were looked for.
    """

    counts: Mapping[str, int]
    hosts: int
    newest: str
    answers: Sequence[Answer]
    looks: Sequence[Look]
    columns: Sequence[Column]
    rows: Sequence[Row]
    left_out: Mapping[str, int]
    unseen: Sequence[str]
    has_losses: bool


def make_overview(
    evaluated: Iterable[Evaluated], bench: Bench, unfinished: Sequence[Unfinished] = ()
) -> Overview:
    """Return the first screen of what was evaluated, and of runs that are not whole."""
    evaluated = list(evaluated)
    newest = newest_of(evaluated)
    known = bench.losses({each.model for each in newest})
    losses, lack = known or Losses()
    began = {number: loss.change.started for loss in losses for number in loss.ids}
    cells: dict[tuple[str, str, str], list[Evaluated]] = defaultdict(list)
    for each in newest:
        cells[each.model, each.stack, each.framework].append(each)
    models = _worst_first(newest)
    columns = _columns(newest)
    shown_models = models[:_MOST_MODELS]
    shown_columns = columns[:_MOST_STACKS]
    followed = {}
    for model, column in product(shown_models, shown_columns):
        place = (model, column.name, column.framework)
        if place in cells:
            followed[place] = _followed(cells[place])
    bad = _bad_groups(newest)
    firsts = [group[0] for group in bad[:MOST_LOOKS]]
    series = dict(bench.series([*followed.values(), *firsts]))

    rows = []
    for model in shown_models:
        made: list[Cell | None] = []
        for column in shown_columns:
            place = (model, column.name, column.framework)
            cell = None
            if place in followed:
                cell = _cell(cells[place], series.get(followed[place].key), began, bench)
            made.append(cell)
        rows.append(Row(model, made))

    for first in firsts:  # an upgrade has no series: it is shown with that of its stack
        stands_for = followed.get((first.model, first.stack, first.framework), first)
        if first.key not in series and stands_for.key in series:
            series[first.key] = series[stands_for.key]
    of_items = _looks_at_items(bad, series, losses, bench)
    looks = [*_looks_at_losses(losses, newest, bench), *of_items]
    looks.sort(key=lambda look: _LOOKS.index(look.verdict))
    answers = answers_of(evaluated, Losses(losses, lack), unfinished)
    verdicts = Counter(each.verdict for each in newest)
    return Overview(
        counts={verdict: verdicts[verdict] for verdict in _ORDER if verdicts[verdict]},
        hosts=len({each.host for each in newest if each.host}),
        newest=max((each.time for each in newest), default=""),
        answers=answers[:_MOST_ANSWERS],
        looks=looks[:MOST_LOOKS],
        columns=shown_columns,
        rows=rows,
        left_out={
            "answers": max(len(answers) - _MOST_ANSWERS, 0),
            "models": len(models) - len(shown_models),
            "stacks": len(columns) - len(shown_columns),
            "looks": len(bad) + len(losses) - min(len(looks), MOST_LOOKS),
        },
        unseen=[*filter(None, [lack]), *_after_all(newest, unfinished), *_two_newest(newest)],
        has_losses=known is not None,
    )


def _worst_first(newest: Iterable[Evaluated]) -> list[str]:
    """Return the models, those with the worst verdict first, and then by name."""
    worst: dict[str, int] = {}
    for each in newest:
        worst[each.model] = min(worst.get(each.model, len(_ORDER)), _ORDER.get(each.verdict, 0))
    return sorted(worst, key=lambda model: (worst[model], model))


def _after_all(newest: Sequence[Evaluated], unfinished: Sequence[Unfinished]) -> Sequence[str]:
    """Return a text of the runs that are not whole and began after the first of these items."""
    first = min((each.time for each in newest), default="")
    cut = [each.run for each in unfinished if each.started >= first]
    why = "(going on, cut off, or with lines that can't be read)"
    if len(cut) > 1:
        return [f"{len(cut)} runs are not whole {why}, the last of them {cut[0]}"]
    return [f"the run {cut[0]} is not whole {why}"] if cut else []


def _two_newest(newest: Sequence[Evaluated]) -> Sequence[str]:
    """Return a text of the cases with two newest results, whose verdicts differ."""
    verdicts: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for each in newest:
        place = (each.model, each.stack, each.framework, each.nodeid, each.machine)
        verdicts[place].add(each.verdict)
    count = sum(len(of_place) > 1 for of_place in verdicts.values())
    cases = "1 case has" if count == 1 else f"{count} cases have"
    why = (
        "by its time and by when it was read, and both count: a clock was wrong, or a run came late"
    )
    return [f"{cases} another newest result {why}"] if count else []


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
        if each.verdict in BAD_VERDICTS:
            groups[each.verdict, each.kind, each.model, each.stack, each.framework].append(each)
    ordered = sorted(groups, key=lambda key: (_LOOKS.index(key[0]), *key[1:]))
    return [groups[key] for key in ordered]


def _cell(
    items: Sequence[Evaluated], series: SeriesView | None, began: Mapping[int, str], bench: Bench
) -> Cell:
    """Return a cell; ``began`` has the dates of the history's changes for the worse."""
    worst = min(items, key=lambda each: (_ORDER.get(each.verdict, 0), each.case))
    upgrades = [each for each in items if each.kind == "upgrade"]
    headline = ""
    if series is None and (item := bench.item(_followed(items))):
        headline = item.headline
    change = series.drift_text if series else ""
    against = "to the median of the runs before" if change else ""
    since = ""
    lost = series.last_change if series else None
    if lost is not None and lost.is_loss:
        change = signed(lost.ratio)
        against = lost.status
        since = began.get(lost.id, lost.started)
    if upgrades:
        upgrade = min(upgrades, key=lambda each: (_ORDER.get(each.verdict, 0), each.case))
        of_upgrade = _upgrade_text(bench.item(upgrade))
        if of_upgrade:
            change, since = of_upgrade, ""
            against = f"to {upgrade.baseline or 'the baseline'}"
    return Cell(
        verdict=worst.verdict,
        link=worst.link,
        time=max(each.time for each in items),
        value=series.last_text.partition(" (")[0] if series else headline,
        change=change,
        against=against,
        since=since,
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
    losses: Sequence[Loss],
    bench: Bench,
) -> Iterator[Look]:
    """Yield the first item of each group that makes a run fail.

    An upgrade that shows a change of the history began with it.
    """
    for group in bad[:MOST_LOOKS]:
        each = group[0]
        item = bench.item(each)
        change, values = _figures_of(item) if item else ("", "")
        cause = f"{each.framework} {each.version}".strip()
        if each.baseline and each.baseline != each.version:
            cause = f"{each.framework} {each.baseline} → {each.version}"
        others = f"{len(group) - 1} more of its cases" if len(group) > 1 else ""
        kind = "" if each.kind == "upgrade" else each.kind
        shown = [loss.change.started for loss in losses if _shows(each, loss)]
        yield Look(
            verdict=each.verdict,
            title=item.title if item else each.model,
            link=each.link,
            change=change,
            values=values,
            cause=", ".join(part for part in (kind, cause, each.host, others) if part),
            since=min(shown, default="") or bench.since(each),
            state="" if kind else "measured in turns by the gate",
            gate="",
            picture=sparkline(series[each.key]) if each.key in series else Markup(),
        )


def _figures_of(item: ItemView) -> tuple[str, str]:
    """Return what was measured and what it should have been, or the message of an error."""
    for finding in findings_of(item):
        bound = "; ".join(part for part in (finding.distance, finding.bound) if part)
        return f"{finding.quantity} {finding.measured}", bound
    return shortened(item.explanation.partition("\n")[0], _LONGEST), ""


def _looks_at_losses(
    losses: Sequence[Loss], newest: Sequence[Evaluated], bench: Bench
) -> Iterator[Look]:
    """Yield the first of the changes, with what moved at their places."""
    for loss in losses[:MOST_LOOKS]:
        change, moved, others = loss.change, loss.moved, loss.others
        more = f"; {others} more series of it changed, too" if others else ""
        is_confirmed = change.status == "confirmed"
        yield Look(
            verdict="REGRESSED" if is_confirmed else "CHANGED",
            title=f"{change.model}: {quantity_label(change.quantity)}, {change.case}",
            link=f"/series/{change.series}" if bench.has_pages else "",
            change=change.text,
            values=change.levels,
            cause=f"{moved or 'nothing that was recorded moved with it'}{more}",
            since=change.started,
            state="confirmed by the gate" if is_confirmed else _unconfirmed(loss, newest),
            gate=change.confirmed_by or "" if bench.has_pages else "",
            picture=sparkline(loss.series) if loss.series else Markup(),
        )


def _unconfirmed(loss: Loss, newest: Sequence[Evaluated]) -> str:
    """Return that a change is not confirmed, but with the upgrade that shows it all the same."""
    for each in newest:
        if _shows(each, loss):
            return f"not confirmed by itself; an upgrade to {each.version} {each.verdict}"
    return "not confirmed by the gate"


def _shows(each: Evaluated, loss: Loss) -> bool:
    """Return whether an item is an upgrade that got worse, to what a change came with."""
    is_worse = each.kind == "upgrade" and each.verdict in WORSE_VERDICTS
    software = (canonicalize_name(each.framework), each.version)
    return is_worse and each.model == loss.change.model and software in (loss.came or ())
