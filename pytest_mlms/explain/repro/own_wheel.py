"""A wheel of the pytest-mlms that runs, of its own files: a bundle is replayed by the same code."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.metadata
import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import mlms_predictors

import pytest_mlms
from pytest_mlms.core.errors import MlmsError

_DISTRIBUTION = "pytest-mlms"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first time that a zip file can have
_MODE = 0o100644 << 16
_NOT_OURS = re.compile(r"(^|/)(\.|__pycache__/)|~$")
_WHEEL = """\
Wheel-Version: 1.0
Generator: pytest-mlms
Root-Is-Purelib: true
Tag: py3-none-any
"""


@functools.lru_cache(maxsize=1)
def own_wheel() -> tuple[str, bytes]:
    """Return the name and the content of the wheel, which are the same for the same files.

    Raises MlmsError where the installation has no metadata, or those of another version, which pip
    refuses.
    """
    info = f"pytest_mlms-{pytest_mlms.__version__}.dist-info"
    metadata = _metadata("METADATA", "PKG-INFO")
    if f"Version: {pytest_mlms.__version__}" not in metadata.splitlines():
        problem = f"the metadata of pytest-mlms are not of version {pytest_mlms.__version__}"
        raise MlmsError(f"{problem}, so a bundle can't have its wheel; install it with pip again")
    files = dict(_modules())
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/entry_points.txt"] = _metadata("entry_points.txt").encode()
    files[f"{info}/WHEEL"] = _WHEEL.encode()
    lines = [
        f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in files.items()
    ]
    files[f"{info}/RECORD"] = "".join([*lines, f"{info}/RECORD,,\n"]).encode()
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = _MODE
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return f"pytest_mlms-{pytest_mlms.__version__}-py3-none-any.whl", wheel.getvalue()


def _modules() -> Iterator[tuple[str, bytes]]:
    """Yield the files of both packages in order, by their names in site-packages.

    In a tree that somebody works on, editors leave files that are hidden or end in ~.
    """
    for package in (mlms_predictors, pytest_mlms):
        folder = Path(str(package.__file__)).parent
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and not _NOT_OURS.search(name):
                yield f"{package.__name__}/{name}", path.read_bytes()


def _metadata(*names: str) -> str:
    """Return the first of some files of the installation's metadata that is there."""
    try:
        distribution = importlib.metadata.distribution(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        texts: list[str | None] = []
    else:
        texts = [distribution.read_text(name) for name in names]
    for text in filter(None, texts):
        return text
    problem = f"the installation of pytest-mlms has no {names[0]}, so a bundle can't have its wheel"
    raise MlmsError(f"{problem}; install it with pip")


def _digest(content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return digest.rstrip(b"=").decode()
