"""What to write instead of node ids of manifests that aren't there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pytest_mlms.config import MANIFEST_SUFFIXES
from pytest_mlms.core.text import close_words
from pytest_mlms.items.collect import ManifestFile

_NOT_FOUND = re.compile(r"not found: (?P<path>.*?)::(?P<name>[^\n]*)\n")


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
    if not known:
        return text
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
