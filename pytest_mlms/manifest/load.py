"""Loading of manifests: a file becomes a checked manifest, or all of its errors."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from mlms_predictors._run.options import options_of, problem_of
from pydantic import ValidationError

from pytest_mlms.core.errors import ArtifactError, ManifestError, MlmsError
from pytest_mlms.core.quantities import QUANTITIES, Quantity
from pytest_mlms.core.records import Artifact, Kind, Limit, Place
from pytest_mlms.core.text import shortened
from pytest_mlms.manifest import yaml12
from pytest_mlms.manifest.reading import DATASET_FILES, read, shown, with_described_dataset
from pytest_mlms.manifest.scenarios import Replay, idle_text
from pytest_mlms.manifest.schema import Manifest, Model
from pytest_mlms.manifest.sources import scheme_of, split_source
from pytest_mlms.manifest.thresholds import AgreementThreshold, Entry, agreement_limits, value_of
from pytest_mlms.manifest.validation import inconsistencies

__all__ = [
    "EmbeddedText",
    "LoadedManifest",
    "Origin",
    "Remark",
    "find_manifests",
    "load",
    "load_document",
    "option_problems",
    "read",
    "shown",
]


def option_problems(
    framework: str, options: Mapping[str, Any], predictors: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield the name of each option that a predictor doesn't take, and what to write instead.

    ``predictors`` has the predictor's file of each framework; where it has names alone, or the file
    declares no options, nothing is known of them.
    """
    path = predictors.get(framework) if isinstance(predictors, Mapping) else None
    if path is None or not options:
        return
    known = _declared(path)
    if known is None:
        return
    for name, value in options.items():
        problem = problem_of(name, value, known)
        if problem:
            yield name, problem


@lru_cache
def _declared(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] | None = options_of(path)
    except (OSError, UnicodeDecodeError):  # the agent tells why it can't be read
        return None
    return found


_SHOWN_ERRORS = 100
_LONGEST_ERROR = 1000  # characters
_SUFFIXES = (".yaml", ".yml")

UNPINNED = "unpinned"
"""The sha256 of a file that has none in its manifest."""


class Remark(NamedTuple):
    """A text about a line of a file: what was decided there, or is wrong there."""

    place: str
    text: str


class EmbeddedText(NamedTuple):
    """A text of Python in a file, and the line of its key, before its own first line."""

    text: str
    line: int


class Origin(NamedTuple):
    """The original that a manifest was translated from as it was loaded.

    ``dataset`` is the name of a dataset that nothing describes, "" where there is none.
    ``preprocess`` and ``postprocess`` are code that makes the inputs, and scores of the outputs;
    None where no code is needed for that. It is only run in an agent.
    """

    dialect: str
    decisions: tuple[Remark, ...]
    warnings: tuple[Remark, ...]
    dataset: str = ""
    preprocess: EmbeddedText | None = None
    postprocess: EmbeddedText | None = None

    @property
    def code(self) -> tuple[EmbeddedText, ...]:
        """The code that must be run, in the order of the file's use."""
        return tuple(text for text in (self.preprocess, self.postprocess) if text)


@dataclass(frozen=True, eq=False)
class LoadedManifest:
    """A manifest, the file that it is from, and the lines of its keys.

    ``origin`` is there for a manifest of MLModelScope, whose file is loaded as it is.
    """

    path: Path
    manifest: Manifest
    lines: yaml12.Lines
    origin: Origin | None = None

    def place(self, *path: str | int) -> Place:
        """Return the line of a key, or of its nearest parent that is written down."""
        return Place(self._shown, self.lines.nearest(path))

    @cached_property
    def _shown(self) -> Path:
        return shown(self.path)

    def model_files(self, model: Model) -> dict[str, Artifact]:
        """Return the files of one of the models by role: graph, and weights where it has them."""
        index = self.manifest.models.index(model)
        files: dict[str, Artifact] = {}
        for role, digest in model.sha256.items():
            source = getattr(model, role)
            files[role] = self._artifact(source, digest, "models", index, role)
        return files

    def model_digests(self, model: Model) -> dict[str, str]:
        """Return the digests of one of the models by role; of unpinned files those recorded."""
        files = self.model_files(model)
        return {role: _digest_of(artifact) for role, artifact in files.items()}

    @property
    def artifacts(self) -> Iterator[Artifact]:
        """The files of its models, its dataset, its steps and its loads."""
        for model in self.manifest.models:
            yield from self.model_files(model).values()
        if self.dataset_file:
            yield self.dataset_file
        yield from self.step_files.values()
        yield from self.arrivals_files.values()

    @property
    def dataset_digest(self) -> str | None:
        """The dataset's digest, that recorded if it is unpinned; None without a dataset."""
        return _digest_of(self.dataset_file) if self.dataset_file else None

    @cached_property
    def dataset_file(self) -> Artifact | None:
        """The dataset's file; None for a manifest without a dataset."""
        dataset = self.manifest.dataset
        if dataset is None:
            return None
        return self._artifact(dataset.source, dataset.sha256, "dataset", "source")

    @cached_property
    def labels_file(self) -> Artifact | None:
        """The file with the names of the classes; None where they aren't given."""
        output = self.manifest.classification
        top_k = output.top_k if output else None
        if output is None or top_k is None or top_k.labels is None:
            return None
        return self.step_files[top_k.labels]

    @cached_property
    def step_files(self) -> dict[str, Artifact]:
        """The files that steps of inputs and outputs name, by what the manifest says there."""
        found: dict[str, Artifact] = {}
        for path, file in self.manifest.step_files:
            artifact = self._artifact(file.source, file.sha256, *path, file.key)
            if file.sha256 or file.source not in found:
                found[file.source] = artifact
        return found

    @cached_property
    def arrivals_files(self) -> dict[str, Artifact]:
        """The files of arrivals that scenarios name, by what the manifest says there."""
        found: dict[str, Artifact] = {}
        for number, entry in enumerate(self.manifest.evaluate.scenarios):
            if isinstance(entry.load, Replay):
                source = entry.load.arrivals
                path = ("evaluate", "scenarios", number, entry.name, "arrivals")
                found[source] = self._artifact(source, None, *path)
        return found

    def limits(self, kind: Kind) -> tuple[Limit, ...]:
        """Return the limits on what items of this kind measure, in the order of the registry."""
        found = []
        for limit in self.all_limits:
            if QUANTITIES[limit.quantity].kind == kind:
                found.append(limit)
        return tuple(found)

    @cached_property
    def all_limits(self) -> list[Limit]:
        """The limits on what items of any kind measure."""
        found: list[Limit] = []
        for entry in self.manifest.thresholds.entries():
            if isinstance(entry.threshold, AgreementThreshold):
                found += self._agreement_limits(entry, entry.threshold)
            else:
                found.append(self._limit(entry))
        return found

    def _limit(self, entry: Entry) -> Limit:
        quantity = _limited_by(entry.key)
        place = self.place(*self._entry_path(entry), quantity.bound)
        value = value_of(entry.threshold, quantity)
        return Limit(quantity.name, value, place, **entry.threshold.filters())

    def _agreement_limits(self, entry: Entry, agreement: AgreementThreshold) -> Iterator[Limit]:
        """Yield the limits of an agreement: a deviation of 1 tolerance, and the further ones."""
        path = self._entry_path(entry)
        filters = agreement.filters()
        yield Limit("deviation", 1.0, self.place(*path), **filters)
        quantities = agreement_limits()
        for key, limit in agreement.limits().items():
            quantity = quantities[key]
            value = value_of(limit, quantity)
            yield Limit(quantity.name, value, self.place(*path, key), **filters)

    def _entry_path(self, entry: Entry) -> yaml12.Path:
        """Return the path of an entry; a single entry need not be written as a list."""
        path = ("thresholds", entry.key, entry.number)
        return path if path in self.lines else path[:2]

    def _artifact(self, source: str, sha256: str | None, *path: str | int) -> Artifact:
        location, member = split_source(source)
        scheme = scheme_of(location)
        if scheme == "file":
            location = url2pathname(urlsplit(location).path)
        elif not scheme:
            location = os.path.normpath(self.path.parent / location)
        if sha256 != UNPINNED:
            return Artifact(location, sha256, self.place(*path), member)
        from pytest_mlms.manifest.digests import recorded_in

        recorded = recorded_in(self.path, location)
        return Artifact(location, None, self.place(*path), member, recorded)


def _digest_of(artifact: Artifact) -> str:
    """Return the digest of a file of a model or dataset; "unpinned" until one is recorded."""
    if artifact.recorded is None:
        assert artifact.sha256, "the schema asks for it"
        return artifact.sha256
    from pytest_mlms.manifest.digests import recorded_digest

    try:
        return recorded_digest(artifact.recorded) or UNPINNED
    except ArtifactError:  # which whoever fetches the file is told
        return UNPINNED


def _limited_by(key: str) -> Quantity:
    """Return the quantity that a key under ``thresholds`` limits."""
    for quantity in QUANTITIES.values():
        if quantity.limit_key == key and quantity.kind != "agreement":
            return quantity
    raise KeyError(key)


def load(path: Path, frameworks: Collection[str] | None = None) -> LoadedManifest:
    """Read and check the manifest at ``path``, which is a native one.

    ``frameworks`` have a predictor; None accepts all. Raises ManifestError with every error of the
    file, a line each.
    """
    return load_document(path, read(path), frameworks)


def load_document(
    path: Path, document: yaml12.Document, frameworks: Collection[str] | None = None
) -> LoadedManifest:
    """Check the content of the manifest at ``path``, as ``load`` does."""
    errors = list(document.errors)
    manifest = None
    if document.value is not None or not errors:
        content = with_described_dataset(document, path)
        try:
            manifest = Manifest.model_validate(content, context={"frameworks": frameworks})
        except ValidationError as error:
            from pytest_mlms.manifest.digests import found_digests
            from pytest_mlms.manifest.messages import describe

            details = error.errors(include_url=False)
            for detail in details:
                line, text = describe(detail, document)
                advice = found_digests(detail["loc"], document.value, path.parent)
                if advice:
                    problem, _, _ = text.partition("; ")
                    text = f"{problem}; {advice}"
                errors.append((line, text))
    if manifest is not None:
        for key, text in [*inconsistencies(manifest), *_options(manifest, frameworks or ())]:
            errors.append((document.line(key), text))
    if manifest is None or errors:
        raise _manifest_error(path, errors)
    return _without_idle_limits(LoadedManifest(path, manifest, document.lines))


def _without_idle_limits(loaded: LoadedManifest) -> LoadedManifest:
    """Return a manifest; raises ManifestError for limits that no case meets: none is decided."""
    errors = []
    for limit in loaded.all_limits:
        text = idle_text(limit, loaded.manifest)
        if text:
            errors.append((limit.place.line, text))
    if errors:
        raise _manifest_error(loaded.path, errors)
    return loaded


def _options(manifest: Manifest, frameworks: Collection[str]) -> Iterator[tuple[yaml12.Path, str]]:
    """Yield what is wrong with the options of models."""
    for index, model in enumerate(manifest.models):
        for name, text in option_problems(model.name, model.options, frameworks):
            yield ("models", index, "options", name), text


def _manifest_error(path: Path, errors: list[yaml12.Error]) -> ManifestError:
    name = shown(path)
    lines = []
    for line, text in sorted(errors)[:_SHOWN_ERRORS]:
        lines.append(f"{name}:{line}: {shortened(text, _LONGEST_ERROR)}")
    more = len(errors) - len(lines)
    if more:
        lines.append(f"{name}: {more:,} further errors; correct these first")
    return ManifestError("\n".join(lines))


def find_manifests(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield these files, and the YAML files of these folders, stacks.yaml but not datasets.yaml.

    Folders, pipes and devices that are named like a YAML file are left out, as pytest does.
    Raises MlmsError for a path that doesn't exist, another file, and a folder without YAML files.
    """
    for path in paths:
        if path.is_dir():
            named = [one for one in path.rglob("*") if one.suffix in _SUFFIXES]
            files = [one for one in named if one.is_file() or not one.exists()]
            found = sorted(one for one in files if one.name not in DATASET_FILES)
            if not found:
                raise MlmsError(f"{path} has no .yaml file; name a manifest or a folder of them")
            yield from found
        elif path.exists() and path.suffix not in _SUFFIXES:
            raise MlmsError(f"{path} is not a .yaml file; name a manifest or a folder of them")
        elif path.exists():
            yield path
        else:
            raise MlmsError(f"there is no {path}; name a manifest or a folder of them")
