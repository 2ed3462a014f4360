"""Tables as lines of text that fit a width."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.show.report.table import KEEP, format_table

words = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=30)
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
