"""A person's labelled data in place of the datasets of manifests: whose models it is for.

Nothing is guessed: a model takes part only where it is known which of its classes each label is.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pytest_mlms.author.draft.data import (
    ArrayData,
    CocoData,
    Data,
    PictureData,
    SoundData,
    TableData,
    pack_folder,
)
from pytest_mlms.author.draft.dataset import numbers_of
from pytest_mlms.author.draft.table_files import ColumnsData
from pytest_mlms.author.loading import NoManifestError, load_manifest
from pytest_mlms.core.errors import DatasetError, ManifestError, MlmsError
from pytest_mlms.core.records import Artifact
from pytest_mlms.manifest.load import LoadedManifest, find_manifests
from pytest_mlms.manifest.output_steps import Classes
from pytest_mlms.manifest.scenarios import points_of
from pytest_mlms.manifest.schema import DatasetEntry, Evaluate, Manifest
from pytest_mlms.manifest.thresholds import Thresholds
from pytest_mlms.measure.pipeline import without_corrupt
from pytest_mlms.measure.pipeline.dataset import open_dataset_of
from pytest_mlms.measure.pipeline.step_files import read_names
from pytest_mlms.provide.artifacts.digest import sha256_of

_SHOWN = 3  # classes in an error
_CORRUPT_SHOWN = 50

Say = Callable[[str], None]


@dataclass(frozen=True)
class Means:
    """How files are got, and where those that are made of the data are kept."""

    fetch: Callable[[Artifact], Path]
    archives: Path
    say: Say


def zoo_of(
    paths: Sequence[Path], data: Data, task: str | None, predictors: Mapping[str, Path], say: Say
) -> list[LoadedManifest]:
    """Return the manifests at ``paths`` whose task and inputs are those of the data.

    Raises MlmsError where there are none, or the data may be of several tasks and ``task`` doesn't
    say which.
    """
    if isinstance(data, (ArrayData, ColumnsData)):
        problem = "arrays and tables of features are for one model, which is made for their columns"
        write = f"mlms init MODEL --data {shlex.quote(str(data.path))}"
        raise MlmsError(f"{data.path}: {problem}; write its manifest: {write}")
    if isinstance(data, PictureData) and data.others:
        others = f"{len(data.others):,} files that are no {data.noun}: {data.others[0]} …"
        say(f"{data.path}: left out {others}")
    found = []
    for path in find_manifests(paths):
        try:
            loaded = load_manifest(path, predictors)
        except NoManifestError:
            continue
        except ManifestError as error:
            say(f"left out: {str(error).splitlines()[0]}")
            continue
        if loaded.origin is not None:
            say(f"left out: {loaded.place()}: it is one of MLModelScope; write 'mlms import'")
        elif task in (None, loaded.manifest.task) and _takes(loaded.manifest, data):
            found.append(loaded)
    tasks = sorted({loaded.manifest.task for loaded in found})
    where = ", ".join(map(str, paths))
    if not found:
        of_task = f" of {task}" if task else ""
        raise MlmsError(
            f"{data.path}: no manifest{of_task} in {where} is for such data; name others"
        )
    if len(tasks) > 1:
        problem = f"its labels may be those of {' or '.join(tasks)}"
        raise MlmsError(f"{data.path}: {problem}; say which: --task {tasks[0]}")
    if isinstance(data, TableData) and found[0].manifest.label_form == "class":
        say(f"{data.path}: numbers of classes in it are taken to be those of each model")
    return found


def _takes(manifest: Manifest, data: Data) -> bool:
    """Return whether a manifest's labels and inputs have the form of the data's."""
    inputs = [spec for spec in manifest.inputs if not spec.is_state]
    kinds = [spec.type for spec in inputs]
    if not manifest.scored_outputs:
        return False
    if isinstance(data, CocoData):
        return manifest.label_form == "boxes" and kinds == ["image"]
    if isinstance(data, PictureData):
        kind = "audio" if isinstance(data, SoundData) else "image"
        return manifest.label_form == "class" and kinds == [kind]
    return manifest.label_form != "boxes"


def fit(
    zoo: Sequence[LoadedManifest], data: Data, means: Means
) -> tuple[list[LoadedManifest], dict[str, str]]:
    """Return manifests with the data in place of their datasets, and why others aren't for it.

    All leave out the same elements, which nobody can read; these are told. Raises MlmsError where
    archives would be written into the data.
    """
    if data.path.is_dir() and means.archives.resolve().is_relative_to(data.path.resolve()):
        problem = f"{means.archives} is in it, and what is written there would become data"
        raise MlmsError(f"{data.path}: {problem}; name another folder by --mlms-results")
    refused: dict[str, str] = {}
    unread: dict[str, dict[str, str]] = {}
    fitting: dict[str, LoadedManifest] = {}
    for loaded in zoo:
        name = f"{loaded.manifest.name} ({loaded.place().path})"
        try:
            fitting[name] = _with_data(loaded, data, means)
            unread[name] = _unread(fitting[name], means)
        except MlmsError as error:
            refused[name] = str(error)
    common = set.intersection(*({*found} for found in unread.values())) if unread else set()
    able = []
    for name, own in unread.items():
        further = sorted({*own} - common)
        if further:
            text = f"it can't read {len(further)} that others can: {further[0]}: {own[further[0]]}"
            refused[name] = f"{fitting[name].place('inputs')}: {text}"
        else:
            able.append(_with_entry(fitting[name], skip_corrupt=len(common)))
    for element in sorted(common)[:_CORRUPT_SHOWN]:
        reason = next(iter(unread.values()))[element]
        file = element
        if isinstance(data, PictureData):  # whose table is ours
            file = str(data.path / element.partition(": ")[2])
        means.say(f"left out, as it can't be read: {file}: {reason}")
    if len(common) > _CORRUPT_SHOWN:
        means.say(f"left out, as they can't be read: {len(common) - _CORRUPT_SHOWN:,} more")
    return able, refused


def _with_data(loaded: LoadedManifest, data: Data, means: Means) -> LoadedManifest:
    """Return a manifest with the data in place of its dataset, and without limits.

    Those are for its own dataset. It has a point of its own, on the CPU. Raises MlmsError where it
    isn't known which of the model's classes each label is.
    """
    source = _source(loaded, data, means)
    entry = DatasetEntry(
        name=_name_of(data),
        version="1.0.0",
        source=os.path.relpath(source, loaded.path.parent),
        sha256=sha256_of(source),
    )
    (point,) = points_of("accuracy", loaded.manifest)
    own = loaded.manifest.evaluate
    evaluate = Evaluate(batch_sizes=[point.batch_size], threads=own.threads, seed=own.seed)
    changes = {"dataset": entry, "thresholds": Thresholds(), "evaluate": evaluate}
    return replace(loaded, manifest=loaded.manifest.model_copy(update=changes))


def _with_entry(loaded: LoadedManifest, **changes: int) -> LoadedManifest:
    assert loaded.manifest.dataset is not None, "the data is its dataset"
    entry = loaded.manifest.dataset.model_copy(update=changes)
    return replace(loaded, manifest=loaded.manifest.model_copy(update={"dataset": entry}))


def _name_of(data: Data) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", data.path.absolute().stem).strip("-._")
    return name or "data"


def _source(loaded: LoadedManifest, data: Data, means: Means) -> Path:
    """Return the file of the data for a manifest: data that is no single file is packed."""
    if isinstance(data, PictureData):
        numbers = _class_numbers(loaded, data, means)
        return _packed(data, means, lambda target: data.pack(target, numbers))
    if isinstance(data, CocoData):
        _check_named(loaded)
        return _packed(data, means, data.pack)
    if data.path.is_dir():
        return _packed(data, means, lambda target: pack_folder(data.path, target))
    return data.path


def _class_numbers(loaded: LoadedManifest, data: PictureData, means: Means) -> dict[str, int]:
    """Return the number that the model has for each class of a folder; raises MlmsError."""
    if loaded.labels_file is None:
        if not all(name.isdecimal() for name in data.class_names):
            problem = "the model's classes have no names here"
            advice = "name the folders by its numbers, or add 'labels' to its step top_k"
            raise MlmsError(f"{loaded.place('outputs')}: {problem}; {advice}")
        means.say(f"{loaded.place('outputs')}: it names no classes; folders are its numbers")
        return {name: int(name) for name in data.class_names}
    names = read_names(means.fetch(loaded.labels_file), "label")
    source = Path(loaded.labels_file.source).name
    found: dict[str, int] = {}
    problems = []
    for name in data.class_names:
        try:
            found.update(numbers_of(replace(data, classes=[name]), names, None, source))
        except MlmsError as error:
            problems.append(str(error).partition("; ")[0])
    if problems:
        count = f"{len(problems)} of {len(data.class_names)} classes are none of its own"
        more = "; …" if len(problems) > _SHOWN else ""
        shown = "; ".join(problems[:_SHOWN])
        raise MlmsError(f"{loaded.labels_file.place}: {count}: {shown}{more}")
    return found


def _check_named(loaded: LoadedManifest) -> None:
    """Raise MlmsError where only the order or the ids of another dataset tell a model's classes."""
    for output in loaded.manifest.scored_outputs:
        for step in output.steps:
            parameters = step.parameters
            if isinstance(parameters, Classes) and parameters.ids is None:
                return
    advice = "add a step 'classes' with their names"
    raise MlmsError(f"{loaded.place('outputs')}: the model's classes have no names here; {advice}")


def _packed(data: Data, means: Means, pack: Callable[[Path], None]) -> Path:
    """Return an archive that ``pack`` writes, named by its content; raises MlmsError."""
    try:
        means.archives.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=means.archives) as folder:
            written = Path(folder, "data.zip")
            pack(written)
            target = means.archives / f"{_name_of(data)}-{sha256_of(written)[:12]}.zip"
            return written.replace(target)
    except OSError as error:
        problem = f"{means.archives} can't be written: {error.strerror}"
        raise MlmsError(f"{problem}; name another folder by --mlms-results") from error


def _unread(loaded: LoadedManifest, means: Means) -> dict[str, str]:
    """Return the elements that the steps of a manifest can't read, with the errors."""
    file = loaded.dataset_file
    assert file is not None, "the data is its dataset"
    steps = {name: means.fetch(artifact) for name, artifact in loaded.step_files.items()}
    dataset = open_dataset_of(loaded, means.fetch(file), steps)
    if dataset.labels is None:
        raise DatasetError(f"{dataset.name} has no labels; add them")
    found = without_corrupt(dataset, len(dataset)).skipped
    return {each.element: each.error for each in found}
