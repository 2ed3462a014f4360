"""Wheels that tests write themselves, so that real pip installs them without a network."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pytest_mlms.provide.artifacts.package_index import pip_settings
from pytest_mlms.provide.stacks import environments

MODULE = """\
VERSION = {version!r}
def main():
    import sys; print(sys.executable)
{code}"""

METADATA = """\
Metadata-Version: 2.1
Name: {name}
Version: {version}
"""

WHEEL = """\
Wheel-Version: 1.0
Generator: test
Root-Is-Purelib: true
Tag: py3-none-any
"""

ENTRY_POINTS = """\
[console_scripts]
{name}-says = {name}:main
"""


def write_wheel(
    folder: Path, name: str, version: str, *, needs: str = "", code: str = "", size: int = 0
) -> Path:
    """Write a wheel with one module, and a script that runs it.

    ``needs`` is a requirement, ``code`` is added to the module, and ``size`` is that of a further
    file in bytes.
    """
    folder.mkdir(exist_ok=True)
    metadata = METADATA.format(name=name, version=version)
    if needs:
        metadata += f"Requires-Dist: {needs}\n"
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": MODULE.format(version=version, code=code),
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": WHEEL,
        f"{info}/entry_points.txt": ENTRY_POINTS.format(name=name),
    }
    if size:
        files[f"{name}_data.bin"] = "x" * size
    files[f"{info}/RECORD"] = record_of(files) + f"{info}/RECORD,,\n"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel


def record_of(files: Mapping[str, str]) -> str:
    """Return the lines of RECORD: path, digest and size of each file."""
    lines = []
    for path, text in files.items():
        data = text.encode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
        unpadded = digest.rstrip(b"=").decode()
        lines.append(f"{path},sha256={unpadded},{len(data)}\n")
    return "".join(lines)


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have pip use the test's wheels only; release the environments of this process at the end."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with only_wheels(wheels, monkeypatch):
        yield


@contextlib.contextmanager
def only_wheels(wheels: Path, patches: pytest.MonkeyPatch) -> Iterator[None]:
    """Have pip use the wheels of a folder only; release this process's environments at the end."""
    patches.setenv("PIP_NO_INDEX", "1")
    patches.setenv("PIP_FIND_LINKS", str(wheels))
    patches.setenv("PIP_CONFIG_FILE", os.devnull)
    pip_settings.cache_clear()  # those of an earlier test
    yield
    environments.release()
    pip_settings.cache_clear()


def share_seeds(cache: Path, seeds: Path) -> None:
    """Have a cache use a folder of seeds that several caches use."""
    stacks = cache / "stacks"
    stacks.mkdir(parents=True, exist_ok=True)
    (stacks / "seeds").symlink_to(seeds)
