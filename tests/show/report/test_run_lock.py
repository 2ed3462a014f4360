"""Tests of the lock on the folder of a run."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pytest_mlms.show.report.run_lock import RunInUse, RunLock


def test_a_lock_is_free_again_after_its_release(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    assert lock.acquire()
    lock.release()
    assert RunLock(tmp_path).acquire()


def test_a_lock_that_is_held_names_its_holder(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    lock.acquire()
    text = f"{tmp_path} is in use by process {os.getpid()} ("
    with pytest.raises(RunInUse, match=re.escape(text)):
        RunLock(tmp_path).acquire()


def test_a_folder_that_can_not_be_locked_has_no_holder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    assert not RunLock(tmp_path / "run").acquire()
