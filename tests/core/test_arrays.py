"""Tests of files of arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.core.arrays import DamagedFile, read_arrays


def test_arrays_are_read_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.arange(3), y=np.ones((2, 2)))
    content = path.read_bytes()
    assert set(read_arrays(path)) == {"x", "y"}
    for size in range(0, len(content), 3):
        path.write_bytes(content[:size])
        with pytest.raises(DamagedFile):
            read_arrays(path)


def test_a_missing_file_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_arrays(tmp_path / "a.npz")
