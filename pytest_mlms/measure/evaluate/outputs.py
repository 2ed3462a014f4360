"""Checks that a model's outputs are finite."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pytest_mlms.core.errors import OutputError
from pytest_mlms.measure.agent.process import Array


def finite_rows(values: Array) -> Array:
    """Return for each row whether all of it is finite; a single number is a row.

    There may be none, as of a detector that finds nothing.
    """
    rows = np.atleast_1d(values)
    return np.asarray(np.isfinite(rows).all(axis=tuple(range(1, rows.ndim))))


def check_finite(name: str, finite: Array, name_of: Callable[[int], str] | None = None) -> None:
    """Raise OutputError where one of ``finite``, a truth value for each input, is False.

    ``name_of`` returns what a message calls an input, beside its number.
    """
    wrong = ~finite
    if not wrong.any():
        return
    first = int(wrong.argmax())
    named = f", {name_of(first)}" if name_of else ""
    count = f"{wrong.sum()} of {len(wrong)} inputs, first for number {first}{named}"
    advice = "check the input's steps, its element type and the model"
    raise OutputError(f"output {name!r} has NaN or infinity for {count}; {advice}")
