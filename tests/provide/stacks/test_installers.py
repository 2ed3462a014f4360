"""Installations by hand-written programs in the place of Python and uv."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from pytest_mlms.core.errors import StackError, Unavailable
from pytest_mlms.core.records import Stack
from pytest_mlms.provide.stacks import installers
from pytest_mlms.provide.stacks.installers import install
from pytest_mlms.provide.stacks.interpreters import Interpreter
from tests.support.project import ROOT
from tests.support.small_disk import mount_small_disk
from tests.support.waiting import wait_until

PIP = """#!/bin/sh
echo "$*" >> "{log}"
case "$*" in
  *"-m venv"*)
    for last; do :; done
    mkdir -p "$last/bin"
    test -e "$last/bin/python" || cp "$0" "$last/bin/python";;
  *freeze*) printf 'tiny==1.0\\nWarning: odd\\npip==24.0\\nBig @ file:///big.whl\\n';;
  *broken*) echo 'Collecting broken'; echo 'ERROR: nothing found'; exit 3;;
  *daemon*) sleep 300 & echo $! > "{log}.daemon"; echo 'Collecting daemon';;
  *forever*) echo $$ > "{log}.forever"; exec sleep 300;;
  *filling*) dd if=/dev/zero of="{log}.big" 2>/dev/null; exit 1;;
  *huge*) echo 'OSError: No space left on device'; exit 1;;
  *) echo 'Collecting tiny'; echo '  Downloading tiny-1.0.whl';;
esac
"""


MINE = Stack("mine", "any")


class Installer:
    """An installation by a program that notes how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "environment"
        self.steps: list[str] = []
        self._log = folder / "log"
        self._program = folder / "python"
        self._program.write_text(PIP.format(log=self._log))
        self._program.chmod(0o755)

    def install(
        self, *requirements: str, stack: Stack = MINE, version: str = "3.11.7"
    ) -> list[str]:
        interpreter = Interpreter(
            self._program, version, "CPython", "linux-x86_64", self._program.parent
        )
        return install(stack, interpreter, self.folder, requirements, self.steps.append)

    @property
    def commands(self) -> list[str]:
        return self._log.read_text().splitlines()


def test_a_build_that_leaves_a_process_behind_hangs_no_installation(installer: Installer) -> None:
    try:
        assert installer.install("daemon") == ["Big @ file:///big.whl", "tiny==1.0"]
        assert "Collecting daemon" in installer.steps
    finally:
        pid = int((installer.folder.parent / "log.daemon").read_text())
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def installer(tmp_path: Path) -> Installer:
    return Installer(tmp_path)


def test_the_exact_packages_are_those_of_pip_freeze_without_pip(installer: Installer) -> None:
    assert installer.install("tiny") == ["Big @ file:///big.whl", "tiny==1.0"]


def test_the_steps_are_shown_and_an_empty_text_at_the_end(installer: Installer) -> None:
    installer.install("tiny")
    assert installer.steps == [
        "preparing pip",
        "making the environment",
        "installing",
        "Collecting tiny",
        "Downloading tiny-1.0.whl",
        "listing packages",
        "",
    ]


def test_options_come_before_the_requirements(installer: Installer) -> None:
    stack = Stack("mine", "any", options=("--pre",))
    installer.install("tiny", "big", stack=stack)
    (command,) = [command for command in installer.commands if " install " in command]
    assert command.endswith("--pre tiny big")


def test_a_lock_file_is_installed_without_dependencies(installer: Installer) -> None:
    stack = Stack("mine", "any", lock=Path("mine.lock"), options=("--pre",))
    installer.install("tiny==1.0", stack=stack)
    (command,) = [command for command in installer.commands if " install " in command]
    assert command.endswith("--pre --no-deps tiny==1.0")


@pytest.mark.parametrize(("version", "pip"), [("3.6.15", "pip==21.3.1"), ("3.7.16", "pip==24.0")])
def test_the_pip_of_an_old_python_is_renewed(installer: Installer, version: str, pip: str) -> None:
    installer.install("tiny", version=version)
    assert any(command.endswith(f"-q {pip}") for command in installer.commands)
    assert "renewing pip" in installer.steps


def test_a_failure_has_the_installer_s_last_lines(installer: Installer) -> None:
    with pytest.raises(StackError) as raised:
        installer.install("broken")
    assert str(raised.value).splitlines() == [
        "stack mine can't be made with Python 3.11.7",
        "  installing ended with status 3:",
        "    Collecting broken",
        "    ERROR: nothing found",
    ]
    assert installer.steps[-1] == ""


def test_a_full_disk_has_advice(installer: Installer) -> None:
    advice = "; make room, or name another cache with --mlms-cache"
    with pytest.raises(StackError, match=advice):
        installer.install("huge")


def test_a_full_disk_is_told_also_where_the_program_does_not_tell_it(tmp_path: Path) -> None:
    with mount_small_disk(tmp_path / "disk", "4m") as disk:
        installer = Installer(disk)
        with pytest.raises(StackError, match=re.escape(f": no space left in {disk}; make room")):
            installer.install("filling")


def test_an_installation_ends_where_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; import tests.provide.stacks.test_installers as t;"
    code += "t.Installer(Path(sys.argv[1])).install('forever')"
    noted = tmp_path / "log.forever"
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], cwd=ROOT) as starter:
        wait_until(lambda: noted.exists() and noted.read_text().strip())
        program = psutil.Process(int(noted.read_text()))
        starter.kill()
    wait_until(lambda: not program.is_running())


def test_what_a_program_left_in_the_background_ends_with_the_starter_too() -> None:
    script = "sleep 300 & echo $!; wait"  # a shell has such a program ignore an interruption
    words = [sys.executable, "-I", "-S", str(installers._GUARD), "sh", "-c", script]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as guard:
        assert guard.stdin
        assert guard.stdout
        program = psutil.Process(int(guard.stdout.readline()))
        guard.stdin.close()
        guard.wait(60)
    wait_until(lambda: not program.is_running() or program.status() == psutil.STATUS_ZOMBIE)


def test_a_disk_that_counts_no_bytes_is_not_full(
    installer: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/proc")
    with pytest.raises(StackError) as raised:
        installer.install("broken")
    assert "no space left" not in str(raised.value)


def test_a_program_that_is_not_there_is_told(installer: Installer) -> None:
    Path(installer.folder.parent, "python").unlink()
    with pytest.raises(StackError, match="python can't be started: No such file"):
        installer.install("tiny")


def test_variables_of_python_and_secrets_do_not_reach_the_installer(
    installer: Installer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = tmp_path / "environment.txt"
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nenv > {environment}\nexit 1\n")
    monkeypatch.setenv("PYTHONPATH", "/leak")
    monkeypatch.setenv("PIP_INDEX_URL", "https://joe:s3cret@index")
    monkeypatch.setenv("https_proxy", "http://proxy")
    monkeypatch.setenv("GITHUB_TOKEN", "s3cret")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/s3cret")
    with pytest.raises(StackError):
        installer.install("tiny")
    lines = environment.read_text().splitlines()
    assert "PIP_INDEX_URL=https://joe:s3cret@index" in lines
    assert "https_proxy=http://proxy" in lines
    assert not any(line.startswith(("PYTHON", "GITHUB", "SSH")) for line in lines)


def test_uv_is_unavailable_where_it_is_not_installed(
    installer: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    message = "stack mine is to be installed by uv, which isn't there; pip install uv"
    with pytest.raises(Unavailable, match=message):
        installer.install("tiny", stack=Stack("mine", "any", installer="uv"))


def test_uv_makes_the_environment_and_installs(
    installer: Installer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "uv.log"
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\necho "$*" >> {log}\necho tiny==1.0\n')
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), os.environ["PATH"]]))
    assert installer.install("tiny", stack=Stack("mine", "any", installer="uv")) == ["tiny==1.0"]
    venv, pip_install, freeze = log.read_text().splitlines()
    assert venv.startswith("venv ")
    assert pip_install.endswith(" tiny")
    assert "--compile-bytecode" in pip_install
    assert freeze.startswith("pip freeze")


WAITING = """#!/bin/sh
echo 'Collecting tiny'
sleep 600 &
echo $! > {pids}
wait
"""


def interrupt_in(installer: Installer, program: str, begun: Path) -> None:
    """Press Ctrl-C once a program that is called as Python has written a file and a step."""
    python = installer.folder.parent / "python"
    python.write_text(program)

    def interrupt(step: str) -> None:
        if step.startswith("Collecting"):
            wait_until(lambda: begun.exists() and begun.read_text())
            raise KeyboardInterrupt

    interpreter = Interpreter(python, "3.11.7", "CPython", "linux-x86_64", Path(sys.prefix))
    with pytest.raises(KeyboardInterrupt):
        install(MINE, interpreter, installer.folder, ["tiny"], interrupt)


def test_an_interruption_kills_the_installer_with_its_children(
    installer: Installer, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    interrupt_in(installer, WAITING.format(pids=pids), pids)
    child = int(pids.read_text())
    wait_until(lambda: not _is_running(child))


STUBBORN = """#!/bin/sh
trap 'kill -INT $PPID' INT
echo 'Collecting tiny'
sleep 600 &
echo $! > {pids}
wait
wait
"""


def test_a_second_interruption_kills_an_installer_that_has_not_ended_yet(
    installer: Installer, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    interrupt_in(installer, STUBBORN.format(pids=pids), pids)
    child = int(pids.read_text())
    wait_until(lambda: not _is_running(child))


TIDY = """#!{python}
import pathlib, signal, tempfile
signal.signal(signal.SIGINT, signal.default_int_handler)
with tempfile.TemporaryDirectory(dir={folder!r}) as folder:
    pathlib.Path({begun!r}).write_text(folder)
    print("Collecting tiny", flush=True)
    signal.pause()
"""


def test_an_installer_that_is_interrupted_removes_its_temporary_files(
    installer: Installer, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    program = TIDY.format(python=sys.executable, folder=str(tmp_path), begun=str(begun))
    interrupt_in(installer, program, begun)
    assert not Path(begun.read_text()).exists()


def _is_running(pid: int) -> bool:
    """Return whether a process runs; one that ended may not have been reaped yet."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    _, _, rest = status.rpartition(") ")
    return not rest.startswith("Z")
