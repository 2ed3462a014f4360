"""The wheel has everything that runs, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.project import ROOT


@pytest.mark.slow
def test_the_wheel_has_every_module_of_both_sides(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(
        ROOT,
        source,
        ignore=shutil.ignore_patterns(".git", ".venv*", "build", "*.egg-info", "mlms-results"),
    )
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, source],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    wanted = {
        f"pytest_mlms/{path.relative_to(ROOT / 'pytest_mlms')}"
        for path in (ROOT / "pytest_mlms").rglob("*.py")
    }
    wanted |= {
        f"mlms_predictors/{path.relative_to(ROOT / 'predictors')}"
        for path in (ROOT / "predictors").rglob("*.py")
    }
    assert names == wanted | {"pytest_mlms/py.typed", "mlms_predictors/py.typed"}
