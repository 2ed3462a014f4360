"""Mistakes of a classification, from predictions.csv."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.core.records import Verdict
from pytest_mlms.keep.results.line import ManifestRecord, StackRecord
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.mistakes import Mistake, read_confusion


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
