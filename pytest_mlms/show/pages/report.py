"""The report of runs: one HTML file without scripts and without anything from elsewhere.

Its size is bounded: where not all fits, the items that passed have no pictures, then no item has
them but the worst, then the rest are only rows, and the report says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import write_atomically
from pytest_mlms.core.records import Verdict
from pytest_mlms.show.pages.canvas import Figure
from pytest_mlms.show.pages.compare import CompareView, compare_runs
from pytest_mlms.show.pages.curves import curves_of
from pytest_mlms.show.pages.curves_chart import curves_chart
from pytest_mlms.show.pages.html import environment
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.items import Appearance, bytes_of, render_items
from pytest_mlms.show.pages.numbers import quantity_label
from pytest_mlms.show.pages.run import RunView

MOST_BYTES = 2_000_000
"""The size of a report in bytes; only rows of items beyond some thousand make it larger."""

_FRAME_BYTES = 60_000  # the style sheet, the header, and comparisons
_MOST_CURVES = 24  # pictures over batch sizes
_MOST_COMPARED = 200  # rows of a comparison with another run
_FEW = 4  # items, of which none is folded

HistoryFigures = Sequence[Figure]
"""Pictures of series over time."""


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
    figures = [*curves, *history]
    places = {(item.software, item.machine.text) for item in items}
    appearance = Appearance(len(runs) > 1, folds=len(items) > _FEW, places_differ=len(places) > 1)
    rendered = render_items(items, appearance, MOST_BYTES - _FRAME_BYTES - _size(figures))
    template = environment().get_template("report.html")
    return template.render(
        runs=runs,
        counts=_counts(items),
        items=rendered,
        curves=curves,
        comparisons=_comparisons(runs, baseline),
        most_compared=_MOST_COMPARED,
        history=history,
        most_bytes=MOST_BYTES,
    )


def _size(figures: Iterable[Figure]) -> int:
    """Return the bytes of pictures with their captions."""
    return sum(bytes_of(f"{figure.svg}{figure.caption}") for figure in figures)


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
