"""A file system that is full after 64 KiB."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mount_small_disk(folder: Path) -> Iterator[Path]:
    """Mount it at ``folder``; skips the test where that is not allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"can't mount a small file system here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def fill(folder: Path) -> Path:
    """Write a file that takes all of the disk's space, and return it."""
    filler = folder / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(b"x" * (1 << 20))
    return filler
