"""The lock on the record of a bisection."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.explain.bisect.record_lock import hold_record


def test_a_record_is_held_once_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "bisect.json"
    with hold_record(path):
        pattern = r"bisect.json is in use by .*; wait for it, or name"
        with pytest.raises(MlmsError, match=pattern), hold_record(path):
            pytest.fail("it is held")
        with hold_record(tmp_path / "other.json"):
            pass
    with hold_record(path):
        pass
    assert not path.exists()


def test_a_folder_that_is_not_there_is_left_to_the_writing(tmp_path: Path) -> None:
    with hold_record(tmp_path / "nowhere" / "bisect.json"):
        pass
