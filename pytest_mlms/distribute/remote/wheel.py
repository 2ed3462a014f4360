"""The running version of this plugin as a wheel, made of its own files.

What a worker must have, to the letter.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import distribution
from pathlib import Path

import mlms_predictors

import pytest_mlms

__all__ = ["build_wheel", "code_digest", "version_name"]

_NAME = "pytest_mlms"
_WHEEL = "Wheel-Version: 1.0\nGenerator: pytest-mlms\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return a digest of all that runs.

    The same on two hosts only where they have the same code.
    """
    sha256 = hashlib.sha256()
    for name, path in _files():
        sha256.update(f"{name}\n".encode() + path.read_bytes())
    return sha256.hexdigest()[:12]


def version_name() -> str:
    """Return the version with the code's digest, as a folder's name."""
    return f"{pytest_mlms.__version__}-{code_digest()}"


def build_wheel(folder: Path) -> Path:
    """Write the wheel into ``folder``; return its path (the format is PEP 427's)."""
    info = f"{_NAME}-{pytest_mlms.__version__}.dist-info"
    path = folder / f"{_NAME}-{pytest_mlms.__version__}-py3-none-any.whl"
    records = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        contents = [(name, file.read_bytes()) for name, file in _files()]
        contents += [(f"{info}/{name}", data) for name, data in _metadata()]
        for name, data in contents:
            wheel.writestr(name, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            records.append(f"{name},sha256={digest},{len(data)}")
        wheel.writestr(f"{info}/RECORD", "\n".join([*records, f"{info}/RECORD,,", ""]))
    return path


def _files() -> Iterator[tuple[str, Path]]:
    for module in (pytest_mlms, mlms_predictors):
        root = Path(str(module.__file__)).parent
        for path in sorted(root.rglob("*")):
            inside = path.relative_to(root)
            if (
                path.is_file()
                and "__pycache__" not in inside.parts
                and not path.name.endswith((".pyc", ".part"))
            ):
                yield f"{module.__name__}/{inside.as_posix()}", path


def _metadata() -> Iterator[tuple[str, bytes]]:
    found = distribution(_NAME)
    for name in ("METADATA", "entry_points.txt"):
        text = (
            found.read_text(name) or found.read_text({"METADATA": "PKG-INFO"}.get(name, name)) or ""
        )
        yield name, text.encode()
    yield "WHEEL", _WHEEL.encode()
