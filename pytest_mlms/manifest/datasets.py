"""Datasets that manifests only name, and that a datasets.yaml describes.

It is in the folder of the manifest, or in one above it up to the current folder; the nearest one
that has the name counts. So one folder of manifests is used with other data elsewhere.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_mlms.core.errors import ManifestError
from pytest_mlms.manifest.reading import read, shown
from pytest_mlms.manifest.schema import DatasetEntry
from pytest_mlms.manifest.sources import scheme_of
from pytest_mlms.manifest.yaml12 import Document

DATASET_FILES = ("datasets.yaml", "datasets.yml")

_BEGINNING = "a dataset begins with 'name: {version: 1.0.0, source: …}'"


def with_described_dataset(document: Document, path: Path) -> Any:
    """Return the content of the manifest at ``path`` with the dataset that it names.

    A dataset that is described nowhere is left out, with a warning. Raises ManifestError for a
    description with errors.
    """
    content = document.value
    name = content.get("dataset") if isinstance(content, dict) else None
    if not isinstance(name, str):
        return content
    entry = _described(name, path)
    if entry is None:
        text = f"no datasets.yaml describes the dataset {name!r}, so accuracy isn't measured"
        line = document.line(("dataset",))
        warnings.warn_explicit(f"{text}; add it to one", UserWarning, str(shown(path)), line)
    return {**content, "dataset": entry}


def _described(name: str, manifest: Path) -> Mapping[str, Any] | None:
    """Return the entry of the nearest datasets.yaml that has it; None where there is none."""
    for folder in _folders(manifest.absolute().parent):
        for file in DATASET_FILES:
            path = folder / file
            if path.is_file():
                document = read(path, _BEGINNING)
                for line, text in document.errors:
                    raise ManifestError(f"{shown(path)}:{line}: {text}")
                if name in document.value:
                    return _entry(name, path, document)
    return None


def _folders(folder: Path) -> Iterator[Path]:
    """Yield a folder, and those above it up to the current one if it is below that."""
    yield folder
    current = Path.cwd()
    for parent in folder.parents:
        if parent.is_relative_to(current):
            yield parent


def _entry(name: str, path: Path, document: Document) -> Mapping[str, Any]:
    """Return the keys of a dataset, with an absolute path; raises ManifestError."""
    value = document.value[name]
    if not isinstance(value, dict):
        line = document.line((name,))
        raise ManifestError(f"{shown(path)}:{line}: {name} has no keys; {_BEGINNING}")
    entry = {"name": name, **value}
    try:
        checked = DatasetEntry.model_validate(entry)
    except ValidationError as error:
        from pytest_mlms.manifest.messages import describe

        lines = []
        for found in error.errors(include_url=False):
            found["loc"] = (name, *found["loc"])
            line, text = describe(found, document, DatasetEntry, 1)
            lines.append(f"{shown(path)}:{line}: {text}")
        raise ManifestError("\n".join(lines)) from None
    if scheme_of(checked.source):
        return entry
    return {**entry, "source": os.path.normpath(path.parent / checked.source)}
