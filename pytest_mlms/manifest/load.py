"""A file to a checked manifest, or to all of its faults, each with its line."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urlsplit
from urllib.request import url2pathname

from pydantic import ValidationError

from pytest_mlms.errors import ManifestError, MlmsError
from pytest_mlms.manifest import yaml12
from pytest_mlms.manifest.messages import describe
from pytest_mlms.manifest.schema import Manifest, Model
from pytest_mlms.manifest.thresholds import Agreement, Thresholds
from pytest_mlms.manifest.validation import disagreements
from pytest_mlms.records import QUANTITIES, Artifact, Kind, Limit, Place

__all__ = ["LoadedManifest", "find_manifests", "load", "read", "shown"]

_OF_AGREEMENT = {"top1": "same_top1", "kl": "kl_max", "js": "js_max", "hellinger": "hellinger_max"}
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class LoadedManifest:
    """A manifest, the file that it is from, and the lines of its keys."""

    path: Path
    manifest: Manifest
    document: yaml12.Document

    def place(self, *path: str | int) -> Place:
        """Return the line of a key, or of its nearest parent that is written down."""
        return Place(shown(self.path), self.document.line(path))

    def model_files(self, model: Model) -> dict[str, Artifact]:
        """Return the files of one of the models by role: graph, and weights where it has them."""
        index = self.manifest.models.index(model)
        return {
            role: self._artifact(getattr(model, role), digest, "models", index, role)
            for role, digest in model.sha256.items()
        }

    @cached_property
    def dataset_file(self) -> Artifact | None:
        """The dataset, if there is one."""
        dataset = self.manifest.dataset
        return (
            self._artifact(dataset.source, dataset.sha256, "dataset", "source") if dataset else None
        )

    @cached_property
    def labels_file(self) -> Artifact | None:
        """The names of the classes, if they are given."""
        output = self.manifest.classification
        if not output or not output.top_k or not output.top_k.labels:
            return None
        path = (
            "outputs",
            self.manifest.outputs.index(output),
            "steps",
            len(output.steps) - 1,
            "top_k",
            "labels",
        )
        return self._artifact(output.top_k.labels, output.top_k.sha256, *path)

    def limits(self, kind: Kind) -> tuple[Limit, ...]:
        """Return the limits on what items of this kind measure, in the order of QUANTITIES."""
        return tuple(limit for limit in self._limits if QUANTITIES[limit.quantity].kind == kind)

    @cached_property
    def _limits(self) -> tuple[Limit, ...]:
        found: list[Limit] = []
        for key in (name for name in Thresholds.model_fields if name != "upgrade"):
            for index, limit in enumerate(getattr(self.manifest.thresholds, key)):
                item = (index,) if ("thresholds", key, index) in self.document.lines else ()
                if isinstance(limit, Agreement):
                    found += self._agreement_limits(limit, item)
                    continue
                bound = QUANTITIES[key].bound
                filters: dict[str, Any] = {
                    name: tuple(value) for name, value in limit if name != bound
                }
                found.append(
                    Limit(
                        key,
                        getattr(limit, bound),
                        self.place("thresholds", key, *item, bound),
                        **filters,
                    )
                )
        return tuple(found)

    def _agreement_limits(self, entry: Agreement, item: tuple[int, ...]) -> Iterator[Limit]:
        """Yield what an agreement asks for.

        A deviation of at most once its tolerance, and its further limits.
        """
        filters: dict[str, Any] = {
            "devices": tuple(entry.devices),
            "frameworks": tuple(entry.frameworks),
        }
        yield Limit("deviation", 1.0, self.place("thresholds", "agreement", *item), **filters)
        for key, quantity in _OF_AGREEMENT.items():
            limit = getattr(entry, key)
            if limit is not None:
                place = self.place("thresholds", "agreement", *item, key)
                yield Limit(quantity, getattr(limit, QUANTITIES[quantity].bound), place, **filters)

    def _artifact(self, source: str, sha256: str | None, *path: str | int) -> Artifact:
        location, member = urldefrag(source)
        scheme = urlsplit(location).scheme
        if scheme == "file":
            location = url2pathname(urlsplit(location).path)
        elif not scheme:
            location = os.path.normpath(self.path.parent / location)
        return Artifact(location, sha256, self.place(*path), member or None)


def load(path: Path, frameworks: Collection[str] | None = None) -> LoadedManifest:
    """Read and check the manifest at ``path``; ``frameworks`` are those that have a predictor
    (None: any will do).

    Raises ManifestError with every fault of the file, a line each.
    """
    document = read(path)
    faults = list(document.faults)
    if document.value is not None or not faults:
        try:
            manifest = Manifest.model_validate(document.value, context={"frameworks": frameworks})
            found = [(document.line(place), text) for place, text in disagreements(manifest)]
        except ValidationError as error:
            found = [describe(fault, document) for fault in error.errors(include_url=False)]
        faults += found
    if faults:
        raise ManifestError(
            "\n".join(f"{shown(path)}:{line}: {text}" for line, text in sorted(faults))
        )
    return LoadedManifest(path, manifest, document)


def read(path: Path, beginning: str = "a manifest begins with 'name: …'") -> yaml12.Document:
    """Return what a YAML file holds, which must be keys and values.

    What it isn't is in the document's faults.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            return _unreadable(
                f"is larger than {_MAX_BYTES >> 10} KiB; a manifest never is, is this another file?"
            )
        document = yaml12.parse(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return _unreadable(f"is not UTF-8 (byte {error.start}); save it as UTF-8", line)
    except OSError as error:
        return _unreadable(f"can't be read: {error.strerror}; check the path and its permissions")
    if not isinstance(document.value, dict) and not document.faults:
        kind = "a list" if isinstance(document.value, list) else "one value"
        found = "is empty" if document.value is None else f"holds {kind}, not keys and values"
        return _unreadable(f"{found}; {beginning}")
    return document


def _unreadable(text: str, line: int = 1) -> yaml12.Document:
    return yaml12.Document(faults=[(line, text)])


def shown(path: Path) -> Path:
    """Return the path as a person here would type it."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path


def find_manifests(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield these files, and the YAML files of these folders, stacks.yaml too.

    Raises MlmsError where there is none.
    """
    for path in paths:
        if path.is_dir():
            found = sorted(file for file in path.rglob("*") if file.suffix in (".yaml", ".yml"))
            if not found:
                raise MlmsError(f"{path} has no .yaml file; name a manifest or a folder of them")
            yield from found
        elif path.exists():
            yield path
        else:
            raise MlmsError(f"there is no {path}; name a manifest or a folder of them")
