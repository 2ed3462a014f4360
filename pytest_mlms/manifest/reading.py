"""Reading of YAML files of keys and values that people write, and of datasets by their names.

A manifest may only name its dataset, and a datasets.yaml describe it: one in the folder of the
manifest, or in one above it up to the current folder; the nearest one that has the name counts. So
one folder of manifests is used with other data elsewhere."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_mlms.core.errors import ManifestError
from pytest_mlms.core.files import read_regular
from pytest_mlms.manifest.schema import DatasetEntry
from pytest_mlms.manifest.sources import scheme_of
from pytest_mlms.manifest.yaml12 import Document, parse

_MAX_BYTES = 1 << 20


def read(
    path: Path,
    beginning: str = "a manifest begins with 'name: …'",
    parse: Callable[[str], Document] = parse,
) -> Document:
    """Read a YAML file of keys and values.

    What is wrong with it is in the document's errors. ``beginning`` tells the user how such a file
    begins.
    """
    try:
        data = read_regular(path, _MAX_BYTES)
    except OSError as error:
        advice = "check the path, its permissions, and that it is the file you mean"
        return _unreadable(f"can't be read: {error.strerror}; {advice}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        advice = f"save it as UTF-8, or name another file: {beginning}"
        return _unreadable(f"is not UTF-8 (byte {error.start}); {advice}", line)
    document = parse(text)
    if isinstance(document.value, dict) or document.errors:
        return document
    return _unreadable(f"{_wrong_content(document.value)}; {beginning}")


def _wrong_content(value: object) -> str:
    if value is None:
        return "is empty"
    kind = "a list" if isinstance(value, list) else "one value"
    return f"holds {kind}, not keys and values"


def _unreadable(text: str, line: int = 1) -> Document:
    return Document(errors=[(line, text)])


def shown(path: Path) -> Path:
    """Return the path relative to the current folder, where it lies there."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path


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
