"""Fewer rows of a batch that still show the failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytest_mlms.core.arrays import Array, Arrays
from pytest_mlms.explain.bisect.delta_debugging import reduce_changes
from pytest_mlms.explain.bisect.search import Outcome


def with_rows(inputs: Arrays, batch: int, rows: Sequence[int]) -> dict[str, Array]:
    """Return inputs with some of the rows of each array whose first axis is the batch."""
    found = {}
    for name, array in inputs.items():
        is_batch = array.ndim > 0 and len(array) == batch
        found[name] = array[list(rows)] if is_batch else array
    return found


def fewest_rows(
    batch: int, departing: Sequence[int], test: Callable[[Sequence[int]], Outcome]
) -> tuple[int, ...]:
    """Return the fewest rows that show the failure, all where no smaller batch does.

    ``departing`` are those whose outputs depart, the worst first: that one alone is tried, and then
    all of them. Where none are known, rows are taken out by delta debugging. All rows together show
    the failure, which is not tested.
    """
    everything = tuple(range(batch))
    if batch == 1:
        return everything
    if not departing:
        return reduce_changes(batch, test).changes
    for rows in ((departing[0],), tuple(sorted(departing))):
        if len(rows) < batch and max(rows) < batch and test(rows) is Outcome.BAD:
            return rows
    return everything
