"""Types of arrays: a module that imports this imports numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]

Arrays = Mapping[str, Array]
"""Arrays by name."""
