"""The wheel of the running version."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

import pytest_mlms
from pytest_mlms.distribute.remote.wheel import build_wheel, code_digest, version_name


def test_the_wheel_has_both_packages_and_its_metadata(tmp_path: Path) -> None:
    path = build_wheel(tmp_path)
    version = pytest_mlms.__version__
    assert path.name == f"pytest_mlms-{version}-py3-none-any.whl"
    info = f"pytest_mlms-{version}.dist-info"
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        metadata = wheel.read(f"{info}/METADATA").decode()
        entry_points = wheel.read(f"{info}/entry_points.txt").decode()
    assert "pytest_mlms/plugin.py" in names
    assert "mlms_predictors/onnxruntime.py" in names
    assert not any("__pycache__" in name for name in names)
    assert "Name: pytest-mlms" in metadata
    assert "[pytest11]" in entry_points
    assert names[-1] == f"{info}/RECORD"


def test_the_record_has_the_digest_and_size_of_each_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(build_wheel(tmp_path)) as wheel:
        names = wheel.namelist()
        record = wheel.read(names[-1]).decode()
        content = wheel.read("pytest_mlms/plugin.py")
    lines = record.splitlines()
    recorded = [line.split(",")[0] for line in lines]
    assert recorded == names
    sha256 = hashlib.sha256(content).digest()
    digest = base64.urlsafe_b64encode(sha256).rstrip(b"=")
    size = len(content)
    assert f"pytest_mlms/plugin.py,sha256={digest.decode()},{size}" in lines


def test_the_name_of_a_version_has_the_digest_of_its_code() -> None:
    assert version_name() == f"{pytest_mlms.__version__}-{code_digest()}"
    assert len(code_digest()) == 12
