"""Tables as lines of text that fit a width."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.text import columns_of
from pytest_mlms.show.report.table import KEEP, GiveWay, fit_table, format_table

words = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=30)
wide = st.text("漢字かなｶ한e\u0301-", min_size=1, max_size=15)
numbers = st.integers(0, 10**6).map(str)
WIDE = ["digits-cnn", "onnxruntime-cpu", "99.00 (97.84 to 99.54) %"]
WIDE_HEADER = ["model", "case", "top-1 (interval)"]


def folded(header: Sequence[str], row: Sequence[str], width: int, left: int) -> list[str]:
    """Return the lines of the only row of a table."""
    _, lines = format_table(header, [row], width, left)
    return lines


def test_text_is_aligned_to_the_left_and_numbers_to_the_right() -> None:
    rows = [["a", "1.00 ms"], ["long name", "5 s"]]
    header, first, second = format_table(["case", "p50"], rows, 40, left=1)
    assert header == ["case           p50"]
    assert first == ["a          1.00 ms"]
    assert second == ["long name      5 s"]


def test_a_table_without_rows_has_its_header() -> None:
    assert format_table(["case", "n"], [], 40, left=1) == [["case  n"]]


def test_an_empty_row_has_a_line() -> None:
    assert folded(["", ""], ["", ""], 40, left=1) == [""]


def test_a_cell_that_is_too_long_is_folded_and_loses_nothing() -> None:
    lines = folded(["case", "n"], ["one-two-three-four-five", "1"], 14, left=1)
    assert lines == ["one-two-three-", "four-five", "  1"]


def test_numbers_stand_below_names_where_both_do_not_fit() -> None:
    assert folded(WIDE_HEADER, WIDE, 40, left=2) == [
        "digits-cnn  onnxruntime-cpu",
        "  99.00 (97.84 to 99.54) %",
    ]


def test_a_table_of_text_alone_is_folded_between_words() -> None:
    lines = folded(["name", "packages"], ["caffe", "numpy==1.16 caffe==1.0"], 20, left=2)
    assert lines == ["caffe  numpy==1.16", "       caffe==1.0"]


def test_a_table_of_numbers_alone_is_folded_between_words() -> None:
    header, lines = format_table(["first", "mean"], [["1.00 ms", "2.00 ms"]], 12, left=0)
    assert header == ["first   mean"]
    assert " ".join(" ".join(lines).split()) == "1.00 2.00 ms ms"


def test_names_that_do_not_fit_side_by_side_stand_below_each_other() -> None:
    lines = folded(WIDE_HEADER, WIDE, 26, left=2)
    assert lines == ["digits-cnn", "onnxruntime-cpu", "  99.00 (97.84 to 99.54) %"]


def test_numbers_are_folded_between_words_last() -> None:
    assert folded(WIDE_HEADER, WIDE, 20, left=2)[2:] == [
        "     99.00 (97.84 to",
        "            99.54) %",
    ]


def test_a_cell_is_not_folded_at_a_space_that_is_kept() -> None:
    row = ["INCONCLUSIVE", "cpu-b8", f"×1.029 (1.001{KEEP}to{KEEP}1.048)"]
    assert folded(["verdict", "case", "B / A"], row, 20, left=2) == [
        "INCONCLUSIVE  cpu-b8",
        "              ×1.029",
        "    (1.001 to 1.048)",
    ]


@given(
    st.lists(st.tuples(words, words, numbers), min_size=1, max_size=5),
    st.integers(30, 120),
)
def test_no_line_is_wider_than_asked_and_no_letter_is_lost(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    _, *folded_rows = format_table(["a", "b", "c"], rows, width, left=2)
    for row, lines in zip(rows, folded_rows, strict=True):
        assert all(len(line) <= width for line in lines)
        letters = "".join(lines).replace(" ", "")
        assert sorted(letters) == sorted("".join(row))


UPGRADES = ["verdict", "case", "A", "B / A", "spent"]
ROWS = [
    ["PASSED", "here-cpu-b1-offline", "21.5 µs", "×1.006 (0.967 to 1.030)", "15.5 s"],
    ["REGRESSED", "here-cpu-b8-offline", "85.4 µs", "×1.101 (1.083 to 1.112)", "4.1 s"],
]
ORDER = GiveWay(spare=("spent",), later=("A",), main="B / A")


def test_a_table_that_fits_is_as_it_is() -> None:
    table = fit_table(UPGRADES, ROWS, 80, left=2, order=ORDER)
    assert table.rows[1] == (
        "REGRESSED  here-cpu-b8-offline  85.4 µs  ×1.101 (1.083 to 1.112)   4.1 s"
    )
    assert (table.dropped, table.prefixes) == ([], [])


def test_the_columns_that_say_least_go_first_and_names_lose_what_is_alike() -> None:
    table = fit_table(UPGRADES, ROWS, 67, left=2, order=ORDER)
    assert (table.dropped, table.prefixes) == (["spent"], [])
    table = fit_table(UPGRADES, ROWS, 60, left=2, order=ORDER)
    assert (table.dropped, table.prefixes) == (["spent"], ["case: … stands for here-cpu-"])
    assert table.rows == [
        "PASSED     …b1-offline  21.5 µs  ×1.006 (0.967 to 1.030)",
        "REGRESSED  …b8-offline  85.4 µs  ×1.101 (1.083 to 1.112)",
    ]
    table = fit_table(UPGRADES, ROWS, 50, left=2, order=ORDER)
    assert table.dropped == ["spent", "A"]
    assert table.header == "verdict    case                           B / A"


def test_names_are_shortened_in_their_middle_and_stay_apart() -> None:
    names = ["alpha-net-with-a-long-name", "other-net-with-a-long-name"]
    rows = [["PASSED", name, "1.00 ms"] for name in names]
    table = fit_table(["verdict", "model", "p50"], rows, 34, left=2)
    assert table.rows == [
        "PASSED   alpha…-long-name  1.00 ms",
        "PASSED   other…-long-name  1.00 ms",
    ]
    assert len(set(fit_table(["verdict", "model", "p50"], rows, 20, left=2).rows)) == 2


@given(
    st.lists(st.tuples(words, words, numbers, numbers), min_size=1, max_size=5),
    st.integers(20, 100),
)
def test_each_row_is_a_line_that_fits_and_keeps_its_first_number_where_there_is_room(
    rows: list[tuple[str, str, str, str]], width: int
) -> None:
    table = fit_table(["verdict", "b", "c", "d"], rows, width, left=2)
    assert len(table.rows) == len(rows)
    lines = [table.header, *table.rows]
    assert all(len(line) <= width and "\n" not in line for line in lines)
    assert "c" not in table.dropped
    below = table.below or [""] * len(rows)
    for row, line, figure in zip(rows, table.rows, below, strict=True):
        assert row[2] in line.split() or figure == f"c {row[2]}"
    if width >= 30 + 2 + 1 + 2 + 7:
        assert not table.below
        for row, line in zip(rows, table.rows, strict=True):
            assert line.startswith(row[0])
            assert row[2] in line.split()


def test_a_column_of_numbers_that_is_called_as_one_of_text_goes_in_its_place() -> None:
    row = ["FAILED", "digits", "12 ms", "3 %", "7"]
    table = fit_table(["verdict", "model", "time", "verdict", "model"], [row], 25, left=2)
    assert table.dropped == ["model", "verdict"]
    assert table.rows == ["FAILED   digits  12 ms"]


def test_a_main_figure_without_room_stands_below_its_row_and_is_not_cut() -> None:
    table = fit_table(UPGRADES, ROWS, 34, left=2, order=ORDER)
    assert table.below == ["B / A ×1.006 (0.967 to 1.030)", "B / A ×1.101 (1.083 to 1.112)"]
    assert [row.split()[0] for row in table.rows] == ["PASSED", "REGRESSED"]


def test_wide_characters_take_two_columns_and_accents_none() -> None:
    rows = [["モデル", "1 ms"], ["e\u0301te\u0301", "20 ms"], ["model", "3 ms"]]
    assert format_table(["name", "p50"], rows, 40, left=1) == [
        ["name      p50"],
        ["モデル   1 ms"],
        ["e\u0301te\u0301     20 ms"],
        ["model    3 ms"],
    ]


@given(st.lists(st.tuples(wide, wide, numbers), min_size=1, max_size=5), st.integers(32, 90))
def test_no_line_of_wide_characters_is_wider_than_the_terminal(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    header, *folded_rows = format_table(["a", "b", "c"], rows, width, left=2)
    for row, lines in zip(rows, folded_rows, strict=True):
        assert sorted("".join(lines).replace(" ", "")) == sorted("".join(row))
    fitted = fit_table(["a", "b", "c"], rows, width, left=2)
    for line in [*header, *itertools.chain(*folded_rows), fitted.header, *fitted.rows]:
        assert columns_of(line) <= width
