"""``mlms worker install`` and ``mlms worker check``: the environment of workers on a remote host.

The wheel of the running version is installed in ``~/.cache/pytest-mlms/worker/VERSION/hosts/NAME``
(see ``install_folder``), as hosts that share a home may have other processors and Pythons.
Everything is downloaded here, for the interpreter of the host, and sent over one ssh connection. So
the host needs neither a network nor pip. xdist then finds the environment by ``installed_python``
(see ``hosts.py``), a script that knows the name of its host.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.metadata import Distribution, distribution, version
from pathlib import Path
from typing import NamedTuple

import mlms_predictors

import pytest_mlms
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.text import visible
from pytest_mlms.distribute.remote.ssh import SshHost

SAME_VERSION = ("pytest", "pytest-xdist", "execnet")
"""Packages of which the controller and its workers must have the same version."""

_INSTALL_ROOT = ".cache/pytest-mlms/worker"  # below the remote user's home
_OLDEST_PYTHON = (3, 10)
_DOWNLOAD_SECONDS = 900
_FACT = re.compile(r"[\w.-]{0,40}", re.ASCII)
_NEWEST_LIBC = 200  # of 2.x, of which each is a tag of wheels
_SHOWN = 200  # characters of another answer

_PIP_DOWNLOAD = (
    "-I",
    "-m",
    "pip",
    "download",
    "--quiet",
    "--disable-pip-version-check",
    "--only-binary=:all:",
    "--implementation",
    "cp",
)

# Run on the remote host, by Python 3.

_DESCRIBE = """
import json, os, platform, subprocess, sys
home = os.path.expanduser(os.path.join("~", {folder!r}, "hosts", platform.node()))
python = os.path.join(home, "bin", "python")
is_installed = os.path.exists(os.path.join(home, "complete"))
if is_installed:  # its interpreter may have been removed
    try:
        is_installed = subprocess.call([python, "-c", "import execnet"], stderr=-3) == 0
    except OSError:
        is_installed = False
print(json.dumps({{
    "version": sys.version_info[:2],
    "machine": platform.machine(),
    "libc": platform.libc_ver(),
    "is_installed": is_installed,
}}))
"""

_UNPACK = """
import fcntl, os, platform, shutil, subprocess, sys, tarfile, venv
root = os.path.expanduser(os.path.join("~", {folder!r}))
home = os.path.join(root, "hosts", platform.node())
os.makedirs(os.path.dirname(home), exist_ok=True)
lock = open(home + ".lock", "w")  # the end of this process frees it
fcntl.flock(lock, fcntl.LOCK_EX)
shutil.rmtree(home, ignore_errors=True)
os.makedirs(home)
with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
    archive.extractall(home)
venv.create(home, with_pip=False, symlinks=True)
wheels = os.path.join(home, "wheels")
names = [name for name in os.listdir(wheels) if name.startswith("pip-")]
pip = os.path.join(wheels, names[0], "pip")
python = os.path.join(home, "bin", "python")
options = ["--quiet", "--no-index", "--disable-pip-version-check", "--find-links", wheels]
subprocess.run([python, pip, "install", *options, *{names!r}], check=True, stdout=sys.stderr)
shutil.rmtree(wheels)
script = os.path.join(home, "python")
with open(script, "w") as file:
    file.write({script!r})
os.chmod(script, 0o755)
os.makedirs(os.path.join(root, "bin"), exist_ok=True)
os.replace(script, os.path.join(root, "bin", "python"))
open(os.path.join(home, "complete"), "w").close()
"""

_PYTHON = """#!/bin/sh
exec "${0%/bin/python}/hosts/$(uname -n)/bin/python" "$@"
"""
"""The script that starts the interpreter of the host where it runs."""
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
    """Write the wheel into ``folder`` in the format of PEP 427; return its path."""
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


class _RemotePython(NamedTuple):
    """The interpreter of a host; ``libc`` is a name and a version."""

    version: Sequence[int]
    machine: str
    libc: Sequence[str]
    is_installed: bool

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version))


def install_folder() -> str:
    """Return the folder of the environments for this version, relative to the remote home."""
    return f"{_INSTALL_ROOT}/{version_name()}"


def installed_python() -> str:
    """Return what starts the interpreter of a host's environment, as a remote shell reads it."""
    return f"~/{install_folder()}/bin/python"


def check(host: SshHost) -> str:
    """Return a line about a host that has this version; raise MlmsError for one that has not."""
    python = _describe(host)
    description = f"Python {python.version_text}, {python.machine}"
    if not python.is_installed:
        raise MlmsError(
            f"{host.host}: {description}, without pytest-mlms {version_name()}; "
            f"run: mlms worker install {shlex.quote(host.host)}"
        )
    return f"{host.host}: ready, pytest-mlms {version_name()} on {description}"


def install(host: SshHost, requirements: Sequence[str] = ()) -> str:
    """Make the environment on a host, with further ``requirements``; return a line about it.

    Raises MlmsError where the interpreter is too old, or a package can't be had for it.
    """
    python = _describe(host)
    if tuple(python.version) < _OLDEST_PYTHON:
        raise MlmsError(
            f"{host.host}: {host.python} is Python {python.version_text}; "
            f"name one of 3.10 or later with --python"
        )
    packages = [f"{name}=={version(name)}" for name in ("pytest-mlms", *SAME_VERSION)]
    packages += requirements
    with tempfile.TemporaryDirectory() as folder:
        wheels = Path(folder)
        build_wheel(wheels)
        _download(packages, wheels, python)
        packed = _pack(wheels)
    code = _UNPACK.format(folder=install_folder(), names=packages, script=_PYTHON)
    host.run_python(code, packed)
    return check(host)


def _describe(host: SshHost) -> _RemotePython:
    code = _DESCRIBE.format(folder=install_folder())
    answer = host.run_python(code)
    try:
        return _checked(_RemotePython(**json.loads(answer)))
    except (TypeError, ValueError, RecursionError):
        shown = visible(answer[:_SHOWN].strip())
        raise MlmsError(f"{host.host}: {host.python} told something else: {shown}") from None


def _checked(python: _RemotePython) -> _RemotePython:
    """Return the facts if a Python can have them; raises ValueError and TypeError."""
    major, minor = python.version
    library, library_version = python.libc
    texts = (python.machine, library, library_version)
    are_texts = all(isinstance(text, str) and _FACT.fullmatch(text) for text in texts)
    if not (are_texts and 0 < major < 10 and 0 <= minor < 100 and python.machine):
        raise ValueError
    if library == "glibc" and not 4 < _minor(library_version) < _NEWEST_LIBC:
        raise ValueError
    return python


def _minor(version: str) -> int:
    return int(version.split(".")[1]) if "." in version else -1


def _download(packages: Sequence[str], wheels: Path, python: _RemotePython) -> None:
    """Download packages and pip, as wheels for a remote interpreter, with the pip of this one."""
    command = [sys.executable, *_PIP_DOWNLOAD]
    command += ["--dest", str(wheels), "--find-links", str(wheels)]
    command += ["--python-version", python.version_text]
    for platform in _platforms(python):
        command += ["--platform", platform]
    command += [*packages, "pip"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False
    )
    if done.returncode:
        raise MlmsError(f"can't fetch what the worker needs: {done.stderr.strip()}")


def _platforms(python: _RemotePython) -> list[str]:
    """Return the platform tags of wheels that a host takes, the newest first (PEP 600, PEP 656)."""
    machine = python.machine
    library, library_version = python.libc
    if library != "glibc":
        return [f"musllinux_1_2_{machine}", f"musllinux_1_1_{machine}"]
    newest = _minor(library_version)
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(newest, 4, -1)]
    return [*tags, f"manylinux2014_{machine}", f"manylinux2010_{machine}", f"linux_{machine}"]


def _pack(wheels: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(wheels, "wheels")
    return packed.getvalue()
