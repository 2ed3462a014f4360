"""The wheel of a bundle is what runs here, and pip installs it."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import pytest_mlms
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.explain.repro import own_wheel
from tests.support.project import ROOT


@pytest.mark.slow
def test_pip_installs_it_with_all_files_commands_and_requirements(tmp_path: Path) -> None:
    name, content = own_wheel.own_wheel()
    (tmp_path / name).write_bytes(content)
    place = tmp_path / "site"
    command = [sys.executable, "-I", "-m", "pip", "install", "--no-deps", "--no-index"]
    done = subprocess.run(
        [*command, f"--target={place}", str(tmp_path / name)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for installed, source in (("pytest_mlms", "pytest_mlms"), ("mlms_predictors", "predictors")):
        files = [
            path.relative_to(ROOT / source)
            for path in (ROOT / source).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        ]
        assert files
        for file in files:
            assert (place / installed / file).read_bytes() == (ROOT / source / file).read_bytes()
    (info,) = place.glob("*.dist-info")
    assert "mlms = pytest_mlms.cli.main:main" in (info / "entry_points.txt").read_text()
    metadata = (info / "METADATA").read_text()
    assert f"Version: {pytest_mlms.__version__}\n" in metadata
    assert "Requires-Dist: scipy" in metadata


def test_its_record_lists_each_file_once() -> None:
    _, content = own_wheel.own_wheel()
    with zipfile.ZipFile(io.BytesIO(content)) as wheel:
        (record,) = [name for name in wheel.namelist() if name.endswith("/RECORD")]
        rows = [row[0] for row in csv.reader(io.StringIO(wheel.read(record).decode()))]
        assert sorted(rows) == sorted(wheel.namelist())


def test_metadata_of_another_version_make_no_bundle_as_pip_would_refuse_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pytest_mlms, "__version__", "99.0")
    own_wheel.own_wheel.cache_clear()
    with pytest.raises(MlmsError, match=r"are not of version 99\.0.*; install it with pip again"):
        own_wheel.own_wheel()
    own_wheel.own_wheel.cache_clear()


def test_what_an_editor_leaves_in_a_tree_is_not_told_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("kept.py", "a/.hidden", ".b/x.py", "c.py~", "__pycache__/d.pyc", "py.typed"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    monkeypatch.setattr(pytest_mlms, "__file__", str(tmp_path / "__init__.py"))
    own_wheel.own_wheel.cache_clear()
    with zipfile.ZipFile(io.BytesIO(own_wheel.own_wheel()[1])) as wheel:
        found = [name for name in wheel.namelist() if name.startswith("pytest_mlms/")]
    own_wheel.own_wheel.cache_clear()
    assert found == ["pytest_mlms/kept.py", "pytest_mlms/py.typed"]


def test_an_installation_without_metadata_makes_no_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_wheel, "_DISTRIBUTION", "pytest-mlms-that-is-not-there")
    own_wheel.own_wheel.cache_clear()
    with pytest.raises(MlmsError, match="has no METADATA.*; install it with pip"):
        own_wheel.own_wheel()
    own_wheel.own_wheel.cache_clear()
