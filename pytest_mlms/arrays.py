"""Files of arrays that are read whole or not at all."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

__all__ = ["DamagedFile", "read_arrays"]

_DAMAGES = (
    ValueError,
    KeyError,
    EOFError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)


class DamagedFile(ValueError):
    """A file is cut off, or is something else than its name says."""


def read_arrays(path: Path) -> dict[str, Any]:
    """Return the arrays of an .npz file by name; raises OSError and DamagedFile."""
    import numpy as np

    if not zipfile.is_zipfile(path):  # numpy would take it for a pickle, and advise to load that
        path.stat()  # which is_zipfile does not raise the error of
        raise DamagedFile("it is no archive")
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except _DAMAGES as error:
        raise DamagedFile(str(error)) from error
