"""Quantities that users' own tests measure, and the limits that these tests set."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import Literal, TypeAlias, get_args

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Decision, Estimate, Limit, OwnScale, Place
from pytest_mlms.core.statistics import student_interval
from pytest_mlms.measure.evaluate.limits import decide

Better: TypeAlias = Literal["lower", "higher"]
"""The direction in which a quantity improves."""

Values: TypeAlias = float | Iterable[float]
"""A value, or one for each replicate, such as a fold or a run."""

_CONFIDENCE = 0.95
_LONGEST_UNIT = 40  # characters


def estimate_own(name: str, values: Values, unit: str, better: str) -> Estimate:
    """Return the estimate of a quantity: a value as it is, or the mean with Student's interval.

    Raises ValueError for a name that is taken or is no identifier, for a unit that is no short
    word, and for values that aren't finite.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{name!r} is no name of a quantity; write letters, digits and _")
    if _is_taken(name):
        raise ValueError(f"{name!r} is a quantity of pytest-mlms; choose another name")
    if better not in get_args(Better):
        raise ValueError(f"better is {better!r}; write 'lower' or 'higher'")
    if not isinstance(unit, str) or len(unit) > _LONGEST_UNIT or not unit.isprintable():
        raise ValueError(f"{unit!r} is no unit; write a word of {_LONGEST_UNIT} characters at most")
    listed = _listed(values)
    if listed is None:
        value = _finite(name, values)
        return Estimate(value, value, value, 1.0, 1, "value")
    numbers = [_finite(name, value) for value in listed]
    if not numbers:
        raise ValueError(f"{name} has no values; give one or more")
    mean = _finite(name, _mean(numbers))
    lacking = ""
    if len(numbers) == 1:
        lacking = "a single value has no interval; give more values, or the value without a list"
    half = student_interval(numbers, _CONFIDENCE).high - mean
    return Estimate(
        mean, mean - half, mean + half, _CONFIDENCE, len(numbers), "values", lacking=lacking
    )


def decide_own(
    name: str, limit: float, estimate: Estimate, scale: OwnScale, place: Place
) -> Decision:
    """Return the decision on the limit that a test set; raises ValueError where it isn't finite."""
    if isinstance(limit, str):
        unit = f", in {scale.unit}" if scale.unit else ""
        raise ValueError(f"the limit on {name} is {limit!r}; write a number{unit}")
    bound = Limit(name, _finite(f"the limit on {name}", limit), place, own=scale)
    return Decision(bound, estimate, decide(bound, estimate))


def place_of(frame: FrameType) -> Place:
    """Return the line that a frame is at, below the folder that pytest was started in."""
    path = Path(frame.f_code.co_filename)
    folder = os.getcwd()
    if path.is_relative_to(folder):
        path = path.relative_to(folder)
    return Place(path, frame.f_lineno)


def _listed(values: Values) -> list[float] | None:
    """Return several values as a list; None for a single one."""
    if isinstance(values, str):
        return None
    try:
        return list(values)  # type: ignore[arg-type]
    except TypeError:  # also of arrays without an axis
        return None


def _mean(numbers: list[float]) -> float:
    try:
        return fmean(numbers)
    except OverflowError:
        return math.inf


def _finite(name: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:  # of an integer
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}; a quantity is a finite number")
    return number


def _is_taken(name: str) -> bool:
    """Return whether a name is that of a quantity of ours.

    Those of tasks, such as "rmse", are free: users' tests may measure them in ways of their own.
    """
    quantity = QUANTITIES.get(name)
    return quantity is not None and quantity.kind != "accuracy"
