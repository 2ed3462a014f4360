"""Mistakes by class."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.core.records import Verdict
from pytest_mlms.keep.results.line import ManifestRecord, StackRecord
from pytest_mlms.measure.evaluate.tasks.task import ClassCounts
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.mistakes import (
    Confusion,
    Mistake,
    classes_chart,
    confusion_matrix,
    mistakes_chart,
    read_classes,
    read_confusion,
    worst_classes,
)
from tests.support.result_lines import HOSTILE
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


def item_with(folder: Path, predictions: str) -> ItemView:
    (folder / "p.csv").write_text(predictions)
    return ItemView(
        nodeid="m.yaml::test_accuracy[x]",
        kind="accuracy",
        verdict=Verdict.FAILED,
        manifest=ManifestRecord(name="m"),
        stack=StackRecord("here"),
        folder=folder,
        artifacts={"predictions.csv": "p.csv"},
    )


def test_inputs_are_counted_by_label_and_best_class(tmp_path: Path) -> None:
    rows = ["0,10,2,0.9", "1,2,2,0.9", "2,10,2,0.5", "3,2,a,0.5"]
    item = item_with(tmp_path, "\n".join(["input,label,class_1,probability_1", *rows]))
    confusion = read_confusion(item)
    assert confusion is not None
    assert list(confusion.classes) == ["2", "10", "a"]
    assert confusion.wrong == 3
    assert confusion.top_mistakes(1) == [Mistake("10", "2", 2)]


@pytest.mark.parametrize(
    "predictions",
    ["", "input,found,missed\n0,1,2", "input,label,class_1\n0,1", "input,label,class_1\n0,\x00"],
)
def test_another_table_or_a_damaged_one_says_nothing(tmp_path: Path, predictions: str) -> None:
    assert read_confusion(item_with(tmp_path, predictions)) is None


def test_a_file_outside_of_the_run_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    item = item_with(folder, "input,label,class_1\n0,a,b")
    (folder / "p.csv").rename(tmp_path / "p.csv")
    (folder / "p.csv").symlink_to(tmp_path / "p.csv")
    assert read_confusion(item) is None


def test_classes_are_read_the_worst_first(tmp_path: Path) -> None:
    table = "name,labelled,right,wrong\ncat,10,9,0\ndog,10,5,3\nowl,4,4,0\n"
    item = replace(item_with(tmp_path, table), artifacts={"classes.csv": "p.csv"})
    classes = read_classes(item)
    assert worst_classes(classes, 2) == [ClassCounts("dog", 10, 5, 3), ClassCounts("cat", 10, 9, 0)]


@pytest.mark.parametrize(
    "table", ["", "name,labelled\ncat,3\n", "name,labelled,right,wrong\ncat,many,1,1\n"]
)
def test_a_damaged_table_says_nothing(tmp_path: Path, table: str) -> None:
    item = replace(item_with(tmp_path, table), artifacts={"classes.csv": "p.csv"})
    assert read_classes(item) == []


def test_a_matrix_has_a_row_for_each_label_and_hostile_names_stay_text() -> None:
    counts = {("a", "a"): 9, (HOSTILE, "a"): 1}
    chart = confusion_matrix(Confusion(["a", HOSTILE], counts))
    assert "<script>" not in chart
    assert {"9", "1"} <= texts(chart)
    assert "9 inputs are right of class a" in titles(chart)
