"""Ctrl-C that comes while Python runs a callback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.project import HANG_GUARD, Project

LOST = """
import os, signal, weakref

def lose_interrupt():
    thing = type("Thing", (), {})()
    kept = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT))
    del thing
    signal.alarm(60)  # ends what hangs
    os.read(os.pipe()[0], 1)  # as from an agent that computes
"""


def test_an_interrupt_in_a_callback_ends_a_run_of_manifests(project: Project) -> None:
    hook = "def pytest_runtest_call(item):\n    lose_interrupt()\n"
    project.pytester.makeconftest(f"{LOST}\n{hook}")
    result = project.run("-k", "performance")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "Exception ignored" not in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize("then", ["os.read(os.pipe()[0], 1)", "return 0"], ids=["waits", "ends"])
def test_an_interrupt_in_a_callback_ends_a_command_of_ours(tmp_path: Path, then: str) -> None:
    lost = LOST.replace("os.read(os.pipe()[0], 1)", then)
    script = tmp_path / "script.py"
    main = "from pytest_mlms.cli import main\nmain._run = lambda words: lose_interrupt() or 0\n"
    script.write_text(f"{lost}\n{main}\nraise SystemExit(main.main(['lint']))")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=HANG_GUARD
    )
    assert (done.returncode, done.stderr) == (130, "mlms: interrupted\n")
