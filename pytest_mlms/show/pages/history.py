"""Pictures of the series that the items of runs belong to, the worst items first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_mlms.show.pages.canvas import Figure
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.numbers import quantity_label
from pytest_mlms.show.pages.run import RunView
from pytest_mlms.show.pages.series import SeriesView, read_series, series_of_items
from pytest_mlms.show.pages.series_chart import series_chart

_MOST = 24  # pictures
_SERIES_OF_ITEM = 2  # of an item that passed; all limits of one that did not


def history_figures(address: str, runs: Sequence[RunView]) -> Sequence[Figure]:
    """Return a picture for each series of the worst items; raises HistoryError."""
    from pytest_mlms.keep.history.store import open_to_read

    history = open_to_read(address)
    items = sorted((item for run in runs for item in run.items), key=lambda item: item.badness)
    known = series_of_items(history, items)
    wanted: list[int] = []
    for item in items:
        wanted += known[item.anchor][: _count(item)]
    chosen = list(dict.fromkeys(wanted))[:_MOST]
    return list(_figures(read_series(history, chosen)))


def _count(item: ItemView) -> int:
    return max(_SERIES_OF_ITEM, len(item.limits)) if item.is_bad else _SERIES_OF_ITEM


def _figures(all_series: Sequence[SeriesView]) -> Iterator[Figure]:
    for series in all_series:
        chart = series_chart(series)
        if chart is None:
            continue
        caption = f"{series.model} {series.case}: {quantity_label(series.quantity)}"
        caption += f", on {series.machine}"
        for change in series.changes:
            caption += f"; {change.text} since {change.started[:10]}"
            point = next(point for point in series.points if point.run == change.first_run)
            if point.software:
                caption += f", with {point.software}"
        yield Figure(caption, chart)
