"""Search for the first layer of a model that departs from the reference's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.measure.evaluate.closeness import Tolerance, differences
from pytest_mlms.measure.evaluate.kept_outputs import Reference
from pytest_mlms.provide.cases import Case

Array = NDArray[Any]
Layers = Sequence[tuple[str, Array]]

_EXACT = Tolerance(0.0, 0.0)


class Departure(NamedTuple):
    """The first layer that departs, by both names.

    ``difference`` is its largest one, ``size`` the reference's largest value there. ``after`` has
    both names of the last layer before it that agrees; None where none does.
    """

    layer: str
    ours: str
    difference: float
    size: float
    after: tuple[str, str] | None


@dataclass(frozen=True)
class DepartureSearch:
    """The departure that was found, or the reason why none was."""

    departure: Departure | None
    reason: str = ""


def search_departure(
    case: Case,
    open_: Callable[[], Predictor],
    reference: Reference,
    worst: int,
    tolerance: Tolerance,
) -> DepartureSearch:
    """Run both models on input number ``worst``, and find the first layer that departs.

    ``open_`` returns the model of ``case`` in an agent.
    """
    batch = reference.inputs.repeated(worst)
    framework = reference.case.stack.label
    try:
        with reference.open() as other:
            expected = other.inner(batch)
        framework = case.stack.label
        ours = open_().inner(batch)
    except MlmsError as error:  # it must not hide that the outputs differ
        if isinstance(error, Refused) and error.error == "NotImplementedError":
            return DepartureSearch(None, f"{framework} does not show its layers")
        return DepartureSearch(None, str(error))
    departure = find_departure(ours, expected, tolerance)
    if departure is None:
        return DepartureSearch(None, "of the layers that can be matched, none does")
    return DepartureSearch(departure)


class _Match(NamedTuple):
    """A layer of ours that may be one of the reference's, and the largest difference from it."""

    number: int
    name: str
    difference: float


def find_departure(ours: Layers, reference: Layers, tolerance: Tolerance) -> Departure | None:
    """Return the first layer after the last one that agrees.

    None where no layer that both sides have departs. A layer of the reference is that of the same
    name, or else any of the same shape (as it is, or with the channels moved) behind the last one
    that agreed; frameworks fuse and rename layers, so it may have none, and is passed over. A layer
    agrees where its largest difference is within atol + rtol times its largest value: the rounding
    of a sum goes by its terms, not by what is left of them.
    """
    agreed: tuple[str, str] | None = None
    departed: Departure | None = None
    behind = 0
    for name, expected in reference:
        matches = list(_matches(name, expected, ours, behind))
        if not matches:
            continue
        best = min(matches, key=lambda match: match.difference)
        size = float(np.abs(expected).max(initial=0.0))
        if best.difference <= tolerance.atol + tolerance.rtol * size:
            agreed = (name, best.name)
            departed = None
            behind = max(behind, best.number + 1)
        elif departed is None:
            departed = Departure(
                layer=name,
                ours=best.name,
                difference=best.difference,
                size=size,
                after=agreed,
            )
    return departed


def _matches(name: str, expected: Array, ours: Layers, behind: int) -> Iterator[_Match]:
    """Yield the layers of ours that may be the reference's layer ``name``."""
    has_name = any(own_name == name for own_name, _ in ours)
    for number, (own_name, values) in enumerate(ours):
        is_candidate = own_name == name if has_name else number >= behind
        if is_candidate:
            difference = _largest_difference(values, expected)
            if difference is not None:
                yield _Match(number, own_name, difference)


def _largest_difference(values: Array, expected: Array) -> float | None:
    """Return the largest difference of an element; None for arrays of different shapes.

    Shapes that differ only in where the channels are count as one.
    """
    layouts = [values]
    if values.ndim == expected.ndim > 2:
        channels_first = np.moveaxis(values, -1, 1)
        channels_last = np.moveaxis(values, 1, -1)
        layouts += [channels_first, channels_last]
    found = []
    for layout in layouts:
        if layout.shape == expected.shape:
            absolute = differences(layout, expected, _EXACT).absolute
            found.append(float(absolute.max(initial=0.0)))
    return min(found, default=None)
