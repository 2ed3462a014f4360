"""Installation of workers' environments; test_over_ssh.py installs one on a host."""

from __future__ import annotations

import base64
import ensurepip
import hashlib
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pytest_mlms
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.distribute.remote import install as module
from pytest_mlms.distribute.remote.install import (
    build_wheel,
    check,
    code_digest,
    install,
    install_folder,
    installed_python,
    version_name,
)
from tests.support.wheels import write_wheel

REMOTE = module._RemotePython([3, 11], "x86_64", ["glibc", "2.31"], is_installed=False)


class LocalHost:
    """A host without ssh: its code runs in a process of this interpreter, in a home of its own."""

    host = "gpu1"
    python = sys.executable

    def __init__(self, home: Path) -> None:
        self._home = home

    def run_python(self, code: str, data: bytes = b"") -> str:
        done = subprocess.run(
            [self.python, "-c", code],
            input=data,
            capture_output=True,
            timeout=300,
            check=True,
            env={"HOME": str(self._home)},
        )
        return done.stdout.decode()


@pytest.fixture
def host(tmp_path: Path) -> Any:
    return LocalHost(tmp_path)


def test_the_environment_of_each_version_has_a_folder_in_the_remote_home() -> None:
    assert install_folder() == f".cache/pytest-mlms/worker/{version_name()}"
    assert installed_python() == f"~/{install_folder()}/bin/python"


def test_a_host_without_the_environment_is_told_apart_from_one_with_it(
    host: Any, tmp_path: Path
) -> None:
    with pytest.raises(MlmsError, match="run: mlms worker install gpu1"):
        check(host)
    folder = tmp_path / install_folder() / "hosts" / platform.node()
    folder.mkdir(parents=True)
    (folder / "complete").touch()
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexit 126\n")  # as a program of another architecture ends
    python.chmod(0o755)
    with pytest.raises(MlmsError, match="mlms worker install"):
        module.check(host)
    python.write_text("#!/bin/sh\n")
    assert check(host).startswith(f"gpu1: ready, pytest-mlms {version_name()} on Python 3.")


def test_hosts_that_share_a_home_have_an_environment_each(host: Any, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    write_wheel(wheels, "toy", "1.0")
    (pip,) = Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl")
    shutil.copy(pip, wheels)
    unpack = module._UNPACK.format(folder=install_folder(), names=["toy"], script=module._PYTHON)
    other = "import platform; platform.node = lambda: 'other'"
    for code in (f"{other}\n{unpack}", unpack):
        host.run_python(code, module._pack(wheels))
    python = tmp_path / installed_python().removeprefix("~/")
    prefix = subprocess.check_output([python, "-c", "import sys, toy; print(sys.prefix)"])
    hosts = tmp_path / install_folder() / "hosts"
    assert prefix.decode().strip() == str(hosts / platform.node())
    assert (hosts / "other" / "complete").exists(), "another host may be using it"


def test_packages_are_fetched_for_the_interpreter_of_the_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **options: Any) -> Any:
        commands.append(command)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    module._download(["pytest==9.0"], tmp_path, REMOTE)
    (command,) = commands
    assert command[1:5] == ["-I", "-m", "pip", "download"]
    assert command[command.index("--python-version") + 1] == "3.11"
    platforms = [command[n + 1] for n, word in enumerate(command) if word == "--platform"]
    assert platforms[0] == "manylinux_2_31_x86_64"
    assert platforms[-1] == "linux_x86_64"
    assert command[-2:] == ["pytest==9.0", "pip"]


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Welcome!",
        "[1]",
        "[" * 100_000,
        (
            '{"version": [3, 11], "machine": "x86_64", "libc": ["glibc", "2.999999999"], '
            '"is_installed": false}'
        ),
        '{"version": "3", "machine": "x", "libc": ["glibc", "2.31"], "is_installed": false}',
        '{"version": [3, 11], "machine": "../x", "libc": ["a", ""], "is_installed": false}',
        '{"version": [3, 11], "machine": "x", "libc": ["glibc", "new"], "is_installed": false}',
    ],
)
def test_an_answer_that_tells_no_python_is_shown(answer: str) -> None:
    host: Any = SimpleNamespace(host="gpu1", python="python3", run_python=lambda code: answer)
    with pytest.raises(MlmsError, match="gpu1: python3 told something else: "):
        check(host)


def test_a_host_with_musl_takes_its_wheels() -> None:
    remote = REMOTE._replace(libc=["", ""])
    assert module._platforms(remote) == ["musllinux_1_2_x86_64", "musllinux_1_1_x86_64"]


def test_a_package_that_can_not_be_fetched_is_an_error(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(MlmsError, match="can't fetch what the worker needs"):
        install(host)


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
