"""The wheel has every file of both sides, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.project import ROOT

NOT_SOURCE = (".*", "build", "*.egg-info", "mlms-results")
PACKAGED = {".py", ".typed", ".html", ".css", ".js", ".onnx", ".c", ".h", ".proto"}


def files_of(package: str, folder: str) -> set[str]:
    """Return the paths that the files of a folder have in a wheel."""
    root = ROOT / folder
    files = [path for path in root.rglob("*.*") if path.suffix in PACKAGED]
    return {f"{package}/{path.relative_to(root)}" for path in files}


def build_wheel(folder: Path) -> Path:
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_each_package_is_one_of_the_wheel() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    folders = [path.parent for path in (ROOT / "pytest_mlms").rglob("__init__.py")]
    names = [".".join(folder.relative_to(ROOT).parts) for folder in folders]
    assert not [name for name in names if f'"{name}",' not in text]


@pytest.mark.slow
def test_the_wheel_has_every_file_of_both_sides(tmp_path: Path) -> None:
    with zipfile.ZipFile(build_wheel(tmp_path)) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == files_of("pytest_mlms", "pytest_mlms") | files_of(
        "mlms_predictors", "predictors"
    )
