"""Datasets in .npz files and in folders of images."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from pytest_mlms.errors import DatasetError
from pytest_mlms.manifest import load
from pytest_mlms.manifest.schema import Input
from pytest_mlms.pipeline import dataset as module
from pytest_mlms.pipeline.dataset import Dataset, open_dataset
from pytest_mlms.pipeline.inputs import preprocess
from pytest_mlms.records import Place
from tests.support.project import DIGITS

HANG_GUARD = 300.0  # seconds
HERE = Place(Path("m.yaml"), 30)

Array = np.ndarray[Any, Any]


def make_input(**fields: Any) -> Input:
    return Input.model_validate({"name": "x", "element_type": "float32", **fields})


TENSOR = make_input(type="tensor")
IMAGE = make_input(type="image", layout="NHWC", steps=["decode"])


def open_tensors(path: Path) -> Dataset:
    return open_dataset(path, [TENSOR], HERE)


def open_images(path: Path) -> Dataset:
    return open_dataset(path, [IMAGE], HERE)


def write_npz(folder: Path, **arrays: Any) -> Path:
    path = folder / "d.npz"
    np.savez(path, **arrays)
    return path


@pytest.fixture
def fifty(tmp_path: Path) -> Dataset:
    """A dataset of 50 elements."""
    labels = np.zeros(50, int)
    return open_tensors(write_npz(tmp_path, x=np.zeros((50, 1)), label=labels))


def test_the_shipped_dataset_has_600_labelled_images() -> None:
    manifest = load(DIGITS / "digits.yaml").manifest
    data = open_dataset(DIGITS / "digits_test.npz", manifest.inputs, HERE)
    assert len(data) == 600
    assert data.labels is not None
    assert sorted(set(data.labels.tolist())) == list(range(10))
    batch = data.batch([0, 599])["image"]
    assert batch.shape == (2, 1, 8, 8)
    assert batch.max() <= 1


def test_a_dataset_may_be_without_labels(tmp_path: Path) -> None:
    assert open_tensors(write_npz(tmp_path, x=np.zeros((3, 1)))).labels is None


def test_batches_are_in_order_and_the_last_is_filled_up(tmp_path: Path) -> None:
    data = open_tensors(write_npz(tmp_path, x=np.arange(7.0)[:, None], label=np.arange(7)))
    batches = [batch["x"][:, 0].tolist() for batch in data.batches(3)]
    assert batches == [[0, 1, 2], [3, 4, 5], [6, 6, 6]]


def first_batch(data: Dataset) -> Generator[Any, None, None]:
    """Return the batches of a dataset after the first one, which was used."""
    batches = cast("Generator[Any, None, None]", data.batches(5))
    next(batches)
    return batches


def test_batches_are_prepared_while_the_last_one_is_used(
    fifty: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = threading.Semaphore(0)

    def counting(*arguments: Any) -> Array:
        prepared.release()
        return preprocess(*arguments)

    monkeypatch.setattr(module, "preprocess", counting)
    batches = first_batch(fifty)
    for _ in range(4):  # the first, and three more that nothing has asked for
        assert prepared.acquire(timeout=HANG_GUARD)
    batches.close()


def is_decoding() -> bool:
    names = [thread.name for thread in threading.enumerate()]
    return any(name.startswith("mlms-decode") for name in names)


def test_batches_that_are_abandoned_leave_no_thread(fifty: Dataset) -> None:
    first_batch(fifty).close()
    end = time.monotonic() + HANG_GUARD
    while is_decoding():
        assert time.monotonic() < end
        time.sleep(0.01)


ELEMENTS = np.zeros((3, 1))
LABELS = np.zeros(3, int)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": ELEMENTS}, r"has the arrays \['y'\]; expected one for input 'x'"),
        ({"x": ELEMENTS, "label": LABELS[:2]}, "has 3 of 'x', 2 of 'label'; each input and"),
        ({"x": ELEMENTS[:0], "label": LABELS[:0]}, "has 0 of 'x', .*and not 0"),
        ({"x": ELEMENTS, "label": np.zeros((3, 2), int)}, "has 'label' as int64 .*expected one"),
        ({"x": ELEMENTS, "label": np.zeros(3)}, "has 'label' as float64"),
    ],
    ids=["other name", "fewer labels", "nothing", "labels of two axes", "labels of floats"],
)
def test_arrays_that_do_not_fit_are_an_error(
    tmp_path: Path, arrays: dict[str, Array], message: str
) -> None:
    with pytest.raises(DatasetError, match=rf"^m\.yaml:30: .*d\.npz {message}"):
        open_tensors(write_npz(tmp_path, **arrays))


def whole_file(folder: Path) -> bytes:
    return write_npz(folder, x=np.zeros((99, 9)), label=np.zeros(99, int)).read_bytes()


def test_files_that_are_damaged_are_an_error(tmp_path: Path) -> None:
    whole = whole_file(tmp_path)
    overwritten = whole[:200] + b"?" * 100 + whole[300:]
    path = tmp_path / "d.npz"
    for damaged in (b"<html>", b"", whole[:40], overwritten):
        path.write_bytes(damaged)
        with pytest.raises(DatasetError, match=r"is not an \.npz file of plain arrays"):
            open_tensors(path)


def test_a_file_of_a_single_array_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "d.npy"
    np.save(path, np.zeros(3))
    with pytest.raises(DatasetError, match="it holds a single array; write it with numpy.savez"):
        open_tensors(path)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    objects = np.array([print, len], dtype=object)
    with pytest.raises(DatasetError, match="Object arrays cannot be loaded"):
        open_tensors(write_npz(tmp_path, x=objects))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder with three images, of heights 4, 5 and 6."""
    folder = tmp_path / "set"
    folder.mkdir()
    for number in range(3):
        pixels = np.full((4 + number, 4, 3), number, np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def test_a_folder_of_images_has_its_labels_in_a_table(images: Path) -> None:
    (images / "labels.csv").write_text("file,label\n2.png,7\n0.png,1\n")
    data = open_images(images.parent)
    assert len(data) == 2
    assert data.labels is not None
    assert data.labels.tolist() == [7, 1]
    assert data.batch([0])["x"].shape == (1, 6, 4, 3)


COLUMNS = r"labels\.csv:1: the first line names the columns, here .*; write 'file,label'"
NUMBER = r"labels\.csv:2: the label of 0\.png is '.*'; write the number of its class, from 0"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("name,label\n0.png,1\n", COLUMNS),
        ("file;label\n0.png;1\n", COLUMNS),
        (f"file,label\n0.png,{10**30}\n", NUMBER),
        (f"file,label\n{'x' * 200_000},1\n", r"labels\.csv:1: field larger than .* \(131072\);"),
        ("file,label\n0.png,cat\n", NUMBER),
        ("file,label\n0.png,0.5\n", NUMBER),
        ("file,label\n0.png\n", NUMBER),
        ("file,label\n0.png,0\n,1\n", r"labels\.csv:3: names no file"),
        ("file,label\n", "and not 0"),
    ],
    ids=[
        "other column",
        "semicolons",
        "large number",
        "long name",
        "word",
        "half",
        "no label",
        "no file",
        "nothing",
    ],
)
def test_a_table_that_does_not_fit_is_an_error(images: Path, table: str, message: str) -> None:
    (images / "labels.csv").write_text(table)
    with pytest.raises(DatasetError, match=message):
        open_images(images.parent)


@pytest.mark.parametrize(
    "table",
    [
        "\ufefffile,label\n2.png,7\n",
        "file, label\n2.png, 7\n",
        "file,label\r\n2.png,7 \r\n\r\n , \r\n",
        "file,label\n2.png,7.0\n",
        '"file","label"\n"2.png","7"\n',
        "label,note,file\n7,a cat,2.png\n",
    ],
    ids=["byte order mark", "blanks", "empty lines", "as a float", "quotes", "further column"],
)
def test_tables_of_spreadsheets_are_read(images: Path, table: str) -> None:
    (images / "labels.csv").write_bytes(table.encode())
    data = open_images(images)
    assert data.labels is not None
    assert data.labels.tolist() == [7]
    assert data.files == ["2.png"]
    assert data.batch([0])["x"].shape == (1, 6, 4, 3)


def test_a_table_that_is_not_utf_8_is_an_error(images: Path) -> None:
    (images / "labels.csv").write_bytes("file,label\nä.png,1\n".encode("latin-1"))
    with pytest.raises(DatasetError, match=r"labels\.csv is not UTF-8 \(byte 11\); save it"):
        open_images(images)


def test_an_unreadable_picture_is_named_with_its_archive(images: Path) -> None:
    (images / "cats").mkdir()
    (images / "cats" / "bad.png").write_bytes(b"not an image")
    (images / "labels.csv").write_text("file,label\n0.png,0\ncats/bad.png,1\n")
    data = open_dataset(images, [IMAGE], HERE, "photos.zip")
    message = r"^m\.yaml:30: photos\.zip: cats/bad\.png: step 1 of input 'x', decode: 12 bytes"
    with pytest.raises(DatasetError, match=message):
        data.batch([0, 1])


def test_an_array_that_does_not_fit_is_named_by_its_number(tmp_path: Path) -> None:
    path = write_npz(tmp_path, x=np.zeros((3, 4, 4)))
    steps = ["decode"]
    spec = make_input(type="image", layout="NHWC", steps=steps)
    data = open_dataset(path, [spec], HERE, "d.npz")
    with pytest.raises(DatasetError, match=r"^m\.yaml:30: d\.npz: element 1: step 1 of input"):
        data.batch([1, 2])


def test_a_listed_file_that_is_missing_is_an_error_when_it_is_read(images: Path) -> None:
    (images / "labels.csv").write_text("file,label\n9.png,1\n")
    data = open_images(images)
    with pytest.raises(
        DatasetError, match=r"^m\.yaml:30: .*: 9\.png can't be read: No such file .*; correct"
    ):
        data.batch([0])


def test_a_folder_without_a_table_is_an_error(images: Path) -> None:
    message = r"has 0 labels\.csv, for 1 inputs; an archive has one"
    with pytest.raises(DatasetError, match=message):
        open_images(images)
