"""Advice that pytest lacks: on node ids of manifests without an item, on named YAML files that are
no manifests, and on manifests in folders that are named as folders of tests.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_mlms.author.loading import NoManifestError, load_manifest
from pytest_mlms.config import MANIFEST_SUFFIXES, has_keys_of_manifests
from pytest_mlms.core.errors import ManifestError
from pytest_mlms.core.files import read_regular
from pytest_mlms.core.text import close_words
from pytest_mlms.items.collect import ManifestFile
from pytest_mlms.manifest import reading

_NOT_FOUND = re.compile(r"not found: (?P<path>.*?)(::(?P<name>[^\n]*))?\n")
_MOST_LOOKED_AT = 1000  # files and folders
_MOST_BYTES = 1 << 20  # of a file
_MOST_BYTES_IN_ALL = 8 << 20


def explained(error: pytest.UsageError, session: pytest.Session) -> pytest.UsageError:
    """Return pytest's error of node ids that aren't there, with what to write of a manifest's."""
    return pytest.UsageError(*[_explained(str(text), session) for text in error.args])


def _explained(text: str, session: pytest.Session) -> str:
    found = _NOT_FOUND.match(text)
    if found is None or not found["path"].endswith(MANIFEST_SUFFIXES):
        return text
    path = Path(found["path"])
    files = session.gethookproxy(path).pytest_collect_file(file_path=path, parent=session)
    known = [
        item.name for file in files if isinstance(file, ManifestFile) for item in file.collect()
    ]
    if found["name"] is None or not known:
        return _why_no_manifest(path) or text
    typed = [argument.partition("::") for argument in session.config.args]
    folder = session.config.invocation_params.dir
    for file, _, name in typed:
        is_here = Path(os.path.normpath(folder / file)) == path
        if is_here and name.startswith(found["name"]):  # pytest leaves out [the case]
            break
    else:
        name = found["name"]
    close = close_words(name, known)
    shown = os.path.relpath(path, folder)
    advice = f"did you mean '{shown}::{close[0]}'? " if close else ""
    return f"{shown} has no item {name!r}; {advice}'pytest --collect-only -q {shown}' lists them"


def _why_no_manifest(path: Path) -> str:
    """Return why a YAML file is no manifest, "" for one that is."""
    try:
        load_manifest(path)
    except NoManifestError:
        return f"{reading.shown(path)} is no manifest, which begins with 'name: …'; name one"
    except ManifestError as error:
        return str(error)
    return ""


def hint_of_manifests(config: pytest.Config) -> str:
    """Return how to run the manifests below what a run without a test was to collect; "" for none.

    A few folders and small files are looked at, as a person waits for it.
    """
    folder = config.invocation_params.dir
    left = _MOST_BYTES_IN_ALL
    for argument in config.args:
        named = Path(os.path.normpath(folder / argument.partition("::")[0]))
        for path in itertools.islice(_yaml_below(named), _MOST_LOOKED_AT):
            try:
                data = read_regular(path, _MOST_BYTES)
            except OSError:
                continue
            left -= len(data)
            if left < 0:
                return ""
            if has_keys_of_manifests(data):
                shown = os.path.relpath(named, folder)
                found = os.path.relpath(path, folder)
                advice = f"write --mlms-manifests={shown}, or mlms_manifests in the ini file"
                return f"{found} looks like a manifest; to run those of {shown}, {advice}"
    return ""


def _yaml_below(folder: Path) -> Iterator[Path]:
    """Yield the YAML files below a folder, the nearest first, without hidden folders."""
    for place, folders, names in itertools.islice(os.walk(folder), _MOST_LOOKED_AT):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.endswith(MANIFEST_SUFFIXES):
                yield Path(place, name)
