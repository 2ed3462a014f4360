"""States: inputs that are outputs of the call before."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.manifest.schema import BATCH, Input

SEQUENCE = "sequence"
"""The column of a dataset that says to which sequence an element belongs."""


def start_state(spec: Input, size: int) -> NDArray[Any]:
    """Return a state at the beginning, for a batch of ``size``."""
    shape = [size if axis == BATCH else axis for axis in spec.shape or ()]
    return np.full(shape, spec.start or 0, spec.element_type)
