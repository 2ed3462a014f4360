"""Wheels that tests write themselves, so that real pip installs them without a network."""

from __future__ import annotations

import base64
import hashlib
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_mlms.stacks import environments


def write_wheel(
    folder: Path, name: str, version: str, *, needs: str = "", code: str = "", size: int = 0
) -> Path:
    """Write a wheel with one module, and a script that runs it."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    require = f"Requires-Dist: {needs}\n" if needs else ""
    files = {
        f"{name}.py": f"VERSION = {version!r}\ndef main():\n    import sys; print(sys.executable)\n{code}",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{require}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}-says = {name}:main\n",
    }
    if size:
        files[f"{name}_data.bin"] = "x" * size
    record = ""
    for path, text in files.items():
        digest = (
            base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        )
        record += f"{path},sha256={digest},{len(text.encode())}\n"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return wheel


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have pip look at the test's wheels only, and forget at the end what this process uses."""
    (tmp_path / "wheels").mkdir()
    for name, value in {
        "NO_INDEX": "1",
        "FIND_LINKS": str(tmp_path / "wheels"),
        "CONFIG_FILE": os.devnull,
    }.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    yield
    environments.release()
