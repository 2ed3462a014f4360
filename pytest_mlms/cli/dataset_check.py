"""Check of a manifest's local dataset, as far as it is possible without running a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from pytest_mlms.cli.model_check import known_classes
from pytest_mlms.core.errors import ArtifactError, DatasetError
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.manifest.schema import Input
from pytest_mlms.manifest.sources import is_remote
from pytest_mlms.measure.evaluate.tasks.classification import check_labels
from pytest_mlms.measure.pipeline import Dataset, open_dataset, read_labels
from pytest_mlms.measure.pipeline.step_files import class_numbers_of, with_local_files
from pytest_mlms.provide.artifacts.fetch import fetch
from pytest_mlms.provide.artifacts.unpinned import without_record


def check_dataset(loaded: LoadedManifest, cache: Path) -> Iterator[DatasetError | ArtifactError]:
    """Yield what is wrong with a local dataset: its form, its labels, or its first element.

    An archive is unpacked into the cache. Raises MlmsError where a library is missing that reads
    the elements.
    """
    artifact = loaded.dataset_file
    if artifact is None or is_remote(artifact.source):
        return
    try:
        _check(loaded, fetch(without_record(artifact), cache), cache)
    except (DatasetError, ArtifactError) as error:
        yield error


def _check(loaded: LoadedManifest, path: Path, cache: Path) -> None:
    manifest = loaded.manifest
    entry = manifest.dataset
    assert entry is not None, "its file is there"
    files = _local_step_files(loaded, cache)
    inputs = [with_local_files(spec, files) for spec in manifest.inputs]
    place = loaded.place("dataset", "source")
    classes = _class_numbers(loaded, files)
    dataset = open_dataset(path, inputs, place, entry.source, manifest.label_form, classes)
    _check_classes(loaded, dataset)
    are_files_here = all(_has_files(spec, files) for spec in manifest.inputs)
    if entry.skip_corrupt or not are_files_here:
        return
    dataset.batch([0])
    if dataset.labels is not None:
        dataset.label(0)


def _class_numbers(loaded: LoadedManifest, files: Mapping[str, Path]) -> Mapping[str, int]:
    """Return the numbers of classes by their names; 0 for all if the names aren't here yet."""
    names = loaded.labels_file
    if names is not None and is_remote(names.source):
        return _AnyName()
    return class_numbers_of(loaded.manifest, files)


class _AnyName(dict[str, int]):
    """A mapping that has every name, of class 0."""

    def get(self, key: object, default: object = None) -> int:
        return 0


def _local_step_files(loaded: LoadedManifest, cache: Path) -> dict[str, Path]:
    files = {}
    for name, artifact in loaded.step_files.items():
        if not is_remote(artifact.source):
            files[name] = fetch(without_record(artifact), cache)
    return files


def _has_files(spec: Input, files: Mapping[str, Path]) -> bool:
    """Return whether all files that the steps of an input name are among ``files``."""
    sources: set[str] = set()
    for step in spec.steps:
        sources.update(file.source for file in step.files)
    return sources <= files.keys()


def _check_classes(loaded: LoadedManifest, dataset: Dataset) -> None:
    """Compare labels that are classes with those of the local files that tell them."""
    if dataset.labels is None or loaded.manifest.classification is None:
        return
    classes = _number_of_classes(loaded)
    if classes is not None:
        check_labels(dataset, np.asarray(dataset.labels), classes)


def _number_of_classes(loaded: LoadedManifest) -> int | None:
    """Return how many classes there are by the file of their names, or else by an ONNX file."""
    names = loaded.labels_file
    if names is not None and not is_remote(names.source) and names.member is None:
        return len(read_labels(Path(names.source)))
    try:
        return known_classes(loaded)
    except ImportError:
        return None
