"""Small file systems, which are soon full."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mount_small_disk(folder: Path, size: str = "64k") -> Iterator[Path]:
    """Mount one at ``folder``; skips the test where that is not allowed.

    It is unmounted also where a process still has a file of it open.
    """
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"can't mount a small file system here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    """Write a file that takes all of the disk's space, and return it."""
    filler = folder / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(16 << 20))
    return filler
