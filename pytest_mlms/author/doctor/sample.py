"""A sample of a dataset."""

from __future__ import annotations

import numpy as np

from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.selection import selected_elements


def sampled(dataset: Dataset, most: int) -> Dataset:
    """Return at most so many elements of a dataset, drawn with a fixed seed, in their order."""
    if len(dataset) <= most:
        return dataset
    drawn = np.random.default_rng(0).permutation(len(dataset))[:most]
    chosen = sorted(drawn.tolist())
    return selected_elements(dataset, chosen)
