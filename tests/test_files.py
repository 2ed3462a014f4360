"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_mlms.files import replacing, write_atomically


def test_a_file_is_replaced_once_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def write_half(path: Path) -> None:
    with replacing(path) as temporary:
        temporary.write_text("ne")
        raise OSError("full")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(OSError, match="full"):
        write_half(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_text_is_written_as_utf_8(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", "5 µs")
    assert (tmp_path / "file").read_bytes() == b"5 \xc2\xb5s"


def test_a_link_that_others_planted_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    planted = tmp_path / f".file.{os.getpid()}.tmp"
    planted.symlink_to(victim)
    write_atomically(tmp_path / "file", "new")
    assert victim.read_text() == "precious"
    assert (tmp_path / "file").read_text() == "new"


def test_each_temporary_file_has_a_name_of_its_own(tmp_path: Path) -> None:
    with replacing(tmp_path / "file") as first, replacing(tmp_path / "file") as second:
        assert first != second
        first.touch()
        second.touch()
