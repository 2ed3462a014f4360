"""Shapes as predictors report them."""

from typing import Any, Iterable, List, Optional, Tuple

import numpy

_WHOLE_NUMBERS = (int, numpy.integer)


def shape_of(sizes: Iterable[Any]) -> Tuple[Optional[int], ...]:
    """Return sizes of axes as a shape; a free axis is None.

    An axis is free whose size is below zero, or no whole number, as names and symbols are.
    """
    shape: List[Optional[int]] = []
    for size in sizes:
        if isinstance(size, _WHOLE_NUMBERS) and size >= 0:
            shape.append(int(size))
        else:
            shape.append(None)
    return tuple(shape)


def smallest(shape: Iterable[Optional[int]]) -> Tuple[int, ...]:
    """Return a shape with one for each free axis."""
    sizes = []
    for size in shape:
        sizes.append(size or 1)
    return tuple(sizes)
