from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_mlms.errors import DatasetError
from pytest_mlms.manifest import load
from pytest_mlms.manifest.schema import Input
from pytest_mlms.pipeline import Dataset
from pytest_mlms.pipeline import dataset as module
from pytest_mlms.pipeline import open_dataset as open_at
from pytest_mlms.records import Place
from tests.support.project import DIGITS

TENSOR = [Input.model_validate({"name": "x", "type": "tensor", "element_type": "float32"})]
IMAGE = [
    Input.model_validate(
        {
            "name": "x",
            "type": "image",
            "element_type": "float32",
            "layout": "NHWC",
            "steps": ["decode"],
        }
    )
]


def open_dataset(path: Path, inputs: list[Input]) -> Dataset:
    return open_at(path, inputs, Place(Path("m.yaml"), 30))


def npz(folder: Path, **arrays: object) -> Path:
    np.savez(folder / "d.npz", **arrays)  # type: ignore[arg-type]
    return folder / "d.npz"


def test_the_shipped_dataset_has_600_labelled_images() -> None:
    data = open_dataset(DIGITS / "digits_test.npz", load(DIGITS / "digits.yaml").manifest.inputs)
    assert len(data) == 600
    assert data.labels is not None
    assert sorted(set(data.labels.tolist())) == list(range(10))
    batch = data.batch([0, 599])["image"]
    assert batch.shape == (2, 1, 8, 8)
    assert batch.max() <= 1


def test_batches_are_in_order_and_the_last_is_filled_up(tmp_path: Path) -> None:
    data = open_dataset(npz(tmp_path, x=np.arange(7.0)[:, None], label=np.arange(7)), TENSOR)
    assert [batch["x"][:, 0].tolist() for batch in data.batches(3)] == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 6, 6],
    ]


def test_batches_are_made_ahead_while_the_last_one_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = threading.Semaphore(0)
    preprocess = module.preprocess

    def counting(*arguments: object) -> object:
        made.release()
        return preprocess(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "preprocess", counting)
    data = open_dataset(npz(tmp_path, x=np.zeros((50, 1)), label=np.zeros(50, int)), TENSOR)
    batches = data.batches(5)
    next(batches)
    assert all(
        made.acquire(timeout=600) for _ in range(4)
    )  # the first, and three more that nobody asked for yet
    batches.close()


def test_abandoned_batches_leave_no_thread(tmp_path: Path) -> None:
    data = open_dataset(npz(tmp_path, x=np.zeros((50, 1)), label=np.zeros(50, int)), TENSOR)
    batches = data.batches(5)
    next(batches)
    batches.close()
    end = time.monotonic() + 600
    while any(thread.name.startswith("mlms-decode") for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        (
            {"y": np.zeros(3), "label": np.zeros(3, int)},
            r"has the arrays \['label', 'y'\]; expected one for input 'x'",
        ),
        (
            {"x": np.zeros((3, 1)), "label": np.zeros(2, int)},
            "has 3 of 'x', 2 of 'label'; each input and 'label' must",
        ),
        ({"x": np.zeros((0, 1)), "label": np.zeros(0, int)}, "and not 0"),
        (
            {"x": np.zeros((3, 1)), "label": np.zeros((3, 2), int)},
            "has 'label' as int64 .*expected one whole number",
        ),
        ({"x": np.zeros((3, 1)), "label": np.zeros(3)}, "has 'label' as float64"),
    ],
)
def test_arrays_that_do_not_fit_are_named(
    tmp_path: Path, arrays: dict[str, np.ndarray], says: str
) -> None:
    with pytest.raises(DatasetError, match=says):
        open_dataset(npz(tmp_path, **arrays), TENSOR)


def test_what_is_no_npz_of_plain_arrays_is_refused_and_never_unpickled(tmp_path: Path) -> None:
    (tmp_path / "d.npz").write_bytes(b"<html>")
    with pytest.raises(DatasetError, match=r"is not an \.npz file of plain arrays"):
        open_dataset(tmp_path / "d.npz", TENSOR)
    whole = npz(tmp_path, x=np.zeros((99, 9)), label=np.zeros(99, int)).read_bytes()
    for damaged in (b"", whole[:40], whole[:200] + b"?" * 100 + whole[300:]):
        (tmp_path / "d.npz").write_bytes(damaged)
        with pytest.raises(DatasetError, match=r"is not an \.npz file of plain arrays"):
            open_dataset(tmp_path / "d.npz", TENSOR)
    np.save(tmp_path / "d.npy", np.zeros(3))
    with pytest.raises(DatasetError, match=r"is not an \.npz file of plain arrays"):
        open_dataset(tmp_path / "d.npy", TENSOR)
    with pytest.raises(DatasetError, match="Object arrays cannot be loaded"):
        open_dataset(npz(tmp_path, x=np.array([print, len], dtype=object)), TENSOR)


def folder_of_images(folder: Path, table: str) -> Path:
    (folder / "set").mkdir()
    for number in range(3):
        image = np.full((4 + number, 4, 3), number, np.uint8)
        Image.fromarray(image).save(folder / "set" / f"{number}.png")
    (folder / "set" / "labels.csv").write_text(table)
    return folder


def test_a_folder_of_images_has_its_labels_in_a_table(tmp_path: Path) -> None:
    data = open_dataset(folder_of_images(tmp_path, "file,label\n2.png,7\n0.png,1\n"), IMAGE)
    assert len(data) == 2
    assert data.labels is not None
    assert data.labels.tolist() == [7, 1]
    assert data.batch([0])["x"].shape == (1, 6, 4, 3)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("name,label\n0.png,1\n", "without the columns file and label"),
        (f"file,label\n0.png,{10**30}\n", "without the columns file and label, a whole number"),
        (
            "file,label\n" + "x" * 200_000 + ",1\n",
            "without the columns file and label, a whole number",
        ),
        ("file,label\n0.png,cat\n", "without the columns file and label, a whole number"),
        ("file,label\n", "and not 0"),
    ],
)
def test_a_table_that_does_not_fit_is_named(tmp_path: Path, table: str, says: str) -> None:
    with pytest.raises(DatasetError, match=says):
        open_dataset(folder_of_images(tmp_path, table), IMAGE)


def test_a_listed_file_that_is_missing_is_named(tmp_path: Path) -> None:
    data = open_dataset(folder_of_images(tmp_path, "file,label\n9.png,1\n"), IMAGE)
    with pytest.raises(DatasetError, match=r"^m\.yaml:30: .*: 9\.png can't be read: No such file"):
        data.batch([0])
    with pytest.raises(
        DatasetError, match=r"has 0 labels\.csv, for 1 inputs; expected one for one"
    ):
        open_dataset(tmp_path / "set" / "..", IMAGE) if not (
            tmp_path / "set" / "labels.csv"
        ).unlink() else None
