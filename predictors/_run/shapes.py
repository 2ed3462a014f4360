"""Shapes as predictors report them."""

from typing import Any, Iterable, Optional, Tuple

import numpy

_WHOLE_NUMBERS = (int, numpy.integer)


def shape_of(sizes: Iterable[Any]) -> Tuple[Optional[int], ...]:
    """Return sizes of axes as a shape; a free axis is None.

    An axis is free whose size is below zero, or no whole number, as names and symbols are.
    """
    shape = []
    for size in sizes:
        is_known = isinstance(size, _WHOLE_NUMBERS) and size >= 0
        shape.append(int(size) if is_known else None)
    return tuple(shape)


def smallest(shape: Iterable[Optional[int]]) -> Tuple[int, ...]:
    """Return a shape with one for each free axis."""
    return tuple(size or 1 for size in shape)
