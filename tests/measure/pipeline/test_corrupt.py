"""Corrupt elements that a manifest allows to be left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.records import Place
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.pipeline import Dataset, LabelForm, open_dataset, without_corrupt

HERE = Place(Path("m.yaml"), 30)
IMAGE = {"name": "x", "element_type": "float32", "type": "image", "layout": "NHWC"}
BAD = (0, 3, 4)
COUNT = 70


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of 70 pictures and masks; three pictures are damaged, and the mask of another."""
    rows = ["file,label"]
    for number in range(COUNT):
        pixels = np.full((4, 4), number, np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        Image.fromarray(pixels).save(tmp_path / f"m{number}.png")
        rows.append(f"{number}.png,m{number}.png")
    for number in BAD:
        (tmp_path / f"{number}.png").write_bytes(b"not a picture")
    (tmp_path / "m69.png").unlink()
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    return tmp_path


def opened(folder: Path, form: LabelForm = "text") -> Dataset:
    spec = Input.model_validate({**IMAGE, "steps": [{"decode": {"color": "L"}}]})
    return open_dataset(folder, [spec], HERE, "set.zip", form)


def test_corrupt_elements_are_left_out_and_named(folder: Path) -> None:
    data = without_corrupt(opened(folder), 3)
    assert len(data) == COUNT - 3
    assert data.files is not None
    assert data.labels is not None
    assert data.files[0] == "1.png"
    assert data.labels[0] == "m1.png"
    assert data.place(2) == "labels.csv:7: 5.png"
    assert [each.element for each in data.skipped] == [
        "labels.csv:2: 0.png",
        "labels.csv:5: 3.png",
        "labels.csv:6: 4.png",
    ]
    assert "are not an image of" in data.skipped[0].error
    values = [int(batch["x"][row, 0, 0, 0]) for batch in data.batches(4) for row in range(4)]
    assert values[: len(data)] == [number for number in range(COUNT) if number not in BAD]


def test_a_label_that_can_not_be_read_is_corrupt(folder: Path) -> None:
    data = without_corrupt(opened(folder, "mask"), 4)
    assert data.skipped[-1].element == "labels.csv:71: 69.png"
    assert data.labels is not None
    assert np.asarray(data.labels[0]).tolist() == [[1] * 4] * 4


def test_more_than_the_allowed_are_an_error(folder: Path) -> None:
    message = (
        r"^m\.yaml:30: set\.zip: more than 2 of its elements are corrupt, such as labels\.csv:2: "
        r"0\.png: .*; labels\.csv:6: 4\.png: .*; replace them, or write a larger skip_corrupt$"
    )
    with pytest.raises(DatasetError, match=message):
        without_corrupt(opened(folder), 2)


def test_without_a_number_nothing_is_read(folder: Path) -> None:
    data = opened(folder)
    assert without_corrupt(data, 0) is data


def npz(folder: Path, **arrays: Any) -> Dataset:
    path = folder / "d.npz"
    np.savez(path, **arrays)
    steps = [{"resize": {"size": [4, 4]}}, {"crop": {"size": [4, 4]}}]
    spec = Input.model_validate({**IMAGE, "steps": steps})
    return open_dataset(path, [spec], HERE, "d.npz")


def test_a_dataset_that_is_all_corrupt_is_an_error(tmp_path: Path) -> None:
    data = npz(tmp_path, x=np.zeros((3, 0, 4, 3), np.uint8), label=np.arange(3))
    with pytest.raises(DatasetError, match=r"d\.npz: all of its elements are corrupt, such as"):
        without_corrupt(data, 3)


def test_rows_of_arrays_keep_their_numbers_and_labels(tmp_path: Path) -> None:
    data = npz(tmp_path, x=np.zeros((3, 4, 4, 3), np.uint8), label=np.array([5, 6, 7]))

    class OneIsWrong(Dataset):
        def check_element(self, index: int) -> None:
            if index == 1:
                raise DatasetError("it is wrong")

    fields = vars(data)
    found = without_corrupt(OneIsWrong(**fields), 1)
    assert np.asarray(found.labels).tolist() == [5, 7]
    assert found.element_name(1) == "row 2 of m.yaml:30: d.npz"
    assert found.place(1) == "element 2"
