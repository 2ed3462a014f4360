"""Manifests of the portal's folder, by their path below it. No request opens a file by its name."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_mlms.author.loading import load_manifest
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.text import encodable
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.manifest.sources import is_remote
from pytest_mlms.predict.inputs import needed_columns

_SUFFIXES = (".yaml", ".yml")
_STALE_SECONDS = 5.0


@dataclass(frozen=True)
class ManifestEntry:
    """A manifest: its path below the folder, the facts of its model, and its text.

    ``columns`` are what a person gives the model, each with the type of its input. ``dataset`` is
    the name and version of the one that is beside the manifest, "" without it.
    """

    path: str
    name: str
    version: str
    task: str
    license: str
    frameworks: tuple[str, ...]
    text: str
    columns: tuple[tuple[str, str], ...] = ()
    dataset: str = ""


class Manifests:
    """The manifests of a folder that can be read, but for links and names that are no UTF-8."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._entries: dict[str, tuple[int, ManifestEntry | None]] = {}
        self._read = -_STALE_SECONDS
        self._lock = threading.Lock()

    def by_path(self) -> Mapping[str, ManifestEntry]:
        """Return the manifests by their path below the folder, sorted."""
        with self._lock:
            if time.monotonic() - self._read > _STALE_SECONDS:
                self._entries = dict(self._refreshed())
                self._read = time.monotonic()
            found = {path: entry for path, (_, entry) in self._entries.items()}
        return {path: entry for path, entry in sorted(found.items()) if entry is not None}

    def of_model(self, name: str) -> ManifestEntry | None:
        """Return the manifest of a model by the model's name."""
        entries = self.by_path().values()
        return next((entry for entry in entries if entry.name == name), None)

    def _refreshed(self) -> Iterator[tuple[str, tuple[int, ManifestEntry | None]]]:
        """Yield each manifest, read again where its file has changed."""
        for path in self._files():
            name = str(path.relative_to(self._folder or path))
            if encodable(name) != name:
                continue
            modified = path.stat().st_mtime_ns
            known = self._entries.get(name)
            if known is None or known[0] != modified:
                known = (modified, _entry(name, path))
            yield name, known

    def _files(self) -> Iterator[Path]:
        if self._folder is None:
            return
        for parent, _, names in os.walk(self._folder):  # follows no links to folders
            for name in names:
                path = Path(parent, name)
                if name.endswith(_SUFFIXES) and path.is_file() and not path.is_symlink():
                    yield path


def _entry(name: str, path: Path) -> ManifestEntry | None:
    """Return a manifest; None for other YAML files, and for one that has errors."""
    try:
        loaded = load_manifest(path)
        manifest = loaded.manifest
        text = path.read_text(encoding="utf-8", errors="replace")
    except (MlmsError, OSError):
        return None
    return ManifestEntry(
        path=name,
        name=manifest.name,
        version=str(manifest.version),
        task=str(manifest.task),
        license=manifest.license or "",
        frameworks=tuple(model.name for model in manifest.models),
        text=text,
        columns=tuple(
            (name, "text" if spec.takes_text else spec.type)
            for name, spec in needed_columns(manifest.inputs).items()
        ),
        dataset=_local_dataset(loaded),
    )


def _local_dataset(loaded: LoadedManifest) -> str:
    """Return the name and version of a dataset that needs no download, "" without one."""
    dataset, file = loaded.manifest.dataset, loaded.dataset_file
    if dataset is None or file is None or is_remote(file.source):
        return ""
    return f"{dataset.name} {dataset.version}"
