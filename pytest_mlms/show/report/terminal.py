"""Tables of results at the end of a run, and the run in one line."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import pytest

from pytest_mlms.core.records import Verdict, main_comparison
from pytest_mlms.core.text import columns_of
from pytest_mlms.decide.upgrade.labels import (
    deciding,
    percent,
    point_label,
    short_changes,
    told_forms,
    widened_forms,
)
from pytest_mlms.provide.stacks.exact_packages import told_differences
from pytest_mlms.provide.stacks.labels import label_of
from pytest_mlms.show.pages.item import ItemView, findings_of
from pytest_mlms.show.pages.numbers import NONE, quantity_label, verdict_words
from pytest_mlms.show.report.columns import (
    NO_LIMIT,
    OWN_TITLE,
    TABLES,
    Cell,
    Table,
    own_columns,
    verdict_in,
)
from pytest_mlms.show.report.reasons import by_reason, forms_of, reasons_of
from pytest_mlms.show.report.table import RIGHT_FIRST, fit_table

_GATED_BY_LIMITS = ("accuracy", "performance", "agreement", "soak")


def summary_line(results: Iterable[ItemView]) -> str:
    """Return the summary of a run; of an item that ran more than once the last result counts."""
    items = {result.nodeid: result for result in results}.values()
    models = {(item.manifest.path, item.manifest.name) for item in items}
    measured = sum(map(is_measured, items))
    counts = count_verdicts(items)
    ungated = len([item for item in items if not is_gated(item)])
    noun = "model" if len(models) == 1 else "models"
    tail = f"{measured:,} measured, {ungated:,} not gated"
    return f"mlms: {len(models):,} {noun}: {counts}; {tail}"


def is_measured(item: ItemView) -> bool:
    """Return whether an item measured anything."""
    return bool(item.estimates or item.comparisons or item.quantities or item.trace)


def is_gated(item: ItemView) -> bool:
    """Return False for an item whose measurements nothing judges.

    A trace judges nothing, and is not expected to. An item of one of two hosts is judged by their
    comparison, and a user's test judges its own quantities.
    """
    if item.kind not in _GATED_BY_LIMITS or not item.estimates:
        return True
    return bool(item.limits) or label_of(item.stack.name) is not None


def count_verdicts(items: Iterable[ItemView]) -> str:
    """Return how many items have each verdict, the worst first; "" without items."""
    counts = Counter(item.verdict for item in items)
    parts = []
    for verdict in Verdict:  # worst first
        if counts[verdict]:
            parts.append(f"{counts[verdict]:,} {verdict_words(verdict)}")
    return ", ".join(parts)


Items = Sequence[ItemView]

ORIGINALS_TITLE = "mlms: decided about original manifests"

_MOST_ROWS = 100
_SHOWN_SKIPPED = 5
_VERDICTS = [*[verdict.value for verdict in Verdict], NO_LIMIT]  # worst first
_DECIDED_AGAINST = (Verdict.FAILED, Verdict.INCONCLUSIVE)
_WITHOUT_RESULT = (Verdict.ERROR, Verdict.INVALID, Verdict.FAILED)
_MARKUP: dict[str, dict[str, bool]] = {
    "ERROR": {"red": True},
    "INVALID": {"red": True},
    "FAILED": {"red": True},
    "REGRESSED": {"red": True},
    "INCONCLUSIVE": {"yellow": True},
    "IMPROVED": {"green": True},
}


def write_tables(terminal: pytest.TerminalReporter, items: Items) -> None:
    """Write a table for each kind of item, and what else the user should know of the results.

    The worst items come first. Rows beyond ``_MOST_ROWS`` are counted, not shown.
    """
    writer = _TableWriter(terminal, terminal._tw.fullwidth)
    ordered = sorted(items, key=lambda item: item.badness)
    for table in TABLES:
        writer.write(table, [item for item in items if _belongs_to(item, table)])
    writer.write_own([item for item in ordered if item.quantities])
    writer.write_traces([item for item in ordered if item.trace is not None])
    writer.write_dropped()
    for item in ordered:
        doubts = _doubts_of(item)
        if doubts:
            writer.write_note(f"{doubts}: {item.nodeid}", yellow=True)
        for line in item.group_texts if item.input_groups else ():
            writer.write_note(f"{line}: {item.nodeid}")
        for note in item.unread_notes:
            writer.write_note(f"{note}: {item.nodeid}", yellow=True)
    writer.write_originals(items)
    for line in _skipped_lines(items):
        terminal.write_line(line, yellow=True)
    failed = [item for item in ordered if item.verdict in _WITHOUT_RESULT]
    writer.write_unmeasured([item for item in failed if not is_measured(item)])


def _belongs_to(item: ItemView, table: Table) -> bool:
    if item.kind != table.kind or not (item.estimates or item.comparisons):
        return False
    if item.estimates and table.quantities and table.quantities.isdisjoint(item.estimates):
        return False
    if table.same_stack_only:
        against = item.against
        return against is not None and against.name == item.stack.name and not against.variant
    return True


def _doubts_of(item: ItemView) -> str:
    """Return what a person should know of the processes of an item, "" where there is nothing.

    It doesn't matter to an item that ended early: its limits are far beyond what may change.
    """
    if item.ended == "early":
        return ""
    if item.doubts or all(process.steady for process in item.processes):
        return item.doubts
    return "warm-up did not reach a steady state"


def _skipped_lines(items: Items) -> list[str]:
    """Return a line for each dataset of which corrupt elements were left out."""
    lines = {}
    for item in items:
        skipped = item.skipped_elements
        if skipped and item.dataset is not None:
            count = "1 corrupt element" if len(skipped) == 1 else f"{len(skipped)} corrupt elements"
            shown = [each.element for each in skipped[:_SHOWN_SKIPPED]]
            if len(skipped) > len(shown):
                shown.append("…")
            model = item.manifest.name
            text = f"{model}: {count} of {item.dataset.name} left out: {', '.join(shown)}"
            lines[model] = text
    return list(lines.values())


class _TableWriter:
    """Writes tables to a terminal of ``width`` columns."""

    def __init__(self, terminal: pytest.TerminalReporter, width: int) -> None:
        self._terminal = terminal
        self._width = width
        self._dropped: dict[str, None] = {}

    def write(self, table: Table, items: Items) -> None:
        """Write a table under its title, upgrades in a part for each pair of stacks.

        The long names of these are then written once.
        """
        if not items:
            return
        verdict_of = partial(verdict_in, table)
        ordered = sorted(
            items, key=lambda item: (_VERDICTS.index(verdict_of(item)), item.badness[1])
        )
        self._terminal.write_sep("-", f"mlms: {table.title}, worst first")
        by_sides: dict[str, list[ItemView]] = {}
        for item in ordered:
            by_sides.setdefault(item.sides if item.comparisons else "", []).append(item)
        for sides, alike in by_sides.items():
            if sides:
                self._terminal.write_line(sides)
            for part in _by_columns(table, alike):
                self._write_rows(part, _filled(table, part), verdict_of, table)

    def write_own(self, items: Items) -> None:
        """Write what users' own tests measured."""
        if items:
            self._terminal.write_sep("-", OWN_TITLE)
            self._write_rows(items, own_columns(items), left=4)

    def write_traces(self, items: Items) -> None:
        """Write where the time went, what tracing added to it, and what could not be seen."""
        if not items:
            return
        from pytest_mlms.show.report.traces import (
            OVERHEAD_TITLE,
            TIME_TITLE,
            note_lines,
            overhead_columns,
            time_columns,
        )

        for title, columns in (
            (TIME_TITLE, time_columns(items)),
            (OVERHEAD_TITLE, overhead_columns(items)),
        ):
            if columns:
                self._terminal.write_sep("-", title)
                self._write_rows(items, columns)
        for line in note_lines(items):
            self._terminal.write_line(line, yellow=True)

    def write_originals(self, items: Items) -> None:
        """Write what was decided about original manifests, and which other versions ran."""
        lines = list(original_lines(items))
        if not lines:
            return
        self._terminal.write_sep("-", ORIGINALS_TITLE)
        for line in lines[:_MOST_ROWS]:
            self._terminal.write_line(line)
        more = len(lines) - _MOST_ROWS
        if more > 0:
            self._terminal.write_line(f"… and {more:,} more; results.jsonl has them all")

    def write_unmeasured(self, items: Items) -> None:
        """Write a line for each item that failed before it measured anything."""
        if not items:
            return
        self._terminal.write_sep("-", "mlms: without a result")
        groups = by_reason(items)
        for first, *others in groups[:_MOST_ROWS]:
            line = f"{first.verdict.value}  {first.nodeid}"
            if others:
                line += f", and {len(others):,} more for the same reason"
            self._terminal.write_line(line, red=True)
        rest = sum(map(len, groups[_MOST_ROWS:]))
        self._write_rest(_MOST_ROWS + rest)

    def write_dropped(self) -> None:
        """Write which columns had no room."""
        if self._dropped:
            names = ", ".join(self._dropped)
            self.write_note(
                f"mlms: no room in {self._width} columns for {names}; results.jsonl has them"
            )

    def write_note(self, text: str, **markup: bool) -> None:
        """Write a text between whose words a narrow terminal has new lines."""
        for line in textwrap.wrap(
            text,
            self._width,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        ):
            self._terminal.write_line(line, **markup)

    def _write_rows(
        self,
        items: Items,
        columns: Mapping[str, Cell],
        verdict_of: Cell = lambda item: item.verdict.value,
        table: Table | None = None,
        left: int = 3,
    ) -> None:
        """Write a row for each item, whose first ``left`` cells are text."""
        shown = items[:_MOST_ROWS]
        header = ["verdict", "model", "case", *columns]
        rows = [_row(item, [verdict_of, *columns.values()]) for item in shown]
        order = table.order if table else RIGHT_FIRST
        fitting = fit_table(header, rows, self._width, left, order)
        self._dropped.update(dict.fromkeys(fitting.dropped))
        for prefix in fitting.prefixes:
            self._terminal.write_line(prefix)
        self._terminal.write_line(fitting.header, bold=True)
        for number, (item, row) in enumerate(zip(shown, fitting.rows, strict=True)):
            markup = _MARKUP.get(verdict_of(item), {})
            self._terminal.write_line(row, **markup)
            if fitting.below:
                self._terminal.write_line(f"  {fitting.below[number]}", **markup)
            below = _below(item, table, fitting.dropped) if table else []
            for forms in below:
                for line in _indented(forms, self._width):
                    self._terminal.write_line(line, **markup)
        self._write_rest(len(items))

    def _write_rest(self, count: int) -> None:
        if count > _MOST_ROWS:
            rest = f"{count - _MOST_ROWS:,} that did no worse"
            line = f"… and {rest}; results.jsonl has them all"
            self._terminal.write_line(line)


def _filled(table: Table, items: Items) -> Mapping[str, Cell]:
    """Return the columns of a table, less those that none of the items has and may lack."""
    filled = {}
    for title, cell in table.columns.items():
        if title not in table.if_any or any(cell(item) != NONE for item in items):
            filled[title] = cell
    return filled


def _by_columns(table: Table, items: Items) -> list[list[ItemView]]:
    """Group items by the columns that they have, or a part of which they have.

    Tasks that share a table have columns of their own.
    """
    parts: list[tuple[set[str], list[ItemView]]] = []
    for item in items:
        titles = set(_filled(table, [item]))
        for known, part in parts:
            if known <= titles or titles <= known:
                known.update(titles)
                part.append(item)
                break
        else:
            parts.append((titles, [item]))
    return [part for _, part in parts]


def _row(item: ItemView, cells: Iterable[Cell]) -> list[str]:
    case = item.case
    if item.comparisons:
        case = point_label(item.device, item.batch_size, item.scenario, item.shape)
    if item.repetition > 1:
        case = f"{case} #{item.repetition}"
    verdict, *shown = (cell(item) for cell in cells)
    return [verdict, item.manifest.name, case, *shown]


def _below(item: ItemView, table: Table, dropped: Sequence[str]) -> list[Sequence[str]]:
    """Return what stands below an item's row, each the longest form first: what decided it."""
    if table.same_stack_only:
        return []  # the table of upgrades, above, has it
    if item.comparisons:
        return [*_decided_by(item, "tolerance" in dropped), *_told_of(item)]
    if item.verdict is Verdict.INVALID:
        return [reasons_of(item)]
    lines: list[Sequence[str]] = []
    judged = set(map(quantity_label, table.quantities))
    for finding in findings_of(item):
        if finding.quantity in judged and finding.verdict in _DECIDED_AGAINST:
            lines.append(forms_of(finding))
    return lines


def _indented(forms: Sequence[str], width: int) -> list[str]:
    """Return the longest form that a line has room for, else the lines of the shortest."""
    for form in forms:
        if columns_of(form) + 2 <= width:
            return [f"  {form}"]
    return textwrap.wrap(forms[-1], max(width, 20), initial_indent="  ", subsequent_indent="    ")


def _decided_by(item: ItemView, lacks_tolerance: bool) -> list[Sequence[str]]:
    """Return the quantities that decided an upgrade beside the one whose figures its row has.

    Of that one, why its tolerance isn't the default, or the tolerance where the row has none.
    """
    main = main_comparison(item.comparisons)
    found: list[Sequence[str]] = []
    place = item.terms.places.get(main.quantity) if main and item.terms else None
    if main is not None and widened_forms(main):
        found.append(widened_forms(main))
    elif main is not None and place:
        found.append([f"tolerance {percent(main.tolerance)}: {place}"])
    decided = deciding(item.verdict, item.comparisons)
    if decided and (decided[0] is not main or (lacks_tolerance and not found)):
        found.append(short_changes(decided[0]))
    others = decided[1:]
    if others:
        found.append([f"also {', '.join(short_changes(one)[-1] for one in others)}"])
    return found


def _told_of(item: ItemView) -> list[Sequence[str]]:
    """Return how far outputs agree, what is worse although it passed, and which packages differ."""
    found: list[Sequence[str]] = []
    for one in item.comparisons:
        if one.quantity == "agreement" and one.verdict is not Verdict.REGRESSED and one.told:
            found.append([one.told])
    found += told_forms(item.comparisons)
    if item.changed_packages:
        found.append([f"packages: {told_differences(item.changed_packages)}"])
    return found


def original_lines(items: Sequence[ItemView]) -> Iterator[str]:
    """Yield each decision and warning with the first line that it is about.

    Other versions of frameworks than asked for come first, then the most frequent texts.
    """
    versions = _Places()
    remarks = _Places()
    for item in items:
        if item.other_version:
            versions[item.other_version][item.manifest.path] = None
        if item.original is None:
            continue
        for warning in item.original.warnings:
            remarks[f"warning: {warning.text}"][warning.place] = None
        for decision in item.original.decisions:
            remarks[decision.text][decision.place] = None
    yield from versions.lines()
    yield from remarks.lines(most_frequent_first=True)


class _Places(defaultdict[str, dict[str, None]]):
    """The places that each text is about, each once, in order."""

    def __init__(self) -> None:
        super().__init__(dict)

    def lines(self, most_frequent_first: bool = False) -> Iterator[str]:
        """Yield a line for each text, with the first of its places and the number of the others."""
        texts = list(self)
        if most_frequent_first:
            texts.sort(key=lambda text: len(self[text]), reverse=True)
        for text in texts:
            first, *others = self[text]
            more = f" and {len(others):,} more" if others else ""
            yield f"{first}{more}: {text}"
