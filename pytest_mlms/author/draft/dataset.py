"""The dataset of a draft: data that is named as it is, or packed beside the manifest.

Pictures get the numbers of their classes by the names of their folders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pytest_mlms.author.draft.data import ArrayData, CocoData, PictureData, TableData, pack_folder
from pytest_mlms.author.draft.findings import Findings
from pytest_mlms.author.draft.labels import class_numbers
from pytest_mlms.author.draft.opening import DraftRequest
from pytest_mlms.author.draft.parts import DatasetPart, OutputPart
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest.types import instead
from pytest_mlms.measure.pipeline import read_labels
from pytest_mlms.provide.artifacts.digest import sha256_of

_SHOWN = 20  # names in an error
_NAME_THE_FILE = (
    "name the file with the model's, one a line in the order of its output: --labels FILE"
)


def dataset_of(
    request: DraftRequest, findings: Findings
) -> tuple[DatasetPart | None, Sequence[OutputPart]]:
    """Return the dataset, and the outputs with the file of the names of their classes.

    Raises MlmsError where the data, the names and the model do not fit.
    """
    data = request.data
    if isinstance(data, CocoData):
        return _of_objects(data, request), findings.outputs
    names = _class_names(request, findings)
    if isinstance(data, PictureData):
        numbers = numbers_of(data, names, findings.classes, request.labels or "the model's file")
        part = _of_pictures(data, numbers, request)
        labels = _file_of_names(
            request, findings, names or sorted(numbers, key=numbers.__getitem__)
        )
        return part, _labelled(findings.outputs, labels, request)
    outputs = _labelled(findings.outputs, request.labels, request)
    if isinstance(data, ArrayData):
        _check_arrays(data, findings)
        part = _part_of(_with_class_numbers(data, findings, request), data.path, request)
        return replace(part, comment=data.comment), outputs
    if isinstance(data, TableData):
        return _of_table(data, request), outputs
    return None, outputs


def _class_names(request: DraftRequest, findings: Findings) -> list[str]:
    """Return the names of the model's classes, by --labels or by its file; none if unknown."""
    if request.labels is None:
        return list(findings.names)
    if findings.classes is None:
        raise MlmsError(f"{request.labels}: no output of the model has classes; leave it out")
    return read_labels(request.labels, findings.classes)


def _file_of_names(request: DraftRequest, findings: Findings, names: Sequence[str]) -> Path | None:
    """Return the file of the names of classes; it is written where --labels names none.

    None where some classes have no name.
    """
    if request.labels is not None:
        return request.labels
    if findings.classes != len(names):
        return None
    path = request.beside("labels.txt")
    path.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    return path


def _labelled(
    outputs: Sequence[OutputPart], labels: Path | None, request: DraftRequest
) -> Sequence[OutputPart]:
    """Return outputs whose best classes have names."""
    if labels is None:
        return outputs
    end = f", labels: {request.written(labels)}}}"
    named = []
    for output in outputs:
        steps = [
            step.replace("}", end) if step.startswith("top_k") else step for step in output.steps
        ]
        named.append(replace(output, steps=steps))
    return named


def _check_arrays(data: ArrayData, findings: Findings) -> None:
    """Raise MlmsError where there is no array for an input."""
    taken = [part.name for part in findings.inputs if part.from_output is None]
    missing = [name for name in taken if name not in {**data.arrays, **data.parts}]
    if missing:
        there = ", ".join(data.arrays)
        problem = f"{data.path} has no array for input {missing[0]!r}, but {there}"
        advice = f"save them by the names of the inputs: numpy.savez(…, {missing[0]}=…)"
        raise MlmsError(f"{problem}; {advice}")


def _with_class_numbers(data: ArrayData, findings: Findings, request: DraftRequest) -> Path:
    """Return the file of arrays; it is written anew where its classes are no whole numbers."""
    dtype, shape = data.arrays.get("label", (np.dtype(np.int64), (1,)))
    if findings.classes is None or (dtype.kind in "iu" and len(shape) == 1):
        return data.source
    numbers = class_numbers(data.labels)
    if numbers is None:
        return data.source
    target = request.beside("data.npz")
    data.pack(target, numbers)
    request.say(f"{data.path}: labels of {dtype}, written as numbers of classes into {target}")
    return target


def _of_table(data: TableData, request: DraftRequest) -> DatasetPart:
    """Pack a folder with a table, unless it is an archive; return the dataset."""
    source = data.path
    if source.is_dir():
        source = request.beside("data.zip")
        pack_folder(data.path, source)
        request.say(f"packed {data.path} into {source}")
    return _part_of(source, data.path, request)


def _of_objects(data: CocoData, request: DraftRequest) -> DatasetPart:
    """Pack pictures with their objects; return the dataset."""
    chosen = data.sample(request.most_inputs)
    target = request.beside("data.zip")
    chosen.pack(target)
    pictures = _part_of_all(len(chosen.content["images"]), len(data.content["images"]))
    objects = len(chosen.content["annotations"])
    request.say(f"{data.path}: {pictures} pictures with {objects:,} objects, packed into {target}")
    return _part_of(target, data.path, request)


def _of_pictures(data: PictureData, numbers: dict[str, int], request: DraftRequest) -> DatasetPart:
    """Pack pictures with the numbers of their classes; return the dataset."""
    chosen = data.sample(request.most_inputs)
    target = request.beside("data.zip")
    chosen.pack(target, numbers)
    pictures = _part_of_all(len(chosen.files), len(data.files))
    found = f"{pictures} {data.noun} of {len(numbers)} classes"
    request.say(f"{data.path}: {found}, packed into {target}")
    if data.others:
        count = f"{len(data.others):,}"
        request.say(
            f"{data.path}: left out {count} files that are no {data.noun}: {data.others[0]} …"
        )
    return _part_of(target, data.path, request)


def _part_of_all(part: int, count: int) -> str:
    return f"{part:,} of {count:,}" if part < count else f"{count:,}"


def _part_of(source: Path, data: Path, request: DraftRequest) -> DatasetPart:
    """Return the dataset in a file, named after the data that the user named."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", data.absolute().stem).strip("-._")
    return DatasetPart(name or "data", request.written(source), sha256_of(source))


def numbers_of(
    data: PictureData, names: Sequence[str], classes: int | None, source: Path | str
) -> dict[str, int]:
    """Return the number of each class of a folder.

    It is the place in ``names``, those of the model's ``classes`` that ``source`` has. Without
    these, it is the name itself where all are numbers, or else the place in the order of all.
    Raises MlmsError.
    """
    if names:
        return {name: _number(name, names, source) for name in data.class_names}
    if classes is None:
        problem = f"{data.path} has classes, and no output of the model has scores of them"
        raise MlmsError(f"{problem}; give other labels by a labels.csv")
    found = data.class_names
    if all(name.isdecimal() for name in found):
        numbers = {name: int(name) for name in found}
        largest = max(numbers.values())
        if largest >= classes:
            problem = f"{data.path} has a class {largest}, and the model 0 to {classes - 1}"
            raise MlmsError(f"{problem}; rename the folders, or {_NAME_THE_FILE}")
        return numbers
    if len(found) == classes:
        return {name: number for number, name in enumerate(found)}
    problem = f"{data.path} has {len(found)} classes, and the model {classes}"
    raise MlmsError(f"{problem}; {_NAME_THE_FILE}")


def _number(name: str, names: Sequence[str], source: Path | str) -> int:
    """Return the place of a class in the names: as it is written, or else in any case.

    It may be the beginning of a name, up to a comma or behind an identifier. Raises MlmsError.
    """
    beginnings = [known.partition(",")[0] for known in names]
    words = [(known.split() or [""])[0] for known in names]  # n01440764 tench
    wanted = _comparable(name)
    for found in (
        _places(name, names),
        _places(name, beginnings),
        _places(wanted, map(_comparable, names)) | _places(wanted, map(_comparable, beginnings)),
        _places(name, words),
    ):
        if len(found) > 1:
            shown = ", ".join(f"{names[place]!r} ({place})" for place in sorted(found))
            raise MlmsError(f"{source} has several classes {name!r}: {shown}; rename the folder")
        if found:
            return found.pop()
    advice = instead(name, names[:_SHOWN])
    raise MlmsError(f"{source} has no class {name!r}, which a folder is called; {advice}")


def _places(name: str, names: Iterable[str]) -> set[int]:
    return {place for place, known in enumerate(names) if known == name}


def _comparable(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()
