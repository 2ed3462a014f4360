"""Import of legacy manifests: each file becomes a native one beside the others, or is refused.

A table tells how many were read, written and refused, by their kind."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_mlms.author.legacy.digests import DigestOfFile
from pytest_mlms.author.legacy.outside_dataset import OutsideDataset
from pytest_mlms.author.legacy.reading import read_legacy
from pytest_mlms.author.legacy.records import FRAMEWORKS, LegacyManifest, Note, Refused
from pytest_mlms.author.legacy.translated import Translation
from pytest_mlms.author.legacy.translation import translate
from pytest_mlms.author.legacy.translation_outputs import modality_of
from pytest_mlms.core.errors import ManifestError, MlmsError
from pytest_mlms.core.files import replacing
from pytest_mlms.core.records import Place
from pytest_mlms.manifest.load import find_manifests, load, shown

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Original:
    """A YAML file, and the path of what is made of it."""

    path: Path
    target: Path


@dataclass(frozen=True)
class Imported:
    """The outcome for a file: its native manifest, or the reason why there is none.

    ``kind`` is a short reason for tables, "" where it was written. ``problem`` is "" there, too.
    """

    framework: str
    modality: str
    has_accuracy: bool = False
    kind: str = ""
    problem: str = ""
    notes: Sequence[Note] = ()
    digests: Sequence[DigestOfFile] = ()
    has_container: bool = False


def find_originals(paths: Sequence[Path], out: Path) -> Iterator[Original]:
    """Yield the YAML files of paths and folders, with targets in the same folders below ``out``.

    Raises MlmsError for a path that doesn't exist.
    """
    for path in paths:
        base = path if path.is_dir() else path.parent
        for file in find_manifests([path]):
            yield Original(file, out / file.relative_to(base).with_suffix(".yaml"))


def import_original(
    original: Original, datasets: Sequence[OutsideDataset], frameworks: Collection[str]
) -> Imported | None:
    """Write the native manifest; return the outcome, None for a file that is no such manifest.

    Raises MlmsError where it can't be written.
    """
    try:
        manifest = read_legacy(original.path)
    except Refused as error:
        return Imported(UNKNOWN, UNKNOWN, kind=error.kind, problem=str(error))
    if manifest is None:
        return None
    try:
        translation = translate(manifest, original.target.parent, datasets)
        _write(original, translation, frameworks)
    except Refused as error:
        return _outcome(manifest, kind=error.kind, problem=str(error))
    return _outcome(manifest, translation)


def _outcome(
    manifest: LegacyManifest,
    translation: Translation | None = None,
    kind: str = "",
    problem: str = "",
) -> Imported:
    return Imported(
        framework=FRAMEWORKS.get(manifest.framework.name.lower(), manifest.framework.name),
        modality=modality_of(manifest),
        has_accuracy=translation is not None and translation.has_accuracy,
        kind=kind,
        problem=problem,
        notes=manifest.notes if translation is None else translation.notes,
        digests=() if translation is None else translation.digests,
        has_container=manifest.has_container,
    )


def _write(original: Original, translation: Translation, frameworks: Collection[str]) -> None:
    """Write a manifest whole, once it is one that can be read.

    Raises Refused where it isn't, and MlmsError where it can't be written.
    """
    target = original.target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as temporary:
            temporary.write_text(translation.text, encoding="utf-8")
            _check(original, temporary, frameworks)
    except OSError as error:
        problem = f"{target} can't be written: {error.strerror}"
        raise MlmsError(f"{problem}; make room, or name another folder with --out") from error


def _check(original: Original, path: Path, frameworks: Collection[str]) -> None:
    """Raise Refused for what isn't a native manifest, with the first of its errors."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a dataset that is described later
            load(path, frameworks)
    except ManifestError as error:
        first = str(error).splitlines()[0]
        _, _, text = first.removeprefix(f"{shown(path)}:").partition(": ")
        problem = f"has no native form: {text}"
        raise Refused(Place(shown(original.path), 1), problem, "no native form") from error


_HEADING = "framework    modality               read  written  accuracy  speed only  refused"


def table_lines(outcomes: Sequence[Imported]) -> Iterator[str]:
    """Yield the lines of a table by framework and modality, and the reasons of refusals."""
    yield _HEADING
    yield from _groups(outcomes)
    yield _line("all", "", outcomes)
    yield from _reasons(outcomes)


def _groups(outcomes: Sequence[Imported]) -> Iterator[str]:
    """Yield a line for each framework and modality."""
    groups: dict[tuple[str, str], list[Imported]] = {}
    for outcome in outcomes:
        group = groups.setdefault((outcome.framework, outcome.modality), [])
        group.append(outcome)
    for framework, modality in sorted(groups):
        members = groups[framework, modality]
        yield _line(framework, modality, members)


def _line(framework: str, modality: str, outcomes: Sequence[Imported]) -> str:
    """Return the line of some manifests."""
    read = len(outcomes)
    refused = sum(bool(outcome.kind) for outcome in outcomes)
    accuracy = sum(outcome.has_accuracy for outcome in outcomes)
    written = read - refused
    speed = written - accuracy
    names = f"{framework:<12} {modality:<22}"
    return f"{names} {read:4}  {written:7}  {accuracy:8}  {speed:10}  {refused:7}"


def _reasons(outcomes: Sequence[Imported]) -> Iterator[str]:
    """Yield the reasons of refusals, the most frequent first; nothing where there are none."""
    reasons = Counter(outcome.kind for outcome in outcomes)
    del reasons[""]
    if reasons:
        yield ""
        yield "refused, by reason:"
    for reason, count in reasons.most_common():
        yield f"{count:6}  {reason}"
