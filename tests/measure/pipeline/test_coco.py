"""Datasets of pictures with labelled objects, in COCO's format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_mlms.core import memory
from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.records import Place
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.pipeline.coco import CocoLabels
from pytest_mlms.measure.pipeline.dataset import Dataset, open_dataset

HERE = Place(Path("m.yaml"), 30)
IMAGE = Input.model_validate(
    {"name": "x", "element_type": "uint8", "type": "image", "layout": "NHWC", "steps": ["decode"]}
)

Content = dict[str, Any]


def small_content() -> Content:
    """Return two pictures, the one with the smaller id last, and an object of each category."""
    return {
        "info": {"year": 2026},
        "images": [
            {"id": 7, "file_name": "b.png", "height": 20, "width": 30},
            {"id": 3, "file_name": "a.png", "height": 20, "width": 30},
        ],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 9, "bbox": [1, 2, 3, 4]},
            {
                "id": 2,
                "image_id": 7,
                "category_id": 4,
                "bbox": [0, 0, 30, 20],
                "area": 5.5,
                "iscrowd": 1,
            },
        ],
        "categories": [{"id": 9, "name": "dog"}, {"id": 4, "name": "cat"}],
    }


def write(folder: Path, content: Any, name: str = "labels.json", pictures: str = "") -> Path:
    (folder / pictures).mkdir(parents=True, exist_ok=True)
    for file in ("a.png", "b.png"):
        Image.new("RGB", (30, 20)).save(folder / pictures / file)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def open_boxes(path: Path) -> Dataset:
    return open_dataset(path, [IMAGE], HERE, labels="boxes")


def labels_of(data: Dataset) -> CocoLabels:
    assert isinstance(data.labels, CocoLabels)
    return data.labels


def test_pictures_and_categories_are_in_the_order_of_their_ids(tmp_path: Path) -> None:
    data = open_boxes(write(tmp_path, small_content()))
    labels = labels_of(data)
    assert data.files == ["a.png", "b.png"]
    assert [category.name for category in labels.categories] == ["cat", "dog"]
    assert [labels[n].image_id for n in range(2)] == [3, 7]
    assert data.batch([0, 1])["x"].shape == (2, 20, 30, 3)


def test_an_object_has_its_box_category_area_and_crowd(tmp_path: Path) -> None:
    objects = labels_of(open_boxes(write(tmp_path, small_content())))[1]
    assert objects.boxes.tolist() == [[1, 2, 3, 4], [0, 0, 30, 20]]
    assert objects.categories.tolist() == [1, 0]
    assert objects.areas.tolist() == [12, 5.5]
    assert objects.crowds.tolist() == [False, True]


def test_a_picture_may_have_no_objects(tmp_path: Path) -> None:
    objects = labels_of(open_boxes(write(tmp_path, small_content())))[0]
    assert len(objects) == 0
    assert objects.boxes.shape == (0, 4)


def test_files_may_be_laid_out_as_cocos_own(tmp_path: Path) -> None:
    write(tmp_path, small_content(), "annotations/instances_val.json", "val")
    (tmp_path / "annotations" / "captions_val.json").write_text('{"images": [], "annotations": []}')
    assert open_boxes(tmp_path).batch([0])["x"].shape == (1, 20, 30, 3)
    file = tmp_path / "annotations" / "instances_val.json"
    assert open_boxes(file).batch([1])["x"].shape == (1, 20, 30, 3)


def test_one_of_several_coco_files_must_be_named(tmp_path: Path) -> None:
    write(tmp_path, small_content(), "one.json")
    write(tmp_path, small_content(), "two.json")
    with pytest.raises(
        DatasetError, match=r"has 2 COCO files, one.json, two.json; name one behind"
    ):
        open_boxes(tmp_path)


def test_a_folder_without_a_coco_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text("")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(DatasetError, match="has no COCO file: a .json file with images"):
        open_boxes(tmp_path)


def changed(section: str, number: int, **values: Any) -> Callable[[Content], None]:
    def change(content: Content) -> None:
        content[section][number].update(values)

    return change


def without(section: str) -> Callable[[Content], None]:
    return lambda content: content.pop(section)


WRONG = {
    "outside": (changed("annotations", 0, bbox=[28, 2, 4, 4]), r"annotations\[0\] \(id 1\): bbox"),
    "left": (changed("annotations", 0, bbox=[-3, 2, 4, 4]), "outside of the 30 x 20 pixels of b"),
    "negative": (changed("annotations", 0, bbox=[9, 2, -4, 4]), "has a negative size"),
    "nan": (changed("annotations", 0, bbox=[9, float("nan"), 4, 4]), r"bbox is \[9, nan, 4, 4\]"),
    "infinite": (changed("annotations", 0, bbox=[9, 1e400, 4, 4]), "write .left, top, width"),
    "three": (changed("annotations", 0, bbox=[9, 2, 4]), r"bbox is \[9, 2, 4\]; write"),
    "no box": (changed("annotations", 0, bbox=None), "bbox is missing; write"),
    "text": (changed("annotations", 0, bbox="1 2 3 4"), "bbox is '1 2 3 4'; write"),
    "area": (changed("annotations", 0, area=float("nan")), "area is nan; write a number"),
    "crowd": (changed("annotations", 0, iscrowd=2), "iscrowd is 2; write 0 or 1"),
    "class": (changed("annotations", 0, category_id=5), "category_id 5 is none of the categories"),
    "picture": (changed("annotations", 0, image_id=5), "image_id 5 is none of the images"),
    "annotation ids": (changed("annotations", 1, id=1), r"annotations\[0\] \(id 1\) has the same"),
    "picture ids": (changed("images", 1, id=7), r"images\[1\] \(id 7\): images\[0\] \(id 7\) has"),
    "category ids": (changed("categories", 1, id=9), "has the same id; give each its own"),
    "category names": (changed("categories", 1, name="dog"), "has the same name"),
    "name": (changed("categories", 1, name=7), "name is 7; write a text"),
    "id": (changed("images", 1, id="7"), "id is '7'; write a whole number"),
    "large id": (changed("images", 1, id=1 << 70), "id is 1180591620717411303424; write a whole"),
    "size": (changed("images", 0, height=0), "0 x 30 is no size of a picture"),
    "huge": (changed("images", 0, height=10**9), "is no size of a picture"),
    "no file": (changed("images", 0, file_name=None), "file_name is missing; write a text"),
    "missing": (
        changed("images", 0, file_name="c.png"),
        r"1 of 2 images are not there: c.png; add",
    ),
    "way out": (changed("images", 0, file_name="../b.png"), "leads outside the dataset"),
    "zero": (changed("images", 0, file_name="b\0.png"), "has a zero byte"),
    "categories": (without("categories"), "it has no list 'categories'; expected an object with"),
    "no record": (lambda content: content["images"].append(5), r"images\[2\] is a int; write an"),
    "empty": (lambda content: content["images"].clear(), r"image_id 7 is none of the images"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_record_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    change, message = WRONG[name]
    content = small_content()
    change(content)
    write(tmp_path, content)
    with pytest.raises(DatasetError, match=message) as caught:
        open_boxes(tmp_path)
    assert str(caught.value).startswith(f"m.yaml:30: {tmp_path} has labels that can't be used: ")
    assert "labels.json: " in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"images": [],\n "annotations": [,', "labels.json:2: it is no JSON: Expecting value"),
        ("[" * 100_000, "labels.json: it can't be read"),
        ("[]", "labels.json: it is a list; expected an object"),
        ('{"images": [' + "9" * 5000 + "]}", "labels.json: it can't be read|is a int"),
    ],
)
def test_a_file_that_is_no_coco_file_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        open_boxes(write(tmp_path, text))


def test_a_file_of_another_encoding_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, small_content())
    (tmp_path / "labels.json").write_bytes(b'{"images": "\xff"}')
    with pytest.raises(DatasetError, match=r"labels.json is not UTF-8 \(byte 12\); save it as"):
        open_boxes(tmp_path)


def test_a_file_that_does_not_fit_into_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, small_content())
    monkeypatch.setattr(memory, "available_memory", lambda: 100)
    with pytest.raises(
        DatasetError, match=r"labels.json: reading it takes .* of memory, and 100 B"
    ):
        open_boxes(tmp_path)


def test_a_dataset_without_pictures_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, {"images": [], "annotations": [], "categories": []})
    with pytest.raises(DatasetError, match=r"labels.json has no images; write one for each"):
        open_boxes(tmp_path)


def test_a_link_out_of_the_dataset_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", small_content())
    Image.new("RGB", (30, 20)).save(tmp_path / "outside.png")
    (folder / "a.png").unlink()
    (folder / "a.png").symlink_to(tmp_path / "outside.png")
    with pytest.raises(DatasetError, match="outside the dataset"):
        open_boxes(folder).batch([0])


def test_a_model_of_several_inputs_is_refused(tmp_path: Path) -> None:
    write(tmp_path, small_content())
    with pytest.raises(
        DatasetError, match="has pictures, for 2 inputs; a COCO file is for a model"
    ):
        open_dataset(tmp_path, [IMAGE, IMAGE], HERE, labels="boxes")
