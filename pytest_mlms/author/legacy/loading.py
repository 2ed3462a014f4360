"""Loading of a legacy manifest as it is: its translation is checked as a native manifest.

The lines of errors, and of all that is said about it, are those of the original.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from pytest_mlms.author.legacy.reading import read_legacy
from pytest_mlms.author.legacy.records import LegacyManifest, Note
from pytest_mlms.author.legacy.translated import Translation
from pytest_mlms.author.legacy.translation import translate
from pytest_mlms.core.records import Place
from pytest_mlms.manifest import yaml12
from pytest_mlms.manifest.load import (
    EmbeddedText,
    LoadedManifest,
    Origin,
    Remark,
    load_document,
    shown,
)


def load_original(
    path: Path, frameworks: Collection[str] | None = None, allow_code: bool = False
) -> LoadedManifest | None:
    """Return the translation of a manifest; None for a file that is no legacy one.

    With ``allow_code`` the origin has Python of an unknown form, for agents; without, it is
    refused.

    A dataset that nothing describes is left out without a warning; the origin names it. Raises
    ManifestError, with file and line, where it can't be read or has no native form.
    """
    manifest = read_legacy(path)
    if manifest is None:
        return None
    translation = translate(manifest, path.parent, allow_code=allow_code)
    native = yaml12.parse(translation.text)
    lines = [line.line for line in translation.lines]
    document = yaml12.Document(native.value, native.lines.moved(lines), native.errors)
    origin = Origin(
        dialect=manifest.dialect,
        decisions=_remarks(path, translation.decisions),
        warnings=_remarks(path, translation.notes),
        preprocess=_embedded(manifest, "preprocess", translation),
        postprocess=_embedded(manifest, "postprocess", translation),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the dataset
        loaded = load_document(path, document, frameworks)
    if loaded.manifest.dataset is None:
        origin = origin._replace(dataset=native.value.get("dataset", ""))
    return replace(loaded, origin=origin)


def _embedded(manifest: LegacyManifest, key: str, translation: Translation) -> EmbeddedText | None:
    if key not in translation.code:
        return None
    return EmbeddedText(getattr(manifest, key), manifest.line[key])


def _remarks(path: Path, notes: Iterable[Note]) -> tuple[Remark, ...]:
    return tuple(Remark(str(Place(shown(path), note.line)), note.text) for note in notes)
