"""Matrix of a classification."""

from __future__ import annotations

from pytest_mlms.show.pages.mistakes import Confusion, confusion_matrix
from tests.support.result_lines import HOSTILE
from tests.support.svg import texts, titles


def test_a_matrix_has_a_row_for_each_label_and_hostile_names_stay_text() -> None:
    counts = {("a", "a"): 9, (HOSTILE, "a"): 1}
    chart = confusion_matrix(Confusion(["a", HOSTILE], counts))
    assert "<script>" not in chart
    assert {"9", "1"} <= texts(chart)
    assert "9 inputs are right of class a" in titles(chart)
