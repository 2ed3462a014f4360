from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.report.table import KEEP, format_table

words = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=30)


def test_columns_are_aligned_and_numbers_stand_right() -> None:
    header, first, second = format_table(
        ["case", "p50"], [["a", "1.00 ms"], ["long name", "5 s"]], 40, left=1
    )
    assert header == ["case           p50"]
    assert first == ["a          1.00 ms"]
    assert second == ["long name      5 s"]


def test_a_cell_that_is_too_long_folds_and_loses_nothing() -> None:
    (_, row) = format_table(["case", "n"], [["one-two-three-four-five", "1"]], 14, left=1)
    assert len(row) > 1
    assert "".join(line[:11].strip() for line in row) == "one-two-three-four-five"


def test_words_are_broken_last() -> None:
    header = ["model", "case", "top-1 (interval)"]
    rows = [["digits-cnn", "onnxruntime-cpu", "99.00 (97.84 to 99.54) %"]]
    (_, row) = format_table(header, rows, 43, left=2)
    assert [" ".join(line.split()) for line in row] == [
        "digits- onnxruntime- 99.00 (97.84 to",
        "cnn cpu 99.54) %",
    ]
    (_, row) = format_table(header, rows, 30, left=2)
    assert [" ".join(line.split()) for line in row[:2]] == [
        "digits- onnxrunti 99.00",
        "cnn me-cpu (97.84 to",
    ]


def test_a_verdict_and_an_interval_stay_whole() -> None:
    row = ["INCONCLUSIVE", "cpu-b8", f"×1.029 (1.001{KEEP}to{KEEP}1.048)"]
    assert format_table(["verdict", "case", "B / A"], [row], 38, left=2)[1] == [
        "INCONCLUSIVE  cpu-b8            ×1.029",
        "                      (1.001 to 1.048)",
    ]


@given(
    st.lists(st.tuples(words, words, st.integers(0, 10**6).map(str)), min_size=1, max_size=5),
    st.integers(30, 120),
)
def test_no_line_is_wider_than_asked_and_no_letter_is_lost(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    for row, lines in zip(
        rows, format_table(["a", "b", "c"], rows, width, left=2)[1:], strict=True
    ):
        assert all(len(line) <= width for line in lines)
        assert sorted("".join(lines).replace(" ", "")) == sorted("".join(row))
