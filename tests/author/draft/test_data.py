"""The data that a user names for a model."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.author.draft.data import (
    ArrayData,
    CocoData,
    PictureData,
    TableData,
    pack_folder,
    recognise_data,
)
from pytest_mlms.author.draft.dataset import numbers_of
from pytest_mlms.core.errors import MlmsError


def pictures(folder: Path, **counts: int) -> Path:
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            (folder / name / f"{number}.PNG").write_bytes(bytes([number]))
    return folder


def test_a_folder_of_folders_has_classes(tmp_path: Path) -> None:
    data = recognise_data(pictures(tmp_path / "p", dog=2, cat=1))
    assert isinstance(data, PictureData)
    assert list(data.files) == ["cat/0.PNG", "dog/0.PNG", "dog/1.PNG"]
    assert data.class_names == ["cat", "dog"]


def test_linked_folders_and_rare_suffixes_are_found_and_the_rest_is_told(tmp_path: Path) -> None:
    pictures(tmp_path / "far", dog=2)
    folder = pictures(tmp_path / "p", cat=1)
    (folder / "dog").symlink_to(tmp_path / "far" / "dog")
    (folder / "dog" / "up").symlink_to(folder)  # where cats are, too
    (folder / "cat" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    for name in ("a.jfif", "b.avif", ".hidden.png"):
        (folder / "cat" / name).touch()
    data = recognise_data(folder)
    assert isinstance(data, PictureData)
    assert list(data.files) == ["cat/0.PNG", "cat/a.jfif", "dog/0.PNG", "dog/1.PNG"]
    assert data.others[0] == "cat/b.avif"
    pack_folder(folder, tmp_path / "p.zip")
    with zipfile.ZipFile(tmp_path / "p.zip") as archive:
        assert {"dog/1.PNG", "cat/b.avif"} <= set(archive.namelist())


def test_folders_of_classes_get_the_number_of_their_name(tmp_path: Path) -> None:
    names = ["Cardigan, Cardigan Welsh corgi", "cardigan", "n0123 tench", "Red Fox", "red_fox"]

    def numbers(folder: str, names: list[str], *classes: str) -> dict[str, int]:
        data = recognise_data(pictures(tmp_path / folder, **dict.fromkeys(classes, 1)))
        assert isinstance(data, PictureData)
        return numbers_of(data, names, len(names) or 11, "names.txt")

    assert numbers("a", names, "cardigan") == {"cardigan": 1}
    assert numbers("b", names, "Cardigan") == {"Cardigan": 0}
    assert numbers("c", names, "n0123", "red_fox") == {"n0123": 2, "red_fox": 4}
    for folder, known, name, message in (
        ("d", names, "CARDIGAN", r"several classes 'CARDIGAN': 'Cardigan, .*' \(0\), 'cardigan' "),
        ("e", [], "11", "has a class 11, and the model 0 to 10; rename the folders, or name"),
    ):
        with pytest.raises(MlmsError, match=message):
            numbers(folder, known, name)
    assert numbers("f", [], "2", "10") == {"2": 2, "10": 10}


def test_a_sample_is_even_and_the_same_each_time(tmp_path: Path) -> None:
    data = recognise_data(pictures(tmp_path / "p", a=50, b=2, c=50))
    assert isinstance(data, PictureData)
    sample = data.sample(12)
    assert Counter(sample.classes) == {"a": 5, "b": 2, "c": 5}
    assert sample == data.sample(12)
    assert data.sample(1000) is data


def test_packed_pictures_are_a_dataset_with_one_digest(tmp_path: Path) -> None:
    data = recognise_data(pictures(tmp_path / "p", dog=2, cat=1))
    assert isinstance(data, PictureData)
    for name in ("one.zip", "two.zip"):
        data.pack(tmp_path / name, {"cat": 7, "dog": 3})
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        table = archive.read("labels.csv").decode()
        assert archive.read("dog/1.PNG") == b"\x01"
    assert table == "file,label\ncat/0.PNG,7\ndog/0.PNG,3\ndog/1.PNG,3\n"


def test_other_forms_are_taken_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "labels.csv").write_text("file,label\n")
    pack_folder(folder, tmp_path / "t.zip")
    assert recognise_data(folder) == TableData(folder)
    assert recognise_data(folder / "labels.csv") == TableData(folder)
    assert recognise_data(tmp_path / "t.zip") == TableData(tmp_path / "t.zip")
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2), np.float32))
    data = recognise_data(tmp_path / "a.npz")
    assert isinstance(data, ArrayData)
    assert data.arrays == {"x": (np.dtype(np.float32), (3, 2))}


def test_what_is_no_data_is_refused_with_what_to_name(tmp_path: Path) -> None:
    flat = pictures(tmp_path, flat=1) / "flat"
    (tmp_path / "none").mkdir()
    (tmp_path / "data.bin").touch()
    (tmp_path / "data.parquet").touch()
    (tmp_path / "data.csv.gz").touch()
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04")
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object))
    for path, message in (
        (tmp_path / "nowhere", "there is no "),
        (flat, "has pictures without a class, such as 0.PNG; put them into a folder for each"),
        (tmp_path / "none", "has no pictures and no labels.csv; name a folder"),
        (tmp_path / "data.bin", "is no dataset that is known here; name a folder"),
        (tmp_path / "data.csv.gz", "is a packed table; unpack it: gunzip -k "),
        (tmp_path / "data.parquet", r"write it as one: pandas.read_parquet\('.*'\).to_csv\("),
        (tmp_path / "bad.npz", "can't be read"),
        (tmp_path / "objects.npz", "can't be read"),
    ):
        with pytest.raises(MlmsError, match=message):
            recognise_data(path)


def coco(folder: Path, pictures: Path, count: int) -> Path:
    """Write a COCO file, and its pictures in another folder."""
    for path in (folder, pictures):
        path.mkdir(parents=True, exist_ok=True)
    images = []
    annotations = []
    for number in range(count):
        (pictures / f"{number}.jpg").write_bytes(bytes([number]))
        size = {"width": 9, "height": 9}
        images.append({"id": number, "file_name": f"{number}.jpg", **size})
        annotations.append(
            {"id": number, "image_id": number, "category_id": 3, "bbox": [0, 0, 1, 1]}
        )
    categories = [{"id": 3, "name": "cat"}, {"id": 1, "name": "ant"}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    path = folder / "val.json"
    path.write_text(json.dumps(content))
    return path


def test_the_pictures_of_a_coco_file_are_found_and_sampled_with_their_objects(
    tmp_path: Path,
) -> None:
    path = coco(tmp_path / "annotations", tmp_path / "val", 9)
    for named in (path, tmp_path):
        data = recognise_data(named)
        assert isinstance(data, CocoData)
        assert data.folder == tmp_path / "val"
        assert data.categories == ["ant", "cat"]
    data = recognise_data(path)
    assert isinstance(data, CocoData)
    sample = data.sample(4)
    ids = {image["id"] for image in sample.content["images"]}
    assert len(ids) == 4
    assert {one["image_id"] for one in sample.content["annotations"]} == ids
    sample.pack(tmp_path / "x.zip")
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert len(archive.namelist()) == 5


def test_pictures_of_one_name_in_two_folders_are_refused_unless_beside_the_file(
    tmp_path: Path,
) -> None:
    path = coco(tmp_path / "annotations", tmp_path / "val", 2)
    coco(tmp_path / "other", tmp_path / "train", 2)
    with pytest.raises(MlmsError, match=r"0.jpg, which is in .*train and in .*val; put the file"):
        recognise_data(path)
    beside = coco(tmp_path / "val", tmp_path / "val", 2)
    data = recognise_data(beside)
    assert isinstance(data, CocoData)
    assert data.folder == tmp_path / "val"


def test_a_coco_file_without_its_pictures_is_refused(tmp_path: Path) -> None:
    path = coco(tmp_path / "a", tmp_path / "far" / "away", 2)
    with pytest.raises(MlmsError, match=r"names 0.jpg, which is neither beside it nor"):
        recognise_data(path)
    for text, message in (
        ("{}", "is no COCO file"),
        ("[", "can't be read"),
        ("[]", "no COCO file"),
        (
            '{"images": [{"id": 1, "file_name": 5}], "annotations": [], "categories": []}',
            r"images\[0\] \(id 1\): file_name is 5; write a text",
        ),
    ):
        path.write_text(text)
        with pytest.raises(MlmsError, match=message):
            recognise_data(path)


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("images", "id", None, r"images\[1\]: id is missing; write a whole number"),
        ("images", "file_name", None, r"images\[1\] \(id 1\): file_name is missing; write a text"),
        ("images", "id", [1], r"images\[1\] .*: id is \[1\]; write a whole number"),
        ("annotations", "image_id", None, r"annotations\[1\] .*: image_id is missing"),
        ("categories", "name", None, r"categories\[1\] .*: name is missing"),
        ("categories", "id", "x", r"categories\[1\] .*: id is 'x'"),
        ("annotations", "", None, r"annotations\[1\] is a str; write an object"),
    ],
)
def test_entries_of_a_coco_file_that_lack_what_is_read_are_named(
    tmp_path: Path, section: str, key: str, value: Any, message: str
) -> None:
    path = coco(tmp_path / "val", tmp_path / "val", 2)
    content = json.loads(path.read_text())
    entry = content[section][1]
    entry.pop(key, None)
    if value is not None:
        entry[key] = value
    if not key:
        content[section][1] = "x"
    path.write_text(json.dumps(content))
    with pytest.raises(MlmsError, match=message):
        recognise_data(path)
