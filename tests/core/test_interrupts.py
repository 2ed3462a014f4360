"""Ctrl-C that comes while Python runs a callback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.project import HANG_GUARD, Project

LOST = """
import os, signal, time, weakref

def lose_interrupt():
    thing = type("Thing", (), {})()
    kept = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT))
    del thing
    for _ in range(1000):
        time.sleep(0.01)
"""


def test_an_interrupt_in_a_callback_ends_a_run_of_manifests(project: Project) -> None:
    hook = "def pytest_runtest_call(item):\n    lose_interrupt()\n"
    project.pytester.makeconftest(f"{LOST}\n{hook}")
    result = project.run("-k", "performance")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "Exception ignored" not in result.stdout.str() + result.stderr.str()


def test_an_interrupt_in_a_callback_ends_a_command_of_ours(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    main = "from pytest_mlms.cli import main\nmain._run = lambda words: lose_interrupt() or 0\n"
    script.write_text(f"{LOST}\n{main}\nraise SystemExit(main.main(['lint']))")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=HANG_GUARD
    )
    assert (done.returncode, done.stderr) == (130, "mlms: interrupted\n")
