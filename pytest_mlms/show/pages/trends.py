"""Trends and losses of a history, as overviews show them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TypeVar

from sqlalchemy import Engine

from pytest_mlms.keep.history.changes import newest_changes
from pytest_mlms.keep.history.queries import series_ids
from pytest_mlms.show.pages.item import HEADLINES
from pytest_mlms.show.pages.overview import MOST_LOOKS, Loss, Losses
from pytest_mlms.show.pages.series import (
    ChangeView,
    SeriesView,
    change_view,
    moved_with,
    read_series,
)
from pytest_mlms.show.pages.sparkline import MOST_RUNS

K = TypeVar("K")

_MOST_CHANGES = 500  # open or confirmed ones that are read
_MOST_MOVED = 60  # of whose losses it is asked what moved with them


def main_series(history: Engine, quantities: Mapping[K, Mapping[str, str]]) -> dict[K, SeriesView]:
    """Return the series that says most of each item that has one, with its newest runs.

    ``quantities`` has the quantity of each of an item's points by the key of its series.
    """
    main: dict[K, str] = {}
    for item, names in quantities.items():
        by_quantity = {quantity: key for key, quantity in names.items()}
        for quantity in (*HEADLINES, *by_quantity):
            if quantity in by_quantity:
                main[item] = by_quantity[quantity]
                break
    with history.connect() as connection:
        ids = series_ids(connection, main.values())
    views = {view.id: view for view in read_series(history, set(ids.values()), MOST_RUNS)}
    return {item: views[ids[key]] for item, key in main.items() if key in ids}


def read_losses(history: Engine, models: Collection[str]) -> Losses:
    """Return the changes for the worse of these models that are open or confirmed.

    Of those of a model that began at one run it is one. Confirmed ones come first.
    """
    groups: dict[tuple[str, str], list[ChangeView]] = defaultdict(list)
    with history.connect() as connection:
        found, total = newest_changes(connection, _MOST_CHANGES, statuses=("confirmed", "open"))
        for change in map(change_view, found):
            if change.is_loss and change.model in models:
                groups[change.model, change.first_run].append(change)
        largest = [max(changes, key=_weight) for changes in groups.values()]
        largest.sort(key=_weight, reverse=True)
        moved = [moved_with(connection, change) for change in largest[:_MOST_MOVED]]
    shown = [change.series for change in largest[:MOST_LOOKS]]
    views = {view.id: view for view in read_series(history, shown, MOST_RUNS)}
    losses = []
    for place, change in enumerate(largest):
        others = len(groups[change.model, change.first_run]) - 1
        differs = moved[place] if place < _MOST_MOVED else None
        losses.append(Loss(change, others, differs, views.get(change.series)))
    return Losses(losses, total <= _MOST_CHANGES)


def _weight(change: ChangeView) -> tuple[bool, bool, float]:
    """Return what comes first: a confirmed change, one of what users see first, a large one."""
    size = max(change.ratio, 1 / change.ratio) if change.ratio > 0 else 0.0
    return change.status == "confirmed", change.quantity in HEADLINES, size
