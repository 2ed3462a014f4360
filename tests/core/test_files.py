"""Files, and files of arrays."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.core.files import (
    DamagedFile,
    read_arrays,
    read_regular,
    replacing,
    write_atomically,
)


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


def test_a_regular_file_is_read_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 3) == b"abc"


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name in ("pipe", "zero", "socket"):
            with pytest.raises(OSError, match="it is a device, a pipe or a socket"):
                read_regular(tmp_path / name, 3)
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        read_regular(tmp_path, 3)


def test_a_file_that_is_too_large_is_not_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="it is larger than 2 KiB"):
        read_regular(tmp_path / "sparse", 2048)


def test_a_device_or_a_pipe_is_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link"):
        with pytest.raises(OSError, match="it is a device, a pipe or a socket"):
            write_atomically(path, "x")
    assert pipe.is_fifo()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["link", "pipe"]


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
