"""Runs of pytest that are forked are as those that are started."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.conftest import PREPARED
from tests.support.prepared import Server

PROBE = """\
import json, os, signal, sys

seen = {
    "arguments": sys.argv[1:],
    "folder": os.getcwd(),
    "handlers": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)],
    "input": sys.stdin.read(),
    "main": sys.modules["__main__"].__spec__.name,
    "path": sys.path,
    "variables": dict(os.environ),
}
print("to stdout")
print("to stderr", file=sys.stderr)
with open("seen.json", "w") as file:
    json.dump(seen, file)
"""


@pytest.fixture
def prepared() -> Server:
    if PREPARED is None:
        pytest.skip("MLMS_TESTS_START is set: all runs are started")
    return PREPARED


def seen(pytester: pytest.Pytester, *arguments: str) -> Any:
    """Run pytest with a plugin that tells what it sees; return that, the status and the streams."""
    result = pytester.run(sys.executable, "-mpytest", "-pprobe", *arguments)
    told = json.loads((pytester.path / "seen.json").read_text())
    return told, result.ret, result.outlines[0], result.errlines


@pytest.mark.parametrize("arguments", [("-q",), ("--no-such-option",), ("test_fails.py",)])
def test_a_fork_sees_and_tells_what_a_process_that_is_started_does(
    pytester: pytest.Pytester,
    prepared: Server,
    request: pytest.FixtureRequest,
    arguments: tuple[str, ...],
) -> None:
    pytester.makepyfile(probe=PROBE, test_fails="def test_it(): assert 0")
    forked = seen(pytester, *arguments)
    request.getfixturevalue("started")
    assert seen(pytester, *arguments) == forked


def test_runs_are_forked_unless_something_may_differ(
    pytester: pytest.Pytester, prepared: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-mpytest", "--version"]
    with open("out", "w") as file:
        forked = prepared.fork(command, [file, file])
        assert forked is not None
        assert prepared.fork(command, [file, file]) is None, "one is running"
        assert forked.wait(60) == 0
        assert prepared.fork([sys.executable, "-c", "0"], [file, file]) is None
        assert prepared.fork(command, [file, -1]) is None, "a pipe"
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        assert prepared.fork(command, [file, file]) is None


def test_a_fork_that_hangs_is_killed_and_the_next_one_runs(
    pytester: pytest.Pytester, prepared: Server
) -> None:
    pytester.makepyfile(test_hangs="import time\n\ndef test_it(): time.sleep(600)")
    with pytest.raises(pytester.TimeoutExpired):
        pytester.run(sys.executable, "-mpytest", timeout=0.5)
    assert not prepared.free.locked()
    assert pytester.run(sys.executable, "-mpytest", "--version").ret == 0
