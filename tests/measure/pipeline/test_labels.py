"""Labels in each form, from arrays and from tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.records import Place
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.pipeline.dataset import Dataset, open_dataset
from pytest_mlms.measure.pipeline.labels import LabelForm
from pytest_mlms.measure.pipeline.step_files import class_numbers

HERE = Place(Path("m.yaml"), 30)
IMAGE = Input.model_validate(
    {"name": "x", "type": "image", "element_type": "uint8", "layout": "NHWC", "steps": ["decode"]}
)


def tensor(name: str, **fields: Any) -> Input:
    return Input.model_validate({"name": name, "type": "tensor", "element_type": "int64", **fields})


def labels_of(folder: Path, form: LabelForm, **arrays: Any) -> Any:
    path = folder / "d.npz"
    count = len(arrays["label"])
    np.savez(path, x=np.zeros((count, 1)), **arrays)
    return open_dataset(path, [tensor("x")], HERE, labels=form).labels


TWO_MASKS = np.arange(12).reshape(2, 2, 3)


@pytest.mark.parametrize(
    ("form", "label"),
    [
        ("class", np.array([3, 0])),
        ("text", np.array(["ein Wort", ""])),
        ("array", np.array([0.5, -1])),
        ("array", np.zeros((2, 3, 4))),
        ("mask", TWO_MASKS),
        ("image", np.zeros((2, 4, 5, 3), np.uint8)),
    ],
)
def test_an_array_is_read_in_the_form_of_the_task(
    tmp_path: Path, form: LabelForm, label: Any
) -> None:
    found = labels_of(tmp_path, form, label=label)
    assert np.array_equal(np.asarray(found), label)


def test_grey_images_of_an_array_have_a_channel(tmp_path: Path) -> None:
    assert labels_of(tmp_path, "image", label=np.zeros((2, 4, 5)))[0].shape == (4, 5, 1)


@pytest.mark.parametrize(
    ("form", "label", "expected"),
    [
        ("class", np.zeros(2), "one whole number an element"),
        ("class", np.array(["cat", "dog"]), "the array 'label' of <U3, not of real numbers"),
        ("text", np.zeros(2, int), "one text an element"),
        ("mask", np.zeros((2, 3, 3)), "elements x height x width of whole numbers"),
        ("mask", np.zeros((2, 3), int), "elements x height x width of whole numbers"),
        ("image", np.zeros((2, 3)), "elements x height x width, or with x channels"),
        ("boxes", np.zeros((2, 4)), "boxes are read from a COCO file"),
        ("text", np.array([0xD800, 65], "<u4").view("<U1"), "texts that aren't Unicode"),
        ("text", np.array([0x7FFFFFFF, 65], "<u4").view("<U1"), "texts that aren't Unicode"),
    ],
)
def test_an_array_of_another_form_is_an_error(
    tmp_path: Path, form: LabelForm, label: Any, expected: str
) -> None:
    with pytest.raises(DatasetError, match=rf"^m\.yaml:30: .*{expected}"):
        labels_of(tmp_path, form, label=label)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two pictures, and masks of them in two modes."""
    for name in ("a.png", "b.png"):
        Image.fromarray(np.full((2, 3, 3), 7, np.uint8)).save(tmp_path / name)
    indices = Image.fromarray(np.array([[0, 1, 2], [2, 1, 255]], np.uint8))
    indices.save(tmp_path / "grey.png")
    indices.putpalette([value for color in range(256) for value in (color, 0, 255 - color)])
    indices.save(tmp_path / "palette.png")
    return tmp_path


def table(folder: Path, text: str, form: LabelForm, *inputs: Input) -> Dataset:
    (folder / "labels.csv").write_text(text)
    return open_dataset(folder, inputs or [IMAGE], HERE, "set.zip", form)


@pytest.mark.parametrize(
    ("form", "cells", "expected"),
    [
        ("class", ("3", "0"), [3, 0]),
        ("text", ("ein Wort", ""), ["ein Wort", ""]),
        ("array", ("0.5", "-1"), [0.5, -1]),
        ("array", ("1 2 3", "4 5 6"), [[1, 2, 3], [4, 5, 6]]),
        ("mask", ("grey.png", "palette.png"), [[[0, 1, 2], [2, 1, 255]]] * 2),
        ("image", ("a.png", "b.png"), np.full((2, 2, 3, 3), 7).tolist()),
    ],
)
def test_a_column_is_read_in_the_form_of_the_task(
    folder: Path, form: LabelForm, cells: tuple[str, str], expected: list[Any]
) -> None:
    data = table(folder, f"file,label\na.png,{cells[0]}\nb.png,{cells[1]}\n", form)
    assert data.labels is not None
    assert [np.asarray(label).tolist() for label in data.labels] == expected


def test_arrays_of_files_are_labels(folder: Path) -> None:
    np.save(folder / "v.npy", TWO_MASKS)
    for form in ("array", "mask", "image"):
        data = table(folder, "file,label\na.png,v.npy\n", form)
        assert data.labels is not None
        assert np.array_equal(data.labels[0], TWO_MASKS)


@pytest.mark.parametrize(
    ("form", "cell", "message"),
    [
        ("array", "half", "labels.csv:3: the label of b.png is 'half'; write numbers with blanks"),
        ("array", "1 2", "labels.csv:3: .*, 2 numbers, and the first label 1; write as many"),
        ("mask", "", "labels.csv:3: the label of b.png is ''; write the name of the label's file"),
        ("mask", "../m.png", r"labels.csv:3: \.\./m.png leads outside the dataset"),
    ],
)
def test_a_wrong_label_is_named_by_its_line(
    folder: Path, form: LabelForm, cell: str, message: str
) -> None:
    first = "1" if form == "array" else "grey.png"
    with pytest.raises(DatasetError, match=message):
        table(folder, f"file,label\na.png,{first}\nb.png,{cell}\n", form)


def test_a_mask_that_is_none_is_an_error_when_it_is_read(folder: Path) -> None:
    Image.new("L", (3, 2)).save(folder / "m.jpg")
    np.save(folder / "o.npy", np.array([None]), allow_pickle=True)
    rows = {
        "a.png": "its pixels are RGB, and a mask has the number of a class in each; save it as PNG",
        "m.jpg": "JPEG changes the values of pixels; save the mask as PNG",
        "9.png": "the file can't be read: No such file or directory; correct its name",
        "labels.csv": "are not an image of JPEG, PNG",
        "o.npy": "is an array of objects, which would have to be unpickled; write it again with",
    }
    cells = "".join(f"a.png,{name}\n" for name in rows)
    found = table(folder, f"file,label\n{cells}", "mask")
    for number, (name, message) in enumerate(rows.items()):
        with pytest.raises(DatasetError) as raised:
            found.label(number)
        place = f"{found.name}: labels.csv:{number + 2}: a.png"
        assert str(raised.value).startswith(f"{place}: {name}: ")
        assert message in str(raised.value)


def test_several_inputs_have_a_column_each(folder: Path) -> None:
    np.save(folder / "v.npy", np.arange(6.0))
    text = "ids,x,scale,label\n1 2 3,a.png,0.5,1\n4 5 6,b.png,v.npy,0\n"
    scale = tensor("scale", element_type="float32", shape=["batch"])
    data = table(folder, text, "class", IMAGE, tensor("ids"), scale)
    batch = data.batch([0])
    assert batch["ids"].tolist() == [[1, 2, 3]]
    assert batch["ids"].dtype == np.int64
    assert batch["x"].shape == (1, 2, 3, 3)
    assert batch["scale"].tolist() == [0.5]
    assert np.asarray(data.elements["scale"][1]).tolist() == [0, 1, 2, 3, 4, 5]
    assert data.files == ["a.png", "b.png"]


def test_numbers_of_a_cell_have_the_shape_of_the_input(folder: Path) -> None:
    spec = tensor("x", shape=["batch", 2, 2])
    data = table(folder, "x,label\n1 2 3 4,1\n1 2 3,0\n", "class", spec)
    assert data.batch([0])["x"].tolist() == [[[1, 2], [3, 4]]]
    assert data.files is None
    message = r"set\.zip: labels\.csv:3: 3 numbers in a cell, and its input takes 2 x 2; write as"
    with pytest.raises(DatasetError, match=message):
        data.batch([0, 1])


def test_a_column_that_is_missing_is_named(folder: Path) -> None:
    message = "columns, here ids, label; write 'ids,x,label', with a comma between them"
    with pytest.raises(DatasetError, match=message):
        table(folder, "ids,label\n1,1\n", "class", tensor("ids"), IMAGE)


def test_a_cell_that_is_empty_is_named(folder: Path) -> None:
    message = "labels.csv:3: has nothing for input 'ids'; write a file or a value"
    with pytest.raises(DatasetError, match=message):
        table(folder, "ids,x,label\n1,a.png,1\n,b.png,1\n", "class", tensor("ids"), IMAGE)


def test_the_error_of_a_label_names_its_line(folder: Path) -> None:
    data = table(folder, "file,label\na.png,7\n", "class")
    error = data.label_error(0, "class 7 is outside")
    assert str(error) == "m.yaml:30: set.zip: labels.csv:2: a.png: class 7 is outside"


CLASSES = class_numbers(["Background", "Cat", "Dog", "crane", "Crane"])


def named(folder: Path, label: str) -> Dataset:
    (folder / "labels.csv").write_text(f"file,label\na.png,2\nb.png,{label}\n")
    return open_dataset(folder, [IMAGE], HERE, "set.zip", classes=CLASSES)


def test_the_name_of_a_class_stands_for_its_number(folder: Path) -> None:
    assert np.asarray(named(folder, "cat").labels).tolist() == [2, 1]
    assert np.asarray(named(folder, "DOG").labels).tolist() == [2, 2]


@pytest.mark.parametrize("label", ["bird", "crane", "1.5", ""])
def test_a_label_that_names_no_class_or_several_is_named_by_its_line(
    folder: Path, label: str
) -> None:
    message = (
        f"labels.csv:3: the label of b.png is '{label}'; write the number of its class, from 0, or"
    )
    with pytest.raises(DatasetError, match=message):
        named(folder, label)


def test_without_names_of_classes_a_label_is_a_number(folder: Path) -> None:
    with pytest.raises(DatasetError, match="is 'cat'; write the number of its class, from 0$"):
        table(folder, "file,label\na.png,cat\n", "class")


@pytest.mark.parametrize(
    ("labels", "numbers"), [("1 2 3", [0, 1, 2]), ("0 1 2", [0, 1, 2]), ("2.0 1.0 2", [2, 1, 2])]
)
def test_labels_are_names_that_are_numbers_where_only_that_is_possible(
    folder: Path, labels: str, numbers: list[int]
) -> None:
    rows = "".join(f"a.png,{label}\n" for label in labels.split())
    (folder / "labels.csv").write_text(f"file,label\n{rows}")
    classes = class_numbers(["1", "2", "3"])
    data = open_dataset(folder, [IMAGE], HERE, "set.zip", classes=classes)
    assert np.asarray(data.labels).tolist() == numbers


def test_a_label_that_is_a_number_and_the_name_of_another_class_is_an_error(folder: Path) -> None:
    (folder / "labels.csv").write_text("file,label\na.png,1\nb.png,2\n")
    message = r"labels.csv:2: the label of a.png is '1', the number of a class .*; write 1.0 for"
    with pytest.raises(DatasetError, match=message):
        open_dataset(folder, [IMAGE], HERE, classes=class_numbers(["1", "2", "3"]))
