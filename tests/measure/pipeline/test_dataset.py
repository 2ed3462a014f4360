"""Datasets in .npz files and in folders of images."""

from __future__ import annotations

import os
import struct
import threading
import time
import zipfile
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from pytest_mlms.core import memory
from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.records import Place
from pytest_mlms.manifest import load
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.evaluate.timed_inputs import TimedInputs
from pytest_mlms.measure.pipeline import dataset as module
from pytest_mlms.measure.pipeline.dataset import Dataset, open_dataset
from pytest_mlms.measure.pipeline.geometry import Geometry
from pytest_mlms.measure.pipeline.inputs import preprocess
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


def labels_of(data: Dataset) -> list[int]:
    assert isinstance(data.labels, np.ndarray)
    return [int(label) for label in data.labels]


@pytest.fixture
def fifty(tmp_path: Path) -> Dataset:
    """A dataset of 50 elements."""
    labels = np.zeros(50, int)
    return open_tensors(write_npz(tmp_path, x=np.zeros((50, 1)), label=labels))


def test_the_shipped_dataset_has_600_labelled_images() -> None:
    manifest = load(DIGITS / "digits.yaml").manifest
    data = open_dataset(DIGITS / "digits_test.npz", manifest.inputs, HERE)
    assert len(data) == 600
    assert sorted(set(labels_of(data))) == list(range(10))
    batch = data.batch([0, 599])["image"]
    assert batch.shape == (2, 1, 8, 8)
    assert batch.max() <= 1


@pytest.mark.parametrize(("shape", "value"), [([], 16000), ([1, 2], [[1.0, 2.0]])])
def test_an_input_without_a_batch_may_be_one_array_for_all_elements(
    tmp_path: Path, shape: list[int], value: Any
) -> None:
    alike = make_input(name="alike", type="tensor", shape=shape)
    path = write_npz(tmp_path, x=np.zeros((3, 2)), alike=value)
    data = open_dataset(path, [alike, TENSOR], HERE)
    assert len(data) == 3
    batch = data.batch([1, 2])
    assert batch["x"].shape == (2, 2)
    assert np.array_equal(batch["alike"], np.array(value, np.float32))


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


def test_a_table_without_its_files_is_refused_with_what_to_name(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("file,label\ntom.jpg,0\n")
    with pytest.raises(DatasetError, match="is a table alone; name an archive that holds it"):
        open_dataset(table, [TENSOR], HERE)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    objects = np.array([print, len], dtype=object)
    with pytest.raises(
        DatasetError, match="the array 'x' of objects, which would have to be unpickled"
    ):
        open_tensors(write_npz(tmp_path, x=objects))


def npy_header(descr: str, shape: str) -> bytes:
    """Return the header of an array that says what no array of numpy is."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (
            npy_header("<f8", "(1000000000000,)") + b"x" * 80,
            "has the array 'x' as float64 1000000000000, and the file has 80 bytes of it; write it",
        ),
        (
            npy_header("<f8", f"({10**20}, 3)"),
            "as float64 1e20 x 3, and".replace("1e20", "1" + "0" * 20),
        ),
        (npy_header("<f8", "(-1,)"), "as float64 -1, and the file has 0 bytes"),
        (npy_header("<f8", "()") + b"x" * 8, "has 'x' as a single number, expected a row for each"),
        (
            npy_header("<c8", "(1,)") + b"x" * 8,
            "has the array 'x' of complex64, not of real numbers",
        ),
        (npy_header("<U2", "(1,)") + b"x" * 8, "has the array 'x' of <U2, not of real numbers"),
        (npy_header("|V8", "(1,)") + b"x" * 8, "not of real numbers"),
        (npy_header("|O", "(1,)") + b"x" * 8, "of objects, which would have to be unpickled"),
        (npy_header("<f8", "(1,"), "with a damaged header: "),
        (npy_header("<f8", "[1]"), "with a damaged header: "),
        (npy_header("<f8", "(" * 300), "with a damaged header: "),
        (b"\x93NUMPY\x09\x00", "with a damaged header: "),
        (b"", "with a damaged header: "),
    ],
)
def test_an_array_that_is_not_what_its_header_says_is_an_error(
    tmp_path: Path, member: bytes, message: str
) -> None:
    path = tmp_path / "d.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", member)
    with pytest.raises(DatasetError) as raised:
        open_tensors(path)
    assert message in str(raised.value)
    assert str(raised.value).startswith(f"m.yaml:30: {path} has ")


def test_a_label_that_is_a_single_number_is_an_error(tmp_path: Path) -> None:
    path = write_npz(tmp_path, x=ELEMENTS, label=np.int64(3))
    with pytest.raises(DatasetError, match="has 'label' as a single number"):
        open_tensors(path)


@pytest.mark.parametrize("kind", ["<f4", ">f8", "|b1", "<u2", "<f2", ">i8"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_are_those_that_numpy_reads(
    tmp_path: Path, kind: str, order: Any, save: Any
) -> None:
    values = np.arange(24).reshape(2, 3, 4) % 7
    path = tmp_path / "d.npz"
    save(path, x=np.asarray(values, dtype=kind, order=order))
    read = open_tensors(path).elements["x"]
    assert isinstance(read, np.ndarray)
    with np.load(path) as expected:
        assert np.array_equal(read, expected["x"])
        assert read.dtype == expected["x"].dtype


def test_arrays_that_nobody_uses_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    open_member = zipfile.ZipFile.open

    def noting(archive: zipfile.ZipFile, member: Any, *rest: Any, **options: Any) -> Any:
        opened.append(member.filename)
        return open_member(archive, member, *rest, **options)

    path = write_npz(tmp_path, x=ELEMENTS, other=np.zeros(10**6))
    monkeypatch.setattr(zipfile.ZipFile, "open", noting)
    assert len(open_tensors(path)) == 3
    assert opened == ["x.npy"]


def test_an_array_that_would_not_fit_into_memory_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 1 << 20)
    path = write_npz(tmp_path, x=np.zeros(1 << 18))
    message = "has the array 'x', which takes 2.00 MiB of memory, and 1.00 MiB are free; write"
    with pytest.raises(DatasetError, match=message):
        open_tensors(path)


def test_a_batch_that_would_not_fit_into_memory_is_an_error_before_it_is_made(
    fifty: Dataset,
) -> None:
    with pytest.raises(
        DatasetError, match=r"a batch of 1,[0,]+ takes .* of memory, and .* are free; wr"
    ):
        next(fifty.batches(10**15))
    with pytest.raises(DatasetError, match="write smaller batch_sizes"):
        TimedInputs(fifty, 10**15, seed=0, run_seed=0)


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
    assert labels_of(data) == [7, 1]
    assert data.batch([0])["x"].shape == (1, 6, 4, 3)


COLUMNS = r"labels\.csv:1: the first line names the columns, here .*; write 'file,label'"
OUTSIDE = r"labels\.csv:2: {} leads outside the dataset; write a path below the dataset's folder"
NUMBER = r"labels\.csv:2: the label of 0\.png is '.*'; write the number of its class, from 0"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("name,label\n0.png,1\n", COLUMNS),
        ("file;label\n0.png;1\n", COLUMNS),
        (f"file,label\n0.png,{10**30}\n", NUMBER),
        (f"file,label\n{'x' * 200_000},1\n", r"labels\.csv:2: field larger than .* \(131072\);"),
        ("file,label\n0.png,cat\n", NUMBER),
        ("file,label\n0.png,0.5\n", NUMBER),
        ("file,label\n0.png\n", r"labels\.csv:2: has no label; write one after a comma"),
        ("file,label\n0.png,\n", NUMBER),
        ("file,label\n0.png,0\n,1\n", r"labels\.csv:3: names no file"),
        ("file,label\n../../0.png,0\n", OUTSIDE.format(r"\.\./\.\./0\.png")),
        ("file,label\na/../../../0.png,0\n", OUTSIDE.format("a/.*")),
        ("file,label\n/dev/zero,0\n", OUTSIDE.format("/dev/zero")),
        ("file,label\n0\0.png,0\n", r"labels\.csv:[12]: "),  # 1: Python 3.10
        ("file,label\n0.png,1\0\n", r"labels\.csv:[12]: "),
        ("file,label\n0.png,1,yes\n", r"labels\.csv:2: has 3 cells for 2 columns; put a cell with"),
        ("file,label,label\n0.png,1,2\n", r"labels\.csv:1: there are several columns label; leave"),
        (
            'file,label\n1.png,0\n"0.png,1\n2.png,1\n',
            r"labels\.csv:3: unexpected end of data; write",
        ),
        ('file,label\n"0.png"x,1\n', r"labels\.csv:2: .* expected after"),
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
        "empty label",
        "no file",
        "parent",
        "parent of a folder",
        "absolute",
        "zero byte in a name",
        "zero byte in a label",
        "cell without a column",
        "two columns of a name",
        "open quote",
        "text behind a quote",
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
        "label,file,,\n7,2.png,,\n",
        "label,file\n7,2.png,,\n",
    ],
    ids=["byte order mark", "blanks", "empty lines", "as a float", "quotes", "further column"]
    + ["columns without a name", "empty cells"],
)
def test_tables_of_spreadsheets_are_read(images: Path, table: str) -> None:
    (images / "labels.csv").write_bytes(table.encode())
    data = open_images(images)
    assert labels_of(data) == [7]
    assert data.files == ["2.png"]
    assert data.batch([0])["x"].shape == (1, 6, 4, 3)


def test_a_table_that_is_not_utf_8_is_an_error(images: Path) -> None:
    (images / "labels.csv").write_bytes("file,label\nä.png,1\n".encode("latin-1"))
    with pytest.raises(DatasetError, match=r"labels\.csv:2 is not UTF-8 \(byte 11\); save it"):
        open_images(images)


def test_an_unreadable_picture_is_named_with_its_archive(images: Path) -> None:
    (images / "cats").mkdir()
    (images / "cats" / "bad.png").write_bytes(b"not an image")
    (images / "labels.csv").write_text("file,label\n0.png,0\ncats/bad.png,1\n")
    data = open_dataset(images, [IMAGE], HERE, "photos.zip")
    message = r"^m\.yaml:30: photos\.zip: labels\.csv:3: cats/bad\.png: step 1 of input 'x', decode: 12 bytes"
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
        DatasetError,
        match=r"^m\.yaml:30: .*: labels\.csv:2: 9\.png: the file can't be read: No such file .*; correct",
    ):
        data.batch([0])


def test_only_regular_files_of_the_dataset_are_read(images: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes((images / "0.png").read_bytes())
    (images / "out.png").symlink_to(tmp_path / "secret.png")
    (images / "zero.png").symlink_to("/dev/zero")
    (images / "folder.png").mkdir()
    (images / "in.png").symlink_to("0.png")
    (images / "links").symlink_to(tmp_path)
    os.mkfifo(images / "pipe.png")
    names = ["in.png", "out.png", "zero.png", "pipe.png", "folder.png", "links/secret.png"]
    rows = [f"{name},0\n" for name in names]
    (images / "labels.csv").write_text("file,label\n" + "".join(rows))
    data = open_images(images)
    assert data.batch([0])["x"].shape == (1, 4, 4, 3)
    messages = [
        "out.png: the file leads to .*secret.png, outside the dataset; put the file there",
        "zero.png: the file leads to /dev/zero, outside the dataset",
        "pipe.png: the file can't be read: it is a device, a pipe or a socket; correct its name",
        "folder.png: the file can't be read: it is a folder; correct its name",
        "links/secret.png: the file leads to .*, outside the dataset",
    ]
    for index, message in enumerate(messages, start=1):
        with pytest.raises(DatasetError, match=message):
            data.batch([index])


def test_a_table_in_a_folder_may_name_files_beside_that_folder(images: Path) -> None:
    (images / "meta").mkdir()
    (images / "meta" / "labels.csv").write_text("file,label\n../0.png,4\n")
    assert open_images(images).batch([0])["x"].shape == (1, 4, 4, 3)


def test_a_table_that_is_a_pipe_is_not_read(images: Path) -> None:
    os.mkfifo(images / "labels.csv")
    with pytest.raises(DatasetError, match=r"labels\.csv can't be read: it is a device, a pipe"):
        open_images(images)


def test_a_folder_without_a_table_is_an_error(images: Path) -> None:
    message = r"has 0 labels\.csv; write one, with a row for each element"
    with pytest.raises(DatasetError, match=message):
        open_images(images)


def test_a_dataset_says_where_the_steps_put_the_pixels_of_an_element(images: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (4, 6)).save(images / "lying.png", exif=exif)
    (images / "labels.csv").write_text("file,label\n0.png,0\nlying.png,0\nno.png,0\n")
    steps = ["decode", {"resize": {"size": [8, 16]}}]
    spec = make_input(type="image", layout="NHWC", steps=steps)
    data = open_dataset(images, [spec], HERE, "photos.zip")
    assert data.geometry(0) == Geometry((8, 16), (4, 2), (0, 0))
    assert data.geometry(1).scale == pytest.approx((16 / 6, 8 / 4))
    message = r"^m\.yaml:30: photos\.zip: labels\.csv:4: no\.png: the file can't be read"
    with pytest.raises(DatasetError, match=message):
        data.geometry(2)


def test_a_dataset_of_tensors_has_no_geometry(fifty: Dataset) -> None:
    with pytest.raises(DatasetError, match="no input is an image; write 'type: image'"):
        fifty.geometry(0)


STRINGS = make_input(type="tensor", element_type="string")


def test_an_input_of_strings_has_texts_of_any_shape_as_they_are(tmp_path: Path) -> None:
    texts = np.array([["rot", "a"], ["Grün", ""], ["blau", "c"]])
    data = open_dataset(write_npz(tmp_path, x=texts, label=np.arange(3)), [STRINGS], HERE)
    assert data.batch([2, 1])["x"].tolist() == [["blau", "c"], ["Grün", ""]]
    data = open_dataset(write_npz(tmp_path, x=texts[:, 0], label=np.arange(3)), [STRINGS], HERE)
    assert data.batch([1, 1])["x"].tolist() == ["Grün", "Grün"]


def test_numbers_and_texts_that_are_not_unicode_are_no_strings(tmp_path: Path) -> None:
    data = open_dataset(write_npz(tmp_path, x=np.arange(3), label=np.arange(3)), [STRINGS], HERE)
    with pytest.raises(DatasetError, match=r"input 'x' takes texts, and has int64; save them as t"):
        data.batch([0])
    wrong = np.full((3, 1), 0x110000, np.uint32).view("<U1")
    with pytest.raises(DatasetError, match="has an array of texts that aren't Unicode"):
        open_dataset(write_npz(tmp_path, x=wrong, label=np.arange(3)), [STRINGS], HERE)
    with pytest.raises(DatasetError, match="'x' of <U3, not of real numbers"):
        open_tensors(write_npz(tmp_path, x=np.array(["one"]), label=np.arange(1)))


def test_texts_come_in_the_byte_order_of_the_machine(tmp_path: Path) -> None:
    path = write_npz(tmp_path, x=np.array(["Ā", "b"]).astype(">U1"), label=np.arange(2))
    for indices in ([0], [0, 1]):
        batch = open_dataset(path, [STRINGS], HERE).batch(indices)["x"]
        assert (batch.tolist(), batch.dtype.isnative) == (["Ā", "b"][: len(indices)], True)


@pytest.mark.parametrize("text", ["a\0b", "\0b"])
def test_a_text_that_a_model_would_cut_off_is_refused(tmp_path: Path, text: str) -> None:
    path = write_npz(tmp_path, x=np.array(["a", text]), label=np.arange(2))
    with pytest.raises(DatasetError, match="element 1: input 'x' has a text with a NUL"):
        open_dataset(path, [STRINGS], HERE).batch([0, 1])


def test_bytes_and_objects_are_no_texts(tmp_path: Path) -> None:
    path = write_npz(tmp_path, x=np.array([b"a"]), label=np.arange(1))
    with pytest.raises(DatasetError, match=r"\|S1, which are bytes and no texts: decode them: num"):
        open_dataset(path, [STRINGS], HERE)
    path = write_npz(tmp_path, x=np.array(["a", None], object), label=np.arange(2))
    with pytest.raises(DatasetError, match="of objects, which would have to be unpickled"):
        open_dataset(path, [STRINGS], HERE)
