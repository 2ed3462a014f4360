"""Shifts of the level of a series: pure functions of its values, in the order of the runs.

The process is nightly: each new point is judged with what was known then, so that a series that is
scanned at once has the same shifts as one that was scanned after each run. docs/history.md has the
rule in words, and docs/history_study.md what it finds and what it reports wrongly.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy
from numpy.lib.stride_tricks import sliding_window_view

from pytest_mlms.core.arrays import Array
from pytest_mlms.keep.history.blocks import LEAST_BEFORE, LONGEST, Blocks
from pytest_mlms.keep.history.shifts import Estimate, Sensitivity, Shift, Sight
from pytest_mlms.keep.history.significance import (
    AFTER_VERSION,
    ALARM_RISK,
    FOUR_OF_FIVE,
    WINDOWS,
    Window,
    Windows,
    first_beyond,
    first_rare,
    least_points,
    predict,
    predict_next,
    tests_at,
)

TOO_FEW = LEAST_BEFORE + WINDOWS[0]
"""With fewer points a series can't shift."""

_DRIFT_WINDOW = WINDOWS[-1]
_DRIFT_FACTOR = 2  # of the least change
_RETURNED = 5  # runs that are nearer to the old level than to the new one
_SETTLED = 5  # runs after which the place of a shift is estimated again, for the last time
_SEARCHED = 20  # runs in which the place of a shift is looked for
_LEAST_STEADY = 5  # values that are alike
_ALIKE = 0.1  # of the least change
_CONFIDENCE_ERRORS = 1.96
_INTERVAL_RISK = 0.05
_NEAREST_OF_THREE = 0.85  # standard deviations by which it is nearer than their mean
_ALL_BEYOND = 0.4  # standard deviations by which all of some points are beyond half; simulated


@dataclass(frozen=True)
class _Search:
    """The state of a search: ``shifts`` are known, and ``judged`` points were judged.

    ``changed`` are the points whose software isn't that of the point before, and ``refused`` the
    windows after them that count for nothing.
    """

    values: Array
    sensitivity: Sensitivity
    changed: Array
    refused: Collection[tuple[int, int]]
    shifts: Sequence[Shift]
    judged: int

    @cached_property
    def blocks(self) -> Blocks:
        """The blocks of all levels."""
        boundaries = [shift.boundary for shift in self.shifts]
        return Blocks(self.values, [0, *boundaries])

    @property
    def begin(self) -> int:
        """The first point of the newest level."""
        return self.blocks.starts[-1]

    @property
    def alike(self) -> float:
        """The largest difference of computed values that are the same."""
        return _ALIKE * self.sensitivity.min_magnitude

    @property
    def last(self) -> Shift | None:
        """The newest shift; None where there is none yet."""
        return self.shifts[-1] if self.shifts else None

    def add(self, at: int, shift: Shift) -> _Event:
        """Return the event of a new shift."""
        return _Event(at, [*self.shifts, shift])

    def replace_last(self, at: int, shift: Shift) -> _Event:
        """Return the event of another newest shift, such as one that is undone."""
        return _Event(at, [*self.shifts[:-1], shift])


@dataclass(frozen=True)
class _Event:
    """The shifts after a point was judged, where that changed them."""

    at: int
    shifts: Sequence[Shift]


def find_shifts(
    values: Sequence[float] | Array,
    sensitivity: Sensitivity,
    known: Sequence[Shift] = (),
    judged: int = 0,
    changed: Sequence[int] | Array = (),
    refused: Collection[tuple[int, int]] = (),
) -> list[Shift]:
    """Return the shifts of a series in order: the ``known`` ones, and those of later points.

    ``judged`` is how many points were judged before, when the known ones were found. A known shift
    has another ``first`` where its place is estimated again, and ``undone`` where the level is the
    old one again. ``changed`` are the points whose software isn't that of the point before, in
    order; ``refused`` are such points, each with the number of points from it on, that the other
    series of the night contradict. Values must be finite.
    """
    data = np.asarray(values, float)
    places = np.asarray(changed, int)
    shifts: Sequence[Shift] = known
    while judged < len(data):
        event = _next_event(_Search(data, sensitivity, places, refused, shifts, judged))
        if event is None:
            break
        shifts = event.shifts
        judged = event.at + 1
    return list(shifts)


def estimate_shift(
    values: Array, sensitivity: Sensitivity, shift: Shift, end: int, level: int = 0
) -> Estimate:
    """Return the estimate of a shift from up to 30 points on each side of it.

    The level before it begins with the point ``level``, and the one after it ends before ``end``.
    Up to three points after it, as where a version tells its place, have the interval of their
    prediction.
    """
    begin = max(level if level < shift.first else 0, shift.first - LONGEST)
    before = values[begin : shift.first]
    after = values[shift.first : min(end, shift.first + LONGEST)]
    old = shift.old
    if shift.kind == "step":
        old = float(np.median(before))
    change = float(np.median(after)) - old
    blocks = Blocks(values[begin:end], [0, len(before)])
    last_place = np.array([end - begin])
    scatter = blocks.scatter(last_place, sensitivity.noise)
    size = 1 / len(after) + 1 / max(1, len(before))
    [error] = scatter.error_of_difference(size)
    half = _CONFIDENCE_ERRORS * float(error)
    if len(after) <= WINDOWS[0] and len(before) > 1:
        half = predict(blocks, len(before), len(after), sensitivity.noise).half(_INTERVAL_RISK)
    return Estimate(old, change, low=change - half, high=change + half)


def sight_of(values: Array, sensitivity: Sensitivity, shifts: Sequence[Shift]) -> Sight:
    """Return the sight of a series, whose known shifts these are, on a step."""
    blocks = Blocks(values, [0, *[shift.boundary for shift in shifts]])
    end = len(values)
    known = int(blocks.counts[end])
    missing = max(0, LEAST_BEFORE - known)
    residuals = blocks.residuals(end)
    points = least_points(len(residuals) + missing, sensitivity.order_risk)
    scatter = blocks.scatter(np.array([end]), sensitivity.noise)
    [freedom] = np.maximum(scatter.freedom / scatter.persistence, 1)

    risk = sensitivity.max_pvalue / len(WINDOWS)
    [error] = scatter.error_of_difference(1 / points + 1 / (known + missing))
    seen = max(sensitivity.min_magnitude, -scipy.special.stdtrit(freedom, risk / 2) * error)
    change = float(seen + FOUR_OF_FIVE * error)
    if points == WINDOWS[0]:
        change += _NEAREST_OF_THREE * float(scatter.deviation[0])
    equalled = 2 * float(np.abs(residuals).max(initial=0))  # none before may be beyond half of it
    change = max(change, equalled) + _ALL_BEYOND * float(scatter.deviation[0])
    next_one = predict_next(blocks, known + missing, sensitivity.noise)
    at_once = next_one.seen(ALARM_RISK, max(sensitivity.min_magnitude, equalled))
    return Sight(missing + points, change, at_once)


def _next_event(search: _Search) -> _Event | None:
    """Return the first event at a point that was not judged yet."""
    found = [
        _settling(search),
        _return(search),
        _steady_step(search),
        _software_step(search),
        _step(search),
        _drift(search),
    ]
    events = [event for event in found if event is not None]
    return min(events, key=lambda event: event.at, default=None)


def _settling(search: _Search) -> _Event | None:
    """Estimate the place of the newest step again, when more points are there."""
    last = search.last
    if last is None or last.kind != "step":
        return None
    if last.undone is not None or last.first == last.found or last.first in search.changed:
        return None
    at = last.found + _SETTLED
    if not search.judged <= at < len(search.values):
        return None
    begin = search.blocks.starts[-2]
    values = search.values[: at + 1]
    first = _place(values, begin, last.found)
    if first == last.first:
        return None
    step = _step_at(values, begin, first, last.found)
    return search.replace_last(at, step)


def _place(values: Array, begin: int, found: int) -> int:
    """Return the place of a step: that with the least sum of deviations from the medians.

    At least three points up to ``found`` are after it.
    """
    earliest = max(begin + LEAST_BEFORE, found - _SEARCHED)
    latest = found - WINDOWS[0] + 1
    from_here = max(begin, earliest - LONGEST)

    def deviations(place: int) -> float:
        before = _deviations(values[from_here:place])
        after = _deviations(values[place:])
        return before + after

    return min(range(earliest, latest + 1), key=deviations)


def _deviations(values: Array) -> float:
    deviations = values - np.median(values)
    return float(np.abs(deviations).sum())


def _step_at(values: Array, begin: int, first: int, found: int) -> Shift:
    """Return the step before the point ``first``, in a level that begins at ``begin``."""
    before = values[max(begin, first - LONGEST) : first]
    old = float(np.median(before))
    new = float(np.median(values[first:]))
    return Shift(first, found, old, new - old)


def _return(search: _Search) -> _Event | None:
    """Find the first run of points that are nearer to the level before the newest shift."""
    last = search.last
    if last is None or not last.can_be_undone:
        return None
    distance = np.abs(search.values[last.first :] - last.old)
    length = _RETURNED
    is_near = distance < abs(last.change) / 2
    is_alike = distance <= search.alike
    if search.sensitivity.exact and is_alike.any():
        length = 1
        is_near = is_alike
    if len(is_near) < length:
        return None
    begins = np.flatnonzero(sliding_window_view(is_near, length).all(axis=1))
    ends = last.first + begins + length - 1
    earliest = max(search.judged, last.found + 1)
    ends = ends[ends >= earliest]
    if not len(ends):
        return None
    at = int(ends[0])
    undone = replace(last, undone=at - length + 1)
    return search.replace_last(at, undone)


def _steady_step(search: _Search) -> _Event | None:
    """Find the first point off the level of a computed quantity that never moved."""
    if not search.sensitivity.exact:
        return None
    blocks = search.blocks
    earliest = max(search.judged, search.begin + _LEAST_STEADY)
    places = np.arange(earliest, len(search.values))
    levels = blocks.medians[places]
    changes = np.abs(search.values[places] - levels)
    is_steady = blocks.ranges[places] <= search.alike
    is_shifted = changes > search.sensitivity.min_magnitude
    found = places[is_steady & is_shifted]
    if not len(found):
        return None
    at = int(found[0])
    old = float(blocks.medians[at])
    new = float(search.values[at])
    shift = Shift(at, at, old, new - old)
    return search.add(at, shift)


def _step(search: _Search) -> _Event | None:
    """Find the first point after which the last points differ from the block before them."""
    blocks = search.blocks
    sensitivity = search.sensitivity
    risk = sensitivity.max_pvalue / len(WINDOWS)
    found: list[Window] = []
    for length in WINDOWS:
        places = _places(search, search.begin + LEAST_BEFORE, length)
        windows = Windows.of(blocks, length, places, places)
        changed = windows.beyond(sensitivity.min_magnitude)
        found += changed.significant(blocks, sensitivity.noise, risk)
    window = first_rare(found, blocks, sensitivity.order_risk)
    if window is None:
        return None
    first = _place(search.values[: window.last + 1], search.begin, window.last)
    return _step_event(search, first, window.last)


def _software_step(search: _Search) -> _Event | None:
    """Find the first points that differ from those before where the software changed.

    The place is known and not searched for, so fewer points tell.
    """
    blocks = search.blocks
    sensitivity = search.sensitivity
    found: list[Window] = []
    for length in AFTER_VERSION:
        earliest = max(search.begin + LEAST_BEFORE, search.judged - length + 1)
        is_new = (search.changed >= earliest) & (search.changed <= len(search.values) - length)
        places = search.changed[is_new]
        for window in Windows.of(blocks, length, places, places).beyond(sensitivity.min_magnitude):
            if (window.place, length) not in search.refused:
                prediction = predict(blocks, window.place, length, sensitivity.noise)
                tests = tests_at(search.changed, window.last)
                if prediction.p_value * tests <= ALARM_RISK:
                    found.append(window)
    first = first_beyond(found, blocks)
    return None if first is None else _step_event(search, first.place, first.last)


def _step_event(search: _Search, first: int, at: int) -> _Event:
    """Return the event of a step before ``first``, which may undo the shift before it."""
    step = _step_at(search.values[: at + 1], search.begin, first, at)
    last = search.last
    if last is None or not _undoes(step, last, search.sensitivity):
        return search.add(at, step)
    undone = replace(last, undone=first)
    return search.replace_last(at, undone)


def _undoes(step: Shift, last: Shift, sensitivity: Sensitivity) -> bool:
    """Return whether a step leads back to the level before the last shift."""
    if not last.can_be_undone:
        return False
    new = step.old + step.change
    rest = abs(new - last.old)
    return rest <= max(sensitivity.min_magnitude, abs(last.change) / 3)


def _drift(search: _Search) -> _Event | None:
    """Find the first point after which the last points differ from the begin of the level."""
    blocks = search.blocks
    sensitivity = search.sensitivity
    end = search.begin + LONGEST
    places = _places(search, end, _DRIFT_WINDOW)
    ends = np.full(len(places), end)
    windows = Windows.of(blocks, _DRIFT_WINDOW, places, ends)
    changed = windows.beyond(_DRIFT_FACTOR * sensitivity.min_magnitude)
    found = changed.significant(blocks, sensitivity.noise, sensitivity.max_pvalue / len(WINDOWS))
    window = first_rare(found, blocks, sensitivity.order_risk)
    if window is None:
        return None
    drift = Shift(window.place, window.last, window.level, window.change, "drift")
    return search.add(window.last, drift)


def _places(search: _Search, earliest: int, length: int) -> Array:
    """Return the places of windows that end with points that were not judged yet."""
    begin = max(earliest, search.judged - length + 1)
    return np.arange(begin, len(search.values) - length + 1)
