"""Trends and losses of a history, as overviews show them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TypeVar

from sqlalchemy import Engine

from pytest_mlms.keep.history.change_groups import NEAR, came_near
from pytest_mlms.keep.history.changes import Change, newest_changes
from pytest_mlms.keep.history.errors import HistoryError
from pytest_mlms.keep.history.queries import points_around, series_ids
from pytest_mlms.keep.history.run_lines import check_line
from pytest_mlms.keep.history.series import points_of
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


def quantities_of(line: object) -> Mapping[str, str]:
    """Return the quantities of the points of an item's line, by the keys of their series."""
    try:
        checked = check_line(0, json.dumps(line).encode())
    except HistoryError:  # a line that no history takes
        return {}
    return {point.series.key: point.series.quantity for point in points_of(checked.fields)}


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

    Those of a model on a stack that began near each other are one, which has the date of the
    weightiest: places of changes are estimates. Confirmed ones come first. Only the first ones,
    which are shown, have their series.
    """
    of_stacks: dict[tuple[str, str], list[ChangeView]] = defaultdict(list)
    groups: list[tuple[str, list[ChangeView]]] = []
    with history.connect() as connection:
        found, total = newest_changes(connection, _MOST_CHANGES, statuses=("confirmed", "open"))
        for change in found:
            view = change_view(change)
            if view.is_loss and view.model in models:
                of_stacks[view.model, _stack_of(change)].append(view)
        for (_, stack), views in of_stacks.items():
            left = sorted(views, key=_weight, reverse=True)
            while left:
                _, *around = points_around(connection, left[0].series, left[0].started, NEAR)
                near = {left[0].first_run, *(point.run for point in around)}
                groups.append((stack, [view for view in left if view.first_run in near]))
                left = [view for view in left if view.first_run not in near]
        groups.sort(key=lambda group: _weight(group[1][0]), reverse=True)
        asked = [views[0] for _, views in groups[:_MOST_MOVED]]
        moved = {view.id: moved_with(connection, view) for view in asked}
        came = {view.id: came_near(connection, view.series, view.started) for view in asked}
    shown = [views[0].series for _, views in groups[:most_shown]]
    series = {each.id: each for each in read_series(history, shown, MOST_RUNS)}
    losses = [
        Loss(
            change=views[0],
            others=len(views) - 1,
            moved=moved.get(views[0].id),
            series=series.get(views[0].series),
            stack=stack,
            came=came.get(views[0].id),
            ids=[view.id for view in views],
        )
        for stack, views in groups
    ]
    return Losses(losses, "" if total <= _MOST_CHANGES else "there are too many changes to read")


def _stack_of(change: Change) -> str:
    """Return the name of a change's stack for people, as items have it."""
    name = str(change.parts.get("stack", ""))
    return str(change.parts.get("framework", "")) if name == "here" else name


def _weight(change: ChangeView) -> tuple[bool, bool, float]:
    """Return what comes first: a confirmed change, one of what users see first, a large one."""
    size = max(change.ratio, 1 / change.ratio) if change.ratio > 0 else 0.0
    return change.status == "confirmed", change.quantity in HEADLINES, size
