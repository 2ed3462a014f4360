"""Files of arrays that are read whole or not at all."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

_DAMAGES = (
    ValueError,
    KeyError,
    EOFError,
    NotImplementedError,
    OverflowError,
    MemoryError,  # of a header with a size that the file does not have
    RuntimeError,  # of an encrypted member
    SyntaxError,
    TypeError,  # of a header that is no table
    tokenize.TokenError,
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
            if len(set(file.files)) < len(file.files):
                raise ValueError("it has two arrays of one name")
            return dict(file)
    except _DAMAGES as error:
        raise DamagedFile(str(error)) from error


def content_size(path: Path) -> int:
    """Return the size in bytes of what an .npz file unpacks to; raises OSError and DamagedFile."""
    try:
        with zipfile.ZipFile(path) as archive:
            return sum(member.file_size for member in archive.infolist())
    except zipfile.BadZipFile as error:
        raise DamagedFile(str(error)) from error


def write_arrays(file: Path | IO[bytes], arrays: Mapping[str, Any]) -> None:
    """Write an .npz file, as numpy.savez does, but with any names: those are often a model's.

    numpy.savez takes the names as keyword arguments, and has arguments of its own.
    """
    import numpy as np
    from numpy.lib import format as npy

    with zipfile.ZipFile(file, "w") as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, np.asanyarray(values), allow_pickle=False)
