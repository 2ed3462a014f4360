"""Loading of manifests of either form: native ones, and those of MLModelScope as they are."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path

from pytest_mlms.core.errors import ManifestError
from pytest_mlms.manifest import yaml12
from pytest_mlms.manifest.load import LoadedManifest, load_document
from pytest_mlms.manifest.reading import read

_KEYS = frozenset({"framework", "models", "inputs", "outputs", "task"})
"""Keys of which every manifest has one, of either form, and other YAML files seldom any."""


class NoManifestError(ManifestError):
    """A file of keys and values that are those of something else, such as a CI service."""


def load_manifest(
    path: Path, frameworks: Collection[str] | None = None, allow_code: bool = False
) -> LoadedManifest:
    """Read and check the manifest at ``path``; one of MLModelScope is translated in memory.

    ``frameworks`` are those that have a predictor; None accepts all. With ``allow_code`` one whose
    Python is unknown is taken, too, and agents run it for its items. Nothing of the file is run
    here, and nothing is fetched. Raises ManifestError with every error of the file, a line each;
    NoManifestError where it seems to be a file of another kind.
    """
    document = read(path)
    if _may_be_original(document, path):
        from pytest_mlms.author.legacy.loading import load_original

        loaded = load_original(path, frameworks, allow_code)
        if loaded is not None:
            return loaded
    try:
        return load_document(path, document, frameworks)
    except ManifestError as error:
        if document.value and _KEYS.isdisjoint(document.value):
            raise NoManifestError(str(error)) from None
        raise


def _may_be_original(document: yaml12.Document, path: Path) -> bool:
    content = document.value
    if content is None:  # a digest of decimal digits alone is too long for a number
        content = read(path, parse=partial(yaml12.parse, keep_written=True)).value
    # A native manifest has models at its top; an original has one framework there.
    return isinstance(content, dict) and "framework" in content and "models" not in content
