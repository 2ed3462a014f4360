"""docs/security.md names tests that are there, for each door."""

from __future__ import annotations

import re

import pytest

from tests.support.fuzzing import TARGETS
from tests.support.project import ROOT

ROWS = re.findall(r"^\| (?!from |-)(.*) \|$", (ROOT / "docs" / "security.md").read_text(), re.M)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.partition(" |")[0][:30])
def test_a_door_is_held_by_tests_that_are_there(row: str) -> None:
    door, trusted, suspected, held = row.split(" | ")
    assert all((door, trusted, suspected))
    named = re.findall("`([^`]+)`", held)
    assert named
    for name in named:
        path, _, test = name.partition("::")
        program, _, target = path.partition(":")
        assert (ROOT / program).is_file(), name
        assert not target or target in TARGETS, name
        assert not test or f"def {test}(" in (ROOT / path).read_text(), name


def test_the_page_is_found_from_the_page_on_reporting() -> None:
    assert len(ROWS) > 15
    assert "(docs/security.md)" in (ROOT / "SECURITY.md").read_text()
