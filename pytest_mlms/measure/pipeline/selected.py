"""Some of the values of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

Values = Sequence[Any] | NDArray[Any]


class Selected(Sequence[Any]):
    """The values at some numbers of a sequence, each read or computed when it is asked for."""

    def __init__(self, values: Values, numbers: Values) -> None:
        self._values = values
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        return self._values[self._numbers[index]]
