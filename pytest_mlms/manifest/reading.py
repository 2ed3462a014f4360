"""Reading of YAML files of keys and values that people write, and how their paths are shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytest_mlms.core.files import read_regular
from pytest_mlms.manifest import yaml12

_MAX_BYTES = 1 << 20


def read(
    path: Path,
    beginning: str = "a manifest begins with 'name: …'",
    parse: Callable[[str], yaml12.Document] = yaml12.parse,
) -> yaml12.Document:
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
        return _unreadable(f"is not UTF-8 (byte {error.start}); save it as UTF-8", line)
    document = parse(text)
    if isinstance(document.value, dict) or document.errors:
        return document
    return _unreadable(f"{_wrong_content(document.value)}; {beginning}")


def _wrong_content(value: object) -> str:
    if value is None:
        return "is empty"
    kind = "a list" if isinstance(value, list) else "one value"
    return f"holds {kind}, not keys and values"


def _unreadable(text: str, line: int = 1) -> yaml12.Document:
    return yaml12.Document(errors=[(line, text)])


def shown(path: Path) -> Path:
    """Return the path relative to the current folder, where it lies there."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path
