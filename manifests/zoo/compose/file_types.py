"""The beginnings and ends of files of packages, labelled by their suffixes, for magika."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from manifests.zoo.compose.packages import PACKAGES, folder_of

__all__ = ["compose"]

_LABELS = Path(__file__).parents[2] / "file-type" / "labels.txt"
_FOLDERS = {
    "scikit-image==0.26.0": "skimage",
    "scikit-learn==1.9.1": "sklearn",
    "sphinx==8.2.3": "sphinx",
}
_TYPES = {
    ".c": "c",
    ".cpp": "cpp",
    ".css": "css",
    ".csv": "csv",
    ".gif": "gif",
    ".gz": "gzip",
    ".jpg": "jpeg",
    ".js": "javascript",
    ".md": "markdown",
    ".npy": "npy",
    ".npz": "npz",
    ".png": "png",
    ".po": "po",
    ".py": "python",
    ".rst": "rst",
    ".so": "elf",
    ".sty": "latex",
    ".svg": "svg",
    ".tiff": "tiff",
    ".toml": "toml",
}
"""Suffix -> magika's name of the type."""

_OF_A_TYPE = 12  # files of each type, at most
_LEAST = 64  # bytes of a file
_BLOCK = 4096  # bytes that are read at the beginning and at the end
_SIZE = 1024  # bytes of the beginning and of the end that the model takes
_PADDING = 256


def compose() -> dict[str, NDArray[np.generic]]:
    """Return bytes (N x 2048) and label (N)."""
    names = _LABELS.read_text().split()
    rows = []
    labels = []
    for suffix, name in sorted(_TYPES.items()):
        for data in _files(suffix):
            rows.append(_row(data))
            labels.append(names.index(name))
    return {"bytes": np.array(rows, dtype=np.int16), "label": np.array(labels, dtype=np.int64)}


def _files(suffix: str) -> Iterator[bytes]:
    """Yield the content of files with a suffix, chosen by the digests of their contents."""
    found = {}
    for package in PACKAGES:
        if package in _FOLDERS:
            for path in folder_of(package, _FOLDERS[package]).rglob(f"*{suffix}"):
                data = path.read_bytes()
                if len(data.strip()) >= _LEAST:
                    found[hashlib.sha256(data).hexdigest()] = data
    for digest in sorted(found)[:_OF_A_TYPE]:
        yield found[digest]


def _row(data: bytes) -> NDArray[np.int16]:
    """Return a file as magika reads it, without blanks at its ends."""
    beginning = data[:_BLOCK].lstrip()[:_SIZE]
    end = data[-_BLOCK:].rstrip()[-_SIZE:]
    row = np.full(2 * _SIZE, _PADDING, dtype=np.int16)
    row[: len(beginning)] = list(beginning)
    row[len(row) - len(end) :] = list(end)
    return row
