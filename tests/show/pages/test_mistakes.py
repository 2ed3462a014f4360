"""Charts of mistakes by class."""

from __future__ import annotations

from pytest_mlms.measure.evaluate.tasks.task import ClassCounts
from pytest_mlms.show.pages.mistakes import Confusion, classes_chart, mistakes_chart
from tests.support.svg import marks, texts, titles


def test_mistakes_are_bars_with_the_most_frequent_on_top() -> None:
    counts = {("a", "a"): 90, ("a", "b"): 3, ("b", "a"): 7, ("b", "b"): 100}
    chart = mistakes_chart(Confusion(["a", "b"], counts))
    assert "7 inputs of class b taken for a" in titles(chart)
    assert {"b → a", "a → b", "7", "3"} <= texts(chart)


def test_a_class_has_parts_for_what_is_found_missed_and_wrong() -> None:
    chart = classes_chart([ClassCounts("cat", 10, 7, 2), ClassCounts("dog", 4, 4, 0)])
    assert "cat: 7 found, 3 missed, 2 wrong" in titles(chart)
    assert len(marks(chart, "rect")) == 4
