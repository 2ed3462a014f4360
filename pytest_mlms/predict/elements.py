"""Elements of a manifest's dataset as inputs that a person chose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.measure.pipeline.dataset import open_dataset_of
from pytest_mlms.predict.inputs import Given
from pytest_mlms.project import download_limits, find_project
from pytest_mlms.provide.artifacts.fetch import default_cache, fetch


def element_of(loaded: LoadedManifest, number: int, cache: Path | None = None) -> Given:
    """Return an element of a manifest's dataset by its number, from 0: a value for each column.

    The dataset is fetched and checked; the folder ``cache`` is by default the project's. Raises
    DatasetError for a number that it hasn't, and ArtifactError.
    """
    manifest = loaded.manifest
    if manifest.dataset is None or loaded.dataset_file is None:
        raise DatasetError(f"{loaded.place()}: it has no dataset; give an input")
    project = find_project([loaded.path])
    folder = cache or Path(project.value("cache") or default_cache())
    limits = download_limits(project)
    path = fetch(loaded.dataset_file, folder, limits=limits)
    files = {
        name: fetch(artifact, folder, limits=limits) for name, artifact in loaded.step_files.items()
    }
    dataset = open_dataset_of(loaded, path, files)
    if not 0 <= number < len(dataset):
        problem = f"{dataset.name} has {len(dataset):,} elements"
        raise DatasetError(f"{problem}; write a number from 0 to {len(dataset) - 1}")
    given: dict[str, Any] = {}
    for spec in manifest.inputs:
        if not spec.is_state:
            element = dataset.elements[spec.name][number]
            parts = element if isinstance(element, tuple) else (element,)
            given.update(zip(spec.columns, parts, strict=True))
    return given
