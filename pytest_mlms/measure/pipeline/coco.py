"""Datasets of pictures with labelled objects: a COCO file, and a folder with the pictures."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.files import open_regular
from pytest_mlms.measure.pipeline.coco_json import (
    SECTIONS,
    Annotation,
    Category,
    CocoFile,
    Picture,
    read_coco_file,
)
from pytest_mlms.measure.pipeline.folder_files import FolderFiles, check_name
from pytest_mlms.measure.pipeline.objects import LabelledObjects

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

    The names of pictures are relative to a folder: that of the COCO file, or else the first below
    the dataset's that has the first picture. Raises DatasetError.
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
