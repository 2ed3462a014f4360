"""Other users of this host, whom only root can be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")

ALICE = 23456
MALLORY = 34567
NOBODY = 12345

# What is imported first is read as root: other users may not read this project.
_AS_USER = """
import contextlib, os, sys, time
from pathlib import Path
from pytest_mlms.provide.host import locks
os.setgroups([])
os.setgid({user})
os.setuid({user})
"""


def start_as(user: int, code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """Start Python code as a user; sys.argv[1:] are ``arguments``."""
    program = _AS_USER.format(user=user) + code
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/"
    )


def run_as(user: int, code: str, *arguments: str | Path) -> str:
    """Run Python code as a user and return its output."""
    with start_as(user, code, *arguments) as process:
        output, _ = process.communicate(timeout=60)
    return output


def command_of_nobody(*command: str) -> list[str]:
    """Return a command line that runs ``command`` as a user that /etc/passwd doesn't have.

    The user may read everything: this project need not be readable by others.
    """
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or setpriv is None:
        pytest.skip("needs root, and setpriv")
    capability = "-all,+dac_read_search"
    user = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    inherited = [f"--inh-caps={capability}", f"--bounding-set={capability}"]
    return [setpriv, *user, *inherited, "--ambient-caps=+dac_read_search", *command]


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user may write to, like /tmp."""
    folder = Path(tempfile.mkdtemp(prefix="mlms-shared-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)
