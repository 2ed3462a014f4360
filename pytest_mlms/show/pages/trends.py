"""Trends and losses of a history, as overviews show them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeVar

from sqlalchemy import Engine

from pytest_mlms.keep.history.change_groups import came_near
from pytest_mlms.keep.history.changes import Change, newest_changes
from pytest_mlms.keep.history.queries import series_ids
from pytest_mlms.show.pages.evaluated import Loss, Losses
from pytest_mlms.show.pages.item import HEADLINES
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


def read_losses(history: Engine, models: Collection[str], most_shown: int) -> Losses:
    """Return the changes for the worse of these models that are open or confirmed.

    Of those of a model on a stack that began at one run it is one. Confirmed ones come first. Only
    the first ones, which are shown, have their series.
    """
    groups: dict[_Origin, list[ChangeView]] = defaultdict(list)
    with history.connect() as connection:
        found, total = newest_changes(connection, _MOST_CHANGES, statuses=("confirmed", "open"))
        for change in found:
            view = change_view(change)
            if view.is_loss and view.model in models:
                groups[_Origin(view.model, _stack_of(change), view.first_run)].append(view)
        largest = [(max(views, key=_weight), origin) for origin, views in groups.items()]
        largest.sort(key=lambda each: _weight(each[0]), reverse=True)
        asked = [view for view, _ in largest[:_MOST_MOVED]]
        moved = {view.id: moved_with(connection, view) for view in asked}
        came = {view.id: came_near(connection, view.series, view.started) for view in asked}
    shown = [view.series for view, _ in largest[:most_shown]]
    series = {each.id: each for each in read_series(history, shown, MOST_RUNS)}
    losses = [
        Loss(
            change=view,
            others=len(groups[origin]) - 1,
            moved=moved.get(view.id),
            series=series.get(view.series),
            stack=origin.stack,
            came=came.get(view.id),
        )
        for view, origin in largest
    ]
    return Losses(losses, "" if total <= _MOST_CHANGES else "there are too many changes to read")


class _Origin(NamedTuple):
    """The first run of changes of a model on a stack that began together."""

    model: str
    stack: str
    first_run: str


def _stack_of(change: Change) -> str:
    """Return the name of a change's stack for people, as items have it."""
    name = str(change.parts.get("stack", ""))
    return str(change.parts.get("framework", "")) if name == "here" else name


def _weight(change: ChangeView) -> tuple[bool, bool, float]:
    """Return what comes first: a confirmed change, one of what users see first, a large one."""
    size = max(change.ratio, 1 / change.ratio) if change.ratio > 0 else 0.0
    return change.status == "confirmed", change.quantity in HEADLINES, size
