"""``mlms worker``, with a hand-written fake of ssh."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.cli.main import main

FAKE_SSH = """#!/bin/sh
for last; do :; done
case "$*" in
    *broken*) echo "Permission denied" >&2; exit 255;;
    *) exec sh -c "$last";;
esac
"""


@pytest.fixture(autouse=True)
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a fake of ssh on the path that runs commands here, in a home of its own."""
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(FAKE_SSH)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_host_without_this_version_is_named_with_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["worker", "check", "gpu1"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("gpu1: Python 3.")
    assert error.endswith("run: mlms worker install gpu1\n")


def test_each_host_has_a_line_and_one_failure_is_enough_to_fail(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["worker", "check", "broken", "gpu1"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "broken: Permission denied"
    assert lines[1].startswith("gpu1: ")
    assert len(lines) == 2


def test_an_interpreter_that_is_too_old_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    old = tmp_path / "python"
    facts = '{"version": [3, 6], "machine": "x86_64", "libc": ["glibc", "2.28"]'
    answer = f'{facts}, "is_installed": false}}'
    code = """echo "$*" | grep -o '"[A-Za-z0-9+/=]*"' | tr -d '"' | base64 -d"""
    mark = f"mark=$({code} | grep -o '[0-9a-f]\\{{16\\}}' | head -n 1)"
    old.write_text(f"#!/bin/sh\n{mark}\necho $mark\necho '{answer}'\necho $mark\n")
    old.chmod(0o755)
    assert main(["worker", "install", "gpu1", "--python", str(old)]) == 1
    assert "is Python 3.6; name one of 3.10 or later with --python" in capsys.readouterr().err
