"""Results by class, read from classes.csv."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.measure.evaluate.tasks.task import ClassCounts
from pytest_mlms.show.pages.mistakes import read_classes, worst_classes
from tests.show.pages.test_confusion import item_with


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
