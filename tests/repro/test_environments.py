"""Tests of the environments of a replay."""

from __future__ import annotations

import pytest

from pytest_mlms.repro.replay.environments import find_pip


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ("", "https://pypi.org/simple"),
        ("https://me:secret@index.example/simple", "https://***@index.example/simple"),
    ],
)
def test_the_index_of_pip_is_told_without_a_password(
    setting: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", setting)
    assert find_pip().source == shown
