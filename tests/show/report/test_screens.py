"""Screens of recorded runs, as they are kept."""

from __future__ import annotations

import pytest

from tests.support.screens import FOLDER, WIDTHS, screen


@pytest.mark.parametrize("width", WIDTHS)
def test_the_end_of_recorded_runs_is_as_it_was(width: int) -> None:
    kept = (FOLDER / f"{width}.txt").read_text()
    assert screen(width).splitlines() == kept.splitlines(), (
        "look at what changed; python -m tests.support.screens keeps it"
    )


@pytest.mark.parametrize("width", [60, 79, *WIDTHS, 120])
def test_no_line_of_a_screen_is_wider_than_its_terminal_but_for_the_ids_of_nodes(
    width: int,
) -> None:
    wide = [line for line in screen(width).splitlines() if len(line) > width]
    assert [line for line in wide if "::" not in line and not line.startswith("mlms: ")] == []
