"""The running version of the plugin as a wheel, and the digest of its code.

A worker must have the same code as its controller.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import NamedTuple

import mlms_predictors

import pytest_mlms

_DISTRIBUTION = "pytest_mlms"
_WHEEL = "Wheel-Version: 1.0\nGenerator: pytest-mlms\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_NOT_CODE = (".pyc", ".part")


class _WheelFile(NamedTuple):
    """A file of a wheel."""

    name: str
    data: bytes

    @property
    def record(self) -> str:
        """The line of the file in RECORD."""
        sha256 = hashlib.sha256(self.data)
        encoded = base64.urlsafe_b64encode(sha256.digest())
        digest = encoded.rstrip(b"=").decode()
        size = len(self.data)
        return f"{self.name},sha256={digest},{size}"


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return a digest of all files of the plugin, equal on hosts with the same code."""
    sha256 = hashlib.sha256()
    for name, data in _code():
        sha256.update(f"{name}\n".encode())
        sha256.update(data)
    return sha256.hexdigest()[:12]


def version_name() -> str:
    """Return the version with the digest of the code, as the name of a folder."""
    return f"{pytest_mlms.__version__}-{code_digest()}"


def build_wheel(folder: Path) -> Path:
    """Write the wheel into ``folder``, and return its path; the format is that of PEP 427."""
    stem = f"{_DISTRIBUTION}-{pytest_mlms.__version__}"
    info = f"{stem}.dist-info"
    path = folder / f"{stem}-py3-none-any.whl"
    files = [*_code(), *_metadata(info)]
    record_name = f"{info}/RECORD"
    records = ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file in files:
            wheel.writestr(file.name, file.data)
            records += f"{file.record}\n"
        records += f"{record_name},,\n"
        wheel.writestr(record_name, records)
    return path


def _code() -> Iterator[_WheelFile]:
    """Yield the files of both packages, in a fixed order."""
    for package in (pytest_mlms, mlms_predictors):
        root = Path(str(package.__file__)).parent
        for path in sorted(root.rglob("*")):
            if not path.is_file() or path.name.endswith(_NOT_CODE):
                continue
            relative = path.relative_to(root)
            if "__pycache__" in relative.parts:
                continue
            name = f"{package.__name__}/{relative.as_posix()}"
            yield _WheelFile(name, path.read_bytes())


def _metadata(info: str) -> Iterator[_WheelFile]:
    """Yield the files of the dist-info folder, without RECORD."""
    installed = distribution(_DISTRIBUTION)
    # an editable install may have PKG-INFO in place of METADATA
    metadata = _text(installed, "METADATA")
    if not metadata:
        metadata = _text(installed, "PKG-INFO")
    entry_points = _text(installed, "entry_points.txt")
    yield _WheelFile(f"{info}/METADATA", metadata)
    yield _WheelFile(f"{info}/entry_points.txt", entry_points)
    yield _WheelFile(f"{info}/WHEEL", _WHEEL.encode())


def _text(installed: Distribution, name: str) -> bytes:
    text = installed.read_text(name) or ""
    return text.encode()
