"""Sums over the inputs of many samples at once, of which the figures of tasks are made."""

from __future__ import annotations

import numpy as np

from pytest_mlms.measure.evaluate.tasks.task import Array


def sums_by_group(counts: Array, groups: Array, size: int) -> Array:
    """Return how often each sample has each group (R x ``size``).

    ``counts`` (R x N) says how often each input is in each of R samples, and ``groups`` (N) which
    group an input is in, from 0 to ``size`` - 1.
    """
    sums = np.zeros((len(counts), size))
    if len(groups) == 0:
        return sums
    order = np.argsort(groups, kind="stable")
    present, starts = np.unique(groups[order], return_index=True)
    sums[:, present] = np.add.reduceat(counts[:, order], starts, axis=1)
    return sums
