"""Legends of charts."""

from __future__ import annotations

from pytest_mlms.show.pages.legend import LegendEntry, draw_legend, place_entries


def test_entries_go_on_in_the_next_row_where_one_is_full() -> None:
    entries = [LegendEntry(f"stack number {number}", "c0", False) for number in range(5)]
    placed = place_entries(entries, width=420)
    rows = [each.row for each in placed]
    assert rows == sorted(rows)
    assert rows[0] == 0
    assert rows[-1] >= 1
    firsts = {each.row: each.left for each in reversed(placed)}
    assert len(set(firsts.values())) == 1


def test_a_name_that_is_wider_than_the_picture_is_shortened_and_escaped() -> None:
    (placed,) = place_entries([LegendEntry("<b>" * 100, "c0", True)], width=420)
    drawn = draw_legend([placed], top=10)
    assert "<b>" not in drawn
    assert drawn.count("&lt;b&gt;") < 25
    assert "stroke-dasharray" in drawn
