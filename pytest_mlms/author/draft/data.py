"""The data that a user names for a model: its form, and what a dataset of it is made of."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pytest_mlms.author.draft.parts import InputPart
from pytest_mlms.author.draft.table_files import TABLE_SUFFIXES, ColumnsData, read_table
from pytest_mlms.core.errors import DatasetError, MlmsError
from pytest_mlms.core.files import read_regular, replacing
from pytest_mlms.measure.pipeline.coco import Record
from pytest_mlms.provide.artifacts.archives import is_archive

_PICTURES = (
    *(".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pgm", ".png", ".ppm"),
    *(".tif", ".tiff", ".webp"),
)
_SOUNDS = (".aif", ".aiff", ".flac", ".mp3", ".ogg", ".wav")
_FILES = (*_PICTURES, *_SOUNDS)
_TABLE = "labels.csv"
_CSV_SUFFIXES = (".csv", ".tsv")
_MOST_BYTES = 4 << 30
_SHOWN = 3  # names in an error
_COCO = "objects.json"
_TEXTS = {"images": ["file_name"], "annotations": [], "categories": ["name"]}
_NUMBERS = {"images": ["id"], "annotations": ["image_id"], "categories": ["id"]}
"""The fields read of each entry of a COCO file; all else is checked where it is measured."""
_MOST_OF_COCO = 1 << 30  # bytes of a COCO file
_DATE = (1980, 1, 1, 0, 0, 0)
"""The time of all members of an archive that is written here: equal files give equal digests."""
_FORMS = (
    "a folder with a folder of pictures or sounds for each class, a folder or an archive with a "
    "labels.csv, an .npz, a table (.csv, .tsv), or the .json of a COCO dataset"
)
_OTHER_TABLES = {
    **dict.fromkeys((".xls", ".xlsx", ".ods"), "read_excel"),
    **dict.fromkeys((".parquet", ".pq"), "read_parquet"),
    ".feather": "read_feather",
    ".jsonl": "read_json",
    ".pkl": "read_pickle",
}
"""Suffixes of tables that aren't text -> what reads them in pandas."""


@dataclass(frozen=True)
class ArrayData:
    """An .npz file: type and shape of each array, by name.

    ``path`` is what the user named. It is another file than ``file``, the .npz, where this was made
    of it; ``comment`` then says how. ``parts`` are the inputs that are made of arrays of other
    names.
    """

    path: Path
    arrays: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]
    file: Path | None = None
    comment: str = ""
    parts: Mapping[str, InputPart] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        """The .npz file."""
        return self.file or self.path

    @property
    def labels(self) -> np.ndarray[Any, Any]:
        """The labels, which must be there."""
        with np.load(self.source, allow_pickle=False) as file:
            return np.asarray(file["label"])

    def values(self, name: str) -> np.ndarray[Any, Any]:
        """Return an array, which must be there."""
        with np.load(self.source, allow_pickle=False) as file:
            return np.asarray(file[name])

    def pack(self, target: Path, labels: np.ndarray[Any, Any]) -> None:
        """Write the arrays with other labels to an .npz. Raises MlmsError."""
        try:
            with np.load(self.source, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except OSError as error:
            problem = f"{self.source} can't be read: {error.strerror}"
            raise MlmsError(f"{problem}; write it with numpy.savez") from error
        pack_arrays(target, {**arrays, "label": labels})

    def first_rows(self, name: str, count: int) -> list[Any]:
        """Return the first rows of an array, again from the start where it has fewer."""
        with np.load(self.source, allow_pickle=False) as file:
            rows = file[name]
        if rows.ndim == 0:
            return [rows] * count  # for all elements
        return [rows[number % len(rows)] for number in range(count)]


@dataclass(frozen=True)
class TableData:
    """A folder or an archive with a labels.csv that is used as it is."""

    path: Path


@dataclass(frozen=True)
class PictureData:
    """A folder with a folder of pictures for each class.

    ``files`` are relative to ``path``, and ``classes`` has the name of the class of each.
    ``others`` are files that are no pictures by their names.
    """

    path: Path
    files: Sequence[str]
    classes: Sequence[str]
    others: Sequence[str] = ()
    noun: ClassVar[str] = "pictures"

    @property
    def class_names(self) -> list[str]:
        """The names of the classes, in the order that frameworks number them by default."""
        return sorted(set(self.classes))

    def sample(self, most: int) -> PictureData:
        """Return at most so many pictures, drawn with a fixed seed, as evenly as the classes can
        give them.
        """
        if len(self.files) <= most:
            return self
        by_class: dict[str, list[int]] = {name: [] for name in self.class_names}
        for index, name in enumerate(self.classes):
            by_class[name].append(index)
        for indices in by_class.values():
            random.Random(0).shuffle(indices)
        chosen = _in_turns(list(by_class.values()))[:most]
        chosen.sort()
        files = [self.files[index] for index in chosen]
        return replace(self, files=files, classes=[self.classes[index] for index in chosen])

    def pack(self, target: Path, numbers: Mapping[str, int]) -> None:
        """Write the pictures and a labels.csv, by the ``numbers`` of classes, to an archive.

        Raises MlmsError.
        """
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(["file", "label"])
        for file, name in zip(self.files, self.classes, strict=True):
            writer.writerow([file, numbers[name]])
        _pack(target, self.path, self.files, {_TABLE: table.getvalue().encode()})


@dataclass(frozen=True)
class CocoData:
    """A COCO file: its content, and the folder that the names of its pictures are relative to."""

    path: Path
    folder: Path
    content: Mapping[str, Any]

    @property
    def categories(self) -> list[str]:
        """The names of the categories, in the order of their ids."""
        known = sorted(self.content["categories"], key=lambda category: category["id"])
        return [str(category["name"]) for category in known]

    def sample(self, most: int) -> CocoData:
        """Return at most so many pictures, drawn with a fixed seed, with their objects."""
        images = list(self.content["images"])
        if len(images) <= most:
            return self
        chosen = random.Random(0).sample(images, most)
        ids = {image["id"] for image in chosen}
        kept = [image for image in images if image["id"] in ids]
        annotations = [one for one in self.content["annotations"] if one["image_id"] in ids]
        return replace(self, content={**self.content, "images": kept, "annotations": annotations})

    def pack(self, target: Path) -> None:
        """Write the pictures and the COCO file to an archive. Raises MlmsError."""
        files = [image["file_name"] for image in self.content["images"]]
        text = json.dumps(self.content).encode()
        _pack(target, self.folder, files, {_COCO: text})


class SoundData(PictureData):
    """A folder with a folder of files of sound for each class."""

    noun: ClassVar[str] = "sounds"


Data = ArrayData | CocoData | ColumnsData | TableData | PictureData


def _in_turns(groups: Sequence[Sequence[int]]) -> list[int]:
    """Return the elements of all groups: the first of each, the second of each, and so on."""
    longest = max(len(group) for group in groups)
    found = []
    for place in range(longest):
        found += [group[place] for group in groups if place < len(group)]
    return found


def recognise_data(path: Path) -> Data:
    """Return the data at ``path``. Raises MlmsError, which says what forms there are."""
    if not path.exists():
        raise MlmsError(f"there is no {path}; name {_FORMS}")
    if path.is_dir():
        return _of_folder(path)
    if path.name == _TABLE:
        return TableData(path.parent)
    if path.suffix == ".json":
        return _of_coco(path, [*path.parent.parent.iterdir(), path.parent.parent])
    if path.suffix == ".npz":
        return _of_npz(path)
    if path.suffix.lower() in TABLE_SUFFIXES:
        return read_table(path)
    if is_archive(path):
        return TableData(path)
    raise _unknown(path)


def _unknown(path: Path) -> MlmsError:
    """Return the error of a file of another form, with what makes a table of it."""
    name = path.name.lower()
    if name.endswith(tuple(f"{suffix}.gz" for suffix in TABLE_SUFFIXES)):
        return MlmsError(f"{path} is a packed table; unpack it: gunzip -k {path}")
    reader = _OTHER_TABLES.get(path.suffix.lower())
    if reader:
        advice = f"pandas.{reader}({str(path)!r}).to_csv('data.csv', index=False)"
        return MlmsError(f"{path} is no table of text; write it as one: {advice}")
    return MlmsError(f"{path} is no dataset that is known here; name {_FORMS}")


def _of_folder(folder: Path) -> Data:
    if (folder / _TABLE).is_file() or len(list(folder.glob(f"*/{_TABLE}"))) == 1:
        return TableData(folder)
    tables = sorted(folder.glob("*.json")) or sorted(folder.glob("annotations/*.json"))
    if len(tables) == 1:
        return _of_coco(tables[0], [folder, *folder.iterdir()])
    if tables:
        names = ", ".join(str(path) for path in tables[:_SHOWN])
        raise MlmsError(f"{folder} has several COCO files; name one: --data {names}")
    table = _table_in(folder)
    if table is not None:
        return read_table(table)
    found = _files_below(folder)
    pictures = [name for name in found if name.lower().endswith(_PICTURES)]
    sounds = [name for name in found if name.lower().endswith(_SOUNDS)]
    files = pictures if len(pictures) >= len(sounds) else sounds
    kind = PictureData if files is pictures else SoundData
    taken = set(files)
    others = [name for name in found if name not in taken]
    classes = [name.partition("/")[0] if "/" in name else "" for name in files]
    if not files:
        raise MlmsError(f"{folder} has no pictures and no labels.csv; name {_FORMS}")
    if "" in classes:
        example = files[classes.index("")]
        problem = f"{folder} has {kind.noun} without a class, such as {example}"
        advice = "put them into a folder for each class, or add a labels.csv (file,label)"
        raise MlmsError(f"{problem}; {advice}")
    return kind(folder, files, classes, others)


def _table_in(folder: Path) -> Path | None:
    """Return the table of a folder: data.csv, or the only one. Raises MlmsError for several."""
    tables = sorted(path for path in folder.iterdir() if path.suffix.lower() in _CSV_SUFFIXES)
    if not tables or any(name.lower().endswith(_FILES) for name in _files_below(folder)):
        return None
    called = [path for path in tables if path.stem == "data"]
    if len(called) == 1 or len(tables) == 1:
        return (called or tables)[0]
    names = ", ".join(str(path) for path in tables[:_SHOWN])
    raise MlmsError(f"{folder} has several tables; name one: --data {names}")


def _files_below(folder: Path) -> list[str]:
    """Return the files below a folder that aren't hidden, also those in links to folders.

    Links that lead up again are left out: the files there are found, and are of other classes.
    """
    found = []
    for parent, folders, names in os.walk(folder, followlinks=True):
        below = Path(parent).relative_to(folder)
        around = [Path(folder, *below.parts[:depth]).resolve() for depth in range(len(below.parts))]
        around.append(Path(parent).resolve())
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and not _leads_up(Path(parent, name), around)
        ]
        kept = [name for name in names if not name.startswith(".") and Path(parent, name).is_file()]
        found += [(below / name).as_posix() for name in kept]
    return sorted(found, key=lambda name: name.split("/"))


def _leads_up(path: Path, around: Iterable[Path]) -> bool:
    """Return whether a folder is a link to one of those around it, or above these."""
    return path.is_symlink() and any(each.is_relative_to(path.resolve()) for each in around)


def _of_coco(path: Path, folders: Iterable[Path]) -> CocoData:
    """Return a COCO file, whose pictures are beside it, or in the one of some folders that has the
    first.
    """
    try:
        content = json.loads(read_regular(path, _MOST_OF_COCO))
        images = content["images"]
        missing = [section for section in _TEXTS if not isinstance(content[section], list)]
        first = str(images[0]["file_name"])
    except (OSError, ValueError, RecursionError) as error:
        raise MlmsError(f"{path} can't be read: {error}; name a COCO file") from error
    except (KeyError, IndexError, TypeError) as error:
        missing = [str(error)]
    if missing:
        sections = ", ".join(_TEXTS)
        raise MlmsError(f"{path} is no COCO file, which has lists of {sections}; name another")
    _check_entries(path, content)
    having = [folder for folder in sorted(set(folders)) if (folder / first).is_file()]
    if (path.parent / first).is_file():
        having = [path.parent]
    if len(having) == 1:
        return CocoData(path, having[0], content)
    problem = f"{path} names {first}, which is neither beside it nor in a folder there"
    if having:
        problem = f"{path} names {first}, which is in {' and in '.join(map(str, having))}"
    raise MlmsError(f"{problem}; put the file beside its pictures")


def _check_entries(path: Path, content: Mapping[str, Any]) -> None:
    """Raise MlmsError for the first entry of a COCO file that lacks what is read of it."""
    try:
        for section, texts in _TEXTS.items():
            for number, value in enumerate(content[section]):
                record = Record.of(value, section, number)
                for key in texts:
                    record.text(key)
                for key in _NUMBERS[section]:
                    record.whole(key)
    except DatasetError as error:
        raise MlmsError(f"{path}: {error}") from None


def _of_npz(path: Path) -> ArrayData:
    arrays = {}
    try:
        with np.load(path, allow_pickle=False) as file:
            for name in file.files:
                array = file[name]
                if array.ndim > 0 and len(array) == 0:
                    raise ValueError(f"{name!r} has no rows")
                if name == "label" and array.ndim == 0:
                    raise ValueError("'label' is one number, not one for each input")
                arrays[name] = (array.dtype, array.shape)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise MlmsError(f"{path} can't be read: {error}; write it with numpy.savez") from error
    if not arrays:
        raise MlmsError(f"{path} has no arrays; write one for each input, and 'label'")
    return ArrayData(path, arrays)


def pack_arrays(target: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write arrays to an .npz, whatever their names. Raises MlmsError."""
    try:
        with replacing(target) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            for name, array in arrays.items():
                member = zipfile.ZipInfo(f"{name}.npy", _DATE)
                with archive.open(member, "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
    except OSError as error:
        problem = f"{target} can't be written: {error.strerror}"
        raise MlmsError(f"{problem}; make room, or name another place") from error


def pack_folder(folder: Path, target: Path) -> None:
    """Write all files of a folder to an archive. Raises MlmsError."""
    names = _files_below(folder)
    files = [name for name in names if (folder / name).resolve() != target.resolve()]
    _pack(target, folder, files, {})


def _pack(target: Path, folder: Path, files: Iterable[str], texts: Mapping[str, bytes]) -> None:
    """Write an archive of files below a folder, and of other content by name."""
    names = list(files)
    try:
        size = sum((folder / name).stat().st_size for name in names)
    except OSError as error:
        problem = f"{error.filename} can't be read: {error.strerror}"
        raise MlmsError(f"{problem}; put it there, or leave it out") from error
    if size > _MOST_BYTES:
        problem = f"{folder} has {size / 2**30:.1f} GiB"
        raise MlmsError(f"{problem}; name a part of it, or an archive that you have packed")
    try:
        with replacing(target) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            for name, content in texts.items():
                archive.writestr(zipfile.ZipInfo(name, _DATE), content)
            for name in names:
                archive.writestr(zipfile.ZipInfo(name, _DATE), _content(folder / name))
    except OSError as error:
        problem = f"{target} can't be written: {error.strerror}"
        raise MlmsError(f"{problem}; make room, or name another place") from error


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        problem = f"{path} can't be read: {error.strerror}"
        raise MlmsError(f"{problem}; let it be read, or leave it out") from error
