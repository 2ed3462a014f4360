"""The wheel has every module of both sides, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.project import ROOT

NOT_SOURCE = (".git", ".venv*", "build", "*.egg-info", "mlms-results")


def modules_of(package: str, folder: str) -> set[str]:
    """Return the paths that the modules of a folder have in a wheel."""
    root = ROOT / folder
    return {f"{package}/{path.relative_to(root)}" for path in root.rglob("*.py")}


def build_wheel(folder: Path) -> Path:
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.mark.slow
def test_the_wheel_has_every_module_of_both_sides(tmp_path: Path) -> None:
    with zipfile.ZipFile(build_wheel(tmp_path)) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    expected = modules_of("pytest_mlms", "pytest_mlms")
    expected |= modules_of("mlms_predictors", "predictors")
    expected |= {"pytest_mlms/py.typed", "mlms_predictors/py.typed"}
    assert names == expected
