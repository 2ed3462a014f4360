"""Datasets of pictures with labelled objects: a COCO file, each part checked, and its pictures.

https://cocodataset.org/#format-data has the format. Keys that aren't used here are ignored.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.files import open_regular, read_regular
from pytest_mlms.core.memory import shortage
from pytest_mlms.manifest.steps import MOST_PIXELS
from pytest_mlms.measure.pipeline.objects import LabelledObjects
from pytest_mlms.measure.pipeline.tables import FolderFiles, check_name

SECTIONS = ("images", "annotations", "categories")

_MOST_BYTES = 4 << 30  # of the file
_MEMORY = 12  # bytes that a byte of the file takes once it is read
_SLACK = 1.0  # pixels that a box may be beyond its picture, as tools round
_LARGEST_ID = (1 << 63) - 1


class Picture(NamedTuple):
    """A picture: its id, its file, its size in pixels, and where the COCO file has it."""

    id: int
    file: str
    height: int
    width: int
    record: str


class Category(NamedTuple):
    """A category of objects."""

    id: int
    name: str


class Annotation(NamedTuple):
    """A labelled object.

    ``box`` is left, top, width and height in pixels. ``segmentation`` is as the file has it.
    """

    image_id: int
    category_id: int
    box: tuple[float, float, float, float]
    area: float
    is_crowd: bool
    segmentation: Any
    record: str


class CocoFile(NamedTuple):
    """The content of a COCO file, pictures and categories in the order of their ids."""

    pictures: list[Picture]
    categories: list[Category]
    annotations: list[Annotation]


def read_coco_file(path: Path) -> CocoFile:
    """Read a COCO file. Raises DatasetError, which names the file and the record that is wrong."""
    content = _parse(path)
    try:
        for section in SECTIONS:
            if not isinstance(content.get(section), list):
                raise DatasetError(f"it has no list {section!r}; {_expected()}")
        pictures = _pictures(content["images"])
        categories = _categories(content["categories"])
        annotations = _annotations(content["annotations"], pictures, categories)
        return CocoFile(pictures, categories, annotations)
    except DatasetError as error:
        raise DatasetError(f"{path.name}: {error}") from None


def _parse(path: Path) -> Mapping[str, Any]:
    """Return the object in a file of JSON."""
    try:
        missing = shortage(_MEMORY * path.stat().st_size)
        if missing:
            raise DatasetError(f"{path.name}: reading it takes {missing}; write a smaller file")
        text = read_regular(path, _MOST_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise DatasetError(f"{path.name} can't be read: {error.strerror}; replace it") from error
    except UnicodeDecodeError as error:
        problem = f"{path.name} is not UTF-8 (byte {error.start})"
        raise DatasetError(f"{problem}; save it as UTF-8") from error
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{path.name}:{error.lineno}"
        raise DatasetError(f"{place}: it is no JSON: {error.msg}; write it again") from None
    except (RecursionError, ValueError) as error:  # too deep, or a number of too many digits
        raise DatasetError(f"{path.name}: it can't be read: {error}; write it again") from None
    if not isinstance(content, dict):
        raise DatasetError(f"{path.name}: it is a {type(content).__name__}; {_expected()}")
    return content


def _expected() -> str:
    return f"expected an object with the lists {', '.join(SECTIONS)}"


class Record(NamedTuple):
    """A record of the file, and what messages call it."""

    values: Mapping[str, Any]
    name: str

    @classmethod
    def of(cls, value: Any, section: str, number: int) -> Record:
        """Return entry ``number`` of a list; raises DatasetError where it is no object."""
        name = f"{section}[{number}]"
        if not isinstance(value, dict):
            raise DatasetError(f"{name} is a {type(value).__name__}; write an object")
        if "id" in value:
            name = f"{name} (id {str(value['id'])[:40]})"
        return cls(value, name)

    def error(self, problem: str) -> DatasetError:
        """Return the error of a record that is wrong."""
        return DatasetError(f"{self.name}: {problem}")

    def whole(self, key: str) -> int:
        """Return a whole number; raises DatasetError for anything else."""
        value = self.values.get(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST_ID:
            raise self.error(f"{key} is {_shown(value)}; write a whole number")
        return value

    def text(self, key: str) -> str:
        """Return a text that isn't empty; raises DatasetError for anything else."""
        value = self.values.get(key)
        if not isinstance(value, str) or not value:
            raise self.error(f"{key} is {_shown(value)}; write a text")
        return value

    def number(self, key: str, default: float) -> float:
        """Return a finite number of at least 0; raises DatasetError for anything else."""
        value = self.values.get(key, default)
        if not _is_number(value) or not value >= 0:
            raise self.error(f"{key} is {_shown(value)}; write a number, 0 or more")
        return float(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return "missing" if value is None else text[:60]


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) < 1e300 and math.isfinite(value)


def _note_id(record: Record, seen: dict[int, str]) -> int:
    """Return the id of a record; raises DatasetError where an earlier one has it."""
    number = record.whole("id")
    if number in seen:
        raise record.error(f"{seen[number]} has the same id; give each its own")
    seen[number] = record.name
    return number


def _pictures(values: Iterable[Any]) -> list[Picture]:
    seen: dict[int, str] = {}
    pictures = []
    for number, value in enumerate(values):
        record = Record.of(value, "images", number)
        picture_id = _note_id(record, seen)
        file = record.text("file_name")
        height = record.whole("height")
        width = record.whole("width")
        if min(height, width) < 1 or height * width > MOST_PIXELS:
            found = f"{height} x {width} is no size of a picture"
            raise record.error(f"{found}; write its height and width in pixels")
        pictures.append(Picture(picture_id, file, height, width, record.name))
    return sorted(pictures)


def _categories(values: Iterable[Any]) -> list[Category]:
    seen: dict[int, str] = {}
    names: dict[str, str] = {}
    categories = []
    for number, value in enumerate(values):
        record = Record.of(value, "categories", number)
        category = Category(_note_id(record, seen), record.text("name"))
        if category.name in names:
            raise record.error(f"{names[category.name]} has the same name; give each its own")
        names[category.name] = record.name
        categories.append(category)
    return sorted(categories)


def _annotations(
    values: Iterable[Any], pictures: Iterable[Picture], categories: Iterable[Category]
) -> list[Annotation]:
    by_id = {picture.id: picture for picture in pictures}
    known = {category.id for category in categories}
    seen: dict[int, str] = {}
    annotations = []
    for number, value in enumerate(values):
        record = Record.of(value, "annotations", number)
        if "id" in record.values:
            _note_id(record, seen)
        annotations.append(_annotation(record, by_id, known))
    return annotations


def _annotation(
    record: Record, pictures: Mapping[int, Picture], categories: Iterable[int]
) -> Annotation:
    image_id = record.whole("image_id")
    picture = pictures.get(image_id)
    if picture is None:
        raise record.error(f"image_id {image_id} is none of the images; correct it")
    category_id = record.whole("category_id")
    if category_id not in categories:
        raise record.error(f"category_id {category_id} is none of the categories; correct it")
    value = record.values.get("bbox")
    advice = "write [left, top, width, height] in pixels"
    if not isinstance(value, list) or len(value) != 4 or not all(map(_is_number, value)):
        raise record.error(f"bbox is {_shown(value)}; {advice}")
    left, top, width, height = map(float, value)
    if width < 0 or height < 0:
        raise record.error(f"bbox {value} has a negative size; {advice}")
    is_inside = min(left, top) >= -_SLACK
    is_inside &= left + width <= picture.width + _SLACK
    is_inside &= top + height <= picture.height + _SLACK
    if not is_inside:
        size = f"{picture.width} x {picture.height} pixels of {picture.file}"
        raise record.error(f"bbox {value} is outside of the {size}; {advice}")
    box = left, top, width, height
    crowd = record.whole("iscrowd") if "iscrowd" in record.values else 0
    if crowd not in (0, 1):
        raise record.error(f"iscrowd is {crowd}; write 0 or 1")
    return Annotation(
        image_id=image_id,
        category_id=category_id,
        box=box,
        area=record.number("area", box[2] * box[3]),
        is_crowd=crowd == 1,
        segmentation=record.values.get("segmentation"),
        record=record.name,
    )


_ANNOTATIONS = "annotations"  # the folder of COCO's own archives, beside those of the pictures
_SHOWN = 5  # names in a message


class CocoLabels(Sequence[LabelledObjects]):
    """The labelled objects of each picture, in the order of the pictures' ids.

    Attributes:
        categories: Of the objects, in the order of their ids, which is that of the indices.
    """

    def __init__(self, content: CocoFile) -> None:
        self._content = content
        self.categories: tuple[Category, ...] = tuple(content.categories)
        self._pictures = content.pictures
        self._index_of = {category.id: n for n, category in enumerate(content.categories)}
        self._annotations: dict[int, list[Annotation]] = {}
        for annotation in content.annotations:
            self._annotations.setdefault(annotation.image_id, []).append(annotation)

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: Any) -> Any:
        picture = self._pictures[index]
        found = self._annotations.get(picture.id, [])
        categories = [self._index_of[annotation.category_id] for annotation in found]
        boxes = np.array([annotation.box for annotation in found], dtype=np.float64)
        return LabelledObjects(
            image_id=picture.id,
            height=picture.height,
            width=picture.width,
            boxes=boxes.reshape(-1, 4),
            categories=np.array(categories, dtype=np.int64),
            areas=np.array([annotation.area for annotation in found], dtype=np.float64),
            crowds=np.array([annotation.is_crowd for annotation in found], dtype=bool),
            segmentations=[annotation.segmentation for annotation in found],
            records=[annotation.record for annotation in found],
        )

    def selected(self, indices: Sequence[int]) -> CocoLabels:
        """Return the labels of some of the pictures."""
        pictures = [self._pictures[index] for index in indices]
        ids = {picture.id for picture in pictures}
        annotations = [each for each in self._content.annotations if each.image_id in ids]
        return CocoLabels(self._content._replace(pictures=pictures, annotations=annotations))

    @property
    def used(self) -> list[Category]:
        """The categories that have objects."""
        ids: set[int] = set()
        for found in self._annotations.values():
            ids.update(annotation.category_id for annotation in found)
        return [category for category in self.categories if category.id in ids]


class CocoFolder(NamedTuple):
    """A dataset's pictures, their labels, and what messages call each picture."""

    pictures: FolderFiles
    labels: CocoLabels
    files: list[str]
    places: list[str]


def read_coco(path: Path) -> CocoFolder:
    """Read a COCO file, or the only one below a folder, and find its pictures.

    The names of pictures are relative to the folder of the COCO file, or else to the first folder
    below the dataset's with the first picture. Raises DatasetError.
    """
    if path.is_dir():
        root = path
        file = _coco_file(path)
    else:
        root = path.parent.parent if path.parent.name == _ANNOTATIONS else path.parent
        file = path
    content = read_coco_file(file)
    if not content.pictures:
        raise DatasetError(f"{file.name} has no images; write one for each picture")
    folder = _folder_of_pictures(file, root, content.pictures[0])
    names = [picture.file for picture in content.pictures]
    _check_files(file, root, folder, content.pictures)
    pictures = FolderFiles(root, folder, names, file.name)
    places = [f"{file.name}: {picture.record}: {picture.file}" for picture in content.pictures]
    return CocoFolder(pictures, CocoLabels(content), names, places)


def _coco_file(root: Path) -> Path:
    """Return the only COCO file below a folder; raises DatasetError."""
    files = sorted(path for path in root.rglob("*.json") if path.is_file())
    found = files if len(files) == 1 else [path for path in files if _has_sections(path)]
    if len(found) == 1:
        return found[0]
    sections = ", ".join(SECTIONS)
    if not found:
        raise DatasetError(f"has no COCO file: a .json file with {sections}; add one")
    names = [str(path.relative_to(root)) for path in found[:_SHOWN]]
    advice = f"name one behind the source, as in '#{names[0]}'"
    raise DatasetError(f"has {len(found)} COCO files, {', '.join(names)}; {advice}")


def _has_sections(path: Path) -> bool:
    """Return whether a file has the keys of a COCO file, without parsing it."""
    try:
        with open_regular(path) as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            return all(data.find(f'"{name}"'.encode()) >= 0 for name in SECTIONS)
    except (OSError, ValueError):  # ValueError: an empty file
        return False


def _folder_of_pictures(file: Path, root: Path, first: Picture) -> Path:
    """Return the folder that the names of pictures are relative to."""
    for folder in _folders(file, root):
        check_name(first.file, os.path.relpath(folder, root))
        if os.path.isfile(folder / first.file):
            return folder
    advice = "put the pictures below the dataset's folder"
    problem = f"{file.name}: {first.record}: there is no {first.file} in any folder"
    raise DatasetError(f"{problem}; {advice}")


def _folders(file: Path, root: Path) -> Iterator[Path]:
    yield file.parent
    for folder, inner, _ in os.walk(root):
        inner.sort()
        yield Path(folder)


def _check_files(file: Path, root: Path, folder: Path, pictures: Sequence[Picture]) -> None:
    """Raise DatasetError where pictures aren't there, or are outside of the dataset."""
    relative = os.path.relpath(folder, root)
    missing = []
    for picture in pictures:
        try:
            check_name(picture.file, relative)
        except DatasetError as error:
            raise DatasetError(f"{file.name}: {picture.record}: {error}") from None
        if not os.path.isfile(folder / picture.file):
            missing.append(picture)
    if missing:
        names = ", ".join(picture.file for picture in missing[:_SHOWN])
        more = ", …" if len(missing) > _SHOWN else ""
        found = f"{len(missing):,} of {len(pictures):,} images are not there: {names}{more}"
        advice = "add them, or remove them from the file"
        raise DatasetError(f"{file.name}: {missing[0].record}: {found}; {advice}")
