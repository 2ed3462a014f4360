"""The report of runs: one HTML file without scripts and without anything from elsewhere.

Its size is bounded: the worst items get their pictures first. Where the bound is reached, the rest
has no pictures, then only a row each, and the report says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from markupsafe import Markup

from pytest_mlms.charts.curves import curves_chart
from pytest_mlms.errors import MlmsError
from pytest_mlms.files import write_atomically
from pytest_mlms.html.pages import environment
from pytest_mlms.html.section import Figure
from pytest_mlms.html.sections import SECTIONS, sections_of
from pytest_mlms.records import Verdict
from pytest_mlms.views.compare import CompareView, compare_runs
from pytest_mlms.views.curves import curves_of
from pytest_mlms.views.findings import findings_of
from pytest_mlms.views.item import ItemView
from pytest_mlms.views.numbers import quantity_label
from pytest_mlms.views.run import RunView

__all__ = ["MOST_BYTES", "HistoryFigures", "render_report", "write_report"]

MOST_BYTES = 2_000_000
"""The size of a report in bytes; only rows of items beyond some thousand make it larger."""

_FRAME_BYTES = 60_000  # the style sheet, the header, and comparisons
_MOST_CURVES = 24  # pictures over batch sizes
_MOST_COMPARED = 200  # rows of a comparison with another run
_OPEN = (Verdict.INCONCLUSIVE,)

HistoryFigures = Sequence[Figure]
"""Pictures of series over time."""


@dataclass
class _Budget:
    """Bytes that are left for more than a row of each item, and how many items have less than all.

    ``has_figures`` is set until the pictures of an item don't fit: making them takes most time.
    """

    left: int
    has_figures: bool = True
    without_figures: int = 0
    without_tables: int = 0

    def takes(self, text: str, row: str) -> bool:
        """Take the bytes of a text that replaces the row of its item, if they are left."""
        size = _bytes_of(text) - _bytes_of(row)
        if size > self.left:
            return False
        self.left -= size
        return True


def write_report(
    path: Path,
    runs: Sequence[RunView],
    baseline: RunView | None = None,
    history: HistoryFigures = (),
) -> None:
    """Write the report of runs to a file, whole or not at all.

    Raises MlmsError where it can't be written.
    """
    text = render_report(runs, baseline, history)
    try:
        write_atomically(path, text)
    except OSError as error:
        raise MlmsError(f"{path}: the report can't be written: {error.strerror}") from error


def render_report(
    runs: Sequence[RunView],
    baseline: RunView | None = None,
    history: HistoryFigures = (),
) -> str:
    """Return the report of runs as HTML.

    ``baseline`` is a run that each of them is compared with, ``history`` pictures over time.
    """
    items = sorted((item for run in runs for item in run.items), key=lambda item: item.badness)
    curves = _curves(items)
    names_runs = len(runs) > 1
    rows = [_item_html(item, names_runs, "row") for item in items]
    taken = _FRAME_BYTES + _size([*curves, *history]) + sum(map(_bytes_of, rows))
    budget = _Budget(MOST_BYTES - taken)
    shown = []
    for item, row in zip(items, rows, strict=True):
        shown.append(_detailed(item, row, budget, names_runs))
    template = environment().get_template("report.html")
    return template.render(
        runs=runs,
        counts=_counts(items),
        bad=_only(items, shown, bad=True),
        rest=_only(items, shown, bad=False),
        curves=curves,
        comparisons=_comparisons(runs, baseline),
        most_compared=_MOST_COMPARED,
        history=history,
        budget=budget,
        most_bytes=MOST_BYTES,
    )


def _size(figures: Iterable[Figure]) -> int:
    """Return the bytes of pictures with their captions."""
    return sum(_bytes_of(f"{figure.svg}{figure.caption}") for figure in figures)


def _bytes_of(text: str) -> int:
    return len(text.encode())


def _detailed(item: ItemView, row: Markup, budget: _Budget, names_run: bool) -> Markup:
    """Return the HTML of an item with as much of it as the budget allows, at least its row."""
    if budget.has_figures and budget.left > 0:
        sections = list(sections_of(item))
        whole = _item_html(item, names_run, "whole", sections)
        if budget.takes(whole, row):
            return whole
        budget.has_figures = False
    budget.without_figures += item.kind in SECTIONS
    plain = _item_html(item, names_run, "whole")
    if budget.takes(plain, row):
        return plain
    budget.without_tables += 1
    return row


def _item_html(
    item: ItemView,
    names_run: bool,
    extent: Literal["whole", "row"],
    sections: Sequence[tuple[str, Markup]] = (),
) -> Markup:
    """Return the HTML of an item, of which a row says the least: verdict, numbers and command."""
    template = environment().get_template("_item.html")
    text = template.render(
        item=item,
        run=item.run if names_run else "",
        findings=findings_of(item),
        sections=sections,
        is_open=_is_shown_open(item),
        details=extent == "whole",
    )
    return Markup(text)


def _is_shown_open(item: ItemView) -> bool:
    return item.is_bad or item.verdict in _OPEN


def _only(items: Sequence[ItemView], shown: Sequence[Markup], bad: bool) -> Sequence[Markup]:
    """Return the HTML of the items that are shown open, or of all others."""
    pairs = zip(items, shown, strict=True)
    return [html for item, html in pairs if _is_shown_open(item) == bad]


def _counts(items: Iterable[ItemView]) -> dict[str, int]:
    """Return the number of items by verdict, worst first."""
    counts = dict.fromkeys((verdict.value for verdict in Verdict), 0)
    for item in items:
        counts[item.verdict.value] += 1
    return {verdict: count for verdict, count in counts.items() if count}


def _curves(items: Sequence[ItemView]) -> Sequence[Figure]:
    """Return pictures over batch sizes, stacks side by side, of the first models."""
    figures = []
    for curves in curves_of(items)[:_MOST_CURVES]:
        label = quantity_label(curves.quantity)
        case = f"{curves.model} on {curves.device}, {curves.scenario}"
        figures.append(Figure(f"{case}: {label} by batch size", curves_chart(curves)))
    return figures


def _comparisons(runs: Iterable[RunView], baseline: RunView | None) -> Sequence[CompareView]:
    return [compare_runs(baseline, run) for run in runs] if baseline is not None else []
