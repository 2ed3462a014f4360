"""Lines of blocks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.show.report.history_tables import sparkline

BLOCKS = "▁▂▃▄▅▆▇█"


def test_the_lowest_and_the_highest_value_have_the_outer_blocks() -> None:
    assert sparkline([1, 8, 4.5]) == "▁█▅"
    assert sparkline([]) == ""


def test_values_that_do_not_change_are_a_level_line() -> None:
    assert sparkline([2.5, 2.5, 2.5]) == "▄▄▄"


@given(st.lists(st.floats(-1e300, 1e300), min_size=2))
def test_higher_values_have_no_lower_blocks(values: list[float]) -> None:
    blocks = [BLOCKS.index(block) for block in sparkline(values)]
    pairs = sorted(zip(values, blocks, strict=True))
    assert [block for _, block in pairs] == sorted(blocks)
