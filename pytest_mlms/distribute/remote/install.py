"""``mlms worker install`` and ``check``: put the running version on a host that has an interpreter
and ssh, no more.

Everything is fetched here, for the interpreter there, and goes over the one ssh connection; the
host needs no network and no pip. xdist then finds the environment by itself (see hosts.py).
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pytest_mlms.distribute.remote.hosts import HOME, SAME
from pytest_mlms.distribute.remote.wheel import build_wheel, version_name
from pytest_mlms.errors import MlmsError

__all__ = ["Ssh", "check", "install"]

_SECONDS = 900
_LEAST = (3, 10)

_ASK = """
import json, os, platform, sys
home = os.path.expanduser(os.path.join("~", {folder!r}))
print(json.dumps({{"version": sys.version_info[:2], "machine": platform.machine(), "libc": platform.libc_ver(),
    "executable": sys.executable, "installed": os.path.exists(os.path.join(home, "complete"))}}))
"""

_UNPACK = """
import os, shutil, subprocess, sys, tarfile, venv
home = os.path.expanduser(os.path.join("~", {folder!r}))
shutil.rmtree(home, ignore_errors=True)
os.makedirs(home)
with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
    archive.extractall(home)
venv.create(home, with_pip=False, symlinks=True)
wheels = os.path.join(home, "wheels")
pip = [os.path.join(wheels, name, "pip") for name in os.listdir(wheels) if name.startswith("pip-")][0]
python = os.path.join(home, "bin", "python")
options = ["--quiet", "--no-index", "--disable-pip-version-check", "--find-links", wheels]
subprocess.run([python, pip, "install", *options, *{names!r}], check=True, stdout=sys.stderr)
shutil.rmtree(wheels)
open(os.path.join(home, "complete"), "w").close()
"""


@dataclass(frozen=True)
class Ssh:
    """How to reach a host: ``python`` is its own interpreter, which is not changed."""

    host: str
    python: str = "python3"
    config: str | None = None

    def run(self, code: str, data: bytes = b"") -> str:
        """Run Python code there, with ``data`` on its standard input.

        Raises MlmsError with what it says.
        """
        options = ["-F", self.config] if self.config else []
        script = code.replace("'", "'\"'\"'")
        command = [
            "ssh",
            "-o",
            "ConnectTimeout=10",
            "-o",
            "BatchMode=yes",
            *options,
            *self.host.split(),
        ]
        command.append(f"{self.python} -c '{script}'")
        try:
            done = subprocess.run(
                command, input=data, capture_output=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MlmsError(
                f"{self.host}: {error}; see that 'ssh {self.host}' works without a password"
            ) from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip() or f"status {done.returncode}"
            raise MlmsError(f"{self.host}: {said}")
        return done.stdout.decode()


def check(ssh: Ssh) -> str:
    """Return a line on a host that has this version; raises MlmsError on one that has not."""
    facts = _ask(ssh)
    where = f"Python {'.'.join(map(str, facts['version']))}, {facts['machine']}"
    if not facts["installed"]:
        raise MlmsError(
            f"{ssh.host}: {where}, without pytest-mlms {version_name()}; run: mlms worker install {ssh.host}"
        )
    return f"{ssh.host}: ready, pytest-mlms {version_name()} on {where}"


def install(ssh: Ssh, more: Sequence[str] = ()) -> str:
    """Make the environment on a host, with the requirements ``more``; return a line.

    Raises MlmsError.
    """
    facts = _ask(ssh)
    if tuple(facts["version"]) < _LEAST:
        found = ".".join(map(str, facts["version"]))
        raise MlmsError(
            f"{ssh.host}: {ssh.python} is Python {found}; name one of 3.10 or later with --python"
        )
    with tempfile.TemporaryDirectory() as temporary:
        wheels = Path(temporary)
        build_wheel(wheels)
        names = [
            f"pytest-mlms=={version('pytest-mlms')}",
            *(f"{name}=={version(name)}" for name in SAME),
            *more,
        ]
        _download(wheels, names, facts)
        packed = _pack(wheels)
    ssh.run(_UNPACK.format(folder=_folder(), names=names), packed)
    return check(ssh)


def _folder() -> str:
    return f"{HOME}/{version_name()}"


def _ask(ssh: Ssh) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(ssh.run(_ASK.format(folder=_folder())))
    return facts


def _download(wheels: Path, names: Sequence[str], facts: dict[str, Any]) -> None:
    """Fetch what the interpreter of ``facts`` needs, with the pip of this one."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary=:all:",
    ]
    command += ["--dest", str(wheels), "--find-links", str(wheels), "--implementation", "cp"]
    command += ["--python-version", ".".join(map(str, facts["version"]))]
    for platform in _platforms(facts["machine"], facts["libc"]):
        command += ["--platform", platform]
    done = subprocess.run(
        [*command, *names, "pip"], capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode:
        raise MlmsError(f"can't fetch what the worker needs: {done.stderr.strip()}")


def _platforms(machine: str, libc: Sequence[str]) -> list[str]:
    """Return the wheel tags that a host takes, the newest first (PEP 600, PEP 656)."""
    if libc[0] != "glibc":
        return [f"musllinux_1_{minor}_{machine}" for minor in (2, 1)]
    newest = int(libc[1].split(".")[1])
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(newest, 4, -1)]
    return [*tags, f"manylinux2014_{machine}", f"manylinux2010_{machine}", f"linux_{machine}"]


def _pack(wheels: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(wheels, "wheels")
    return packed.getvalue()
