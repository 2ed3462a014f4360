"""Rows of a large array that stay in a file, each read when it is asked for."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import DatasetError


class OpenFile:
    """A descriptor of its own of an open file, closed when nothing needs it any more."""

    def __init__(self, file: IO[bytes]) -> None:
        self.descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.descriptor)


@dataclass(frozen=True, eq=False)
class StoredRows(Sequence[NDArray[Any]]):
    """The rows of an array in C order, which begins at ``offset`` bytes of an open file.

    Threads may read at once. The file is kept open.
    """

    file: OpenFile
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        """The number of its axes."""
        return len(self.shape)

    def reshape(self, shape: tuple[int, ...]) -> StoredRows:
        """Return it with other axes behind the first, for as many numbers."""
        return StoredRows(self.file, self.offset, shape, self.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        row = self.shape[1:]
        size = math.prod(row) * self.dtype.itemsize
        number = range(len(self))[index]
        data = os.pread(self.file.descriptor, size, self.offset + number * size)
        if len(data) < size:
            raise DatasetError("the file was cut off while it was read; run again")
        return np.frombuffer(data, self.dtype).reshape(row)
