"""Commands over ssh, with a hand-written fake of ssh."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.distribute.remote.ssh import SshHost, ssh_command

RUNS_HERE = '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n'


def use_ssh(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ssh"
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


def test_options_before_the_host_and_a_configuration_are_passed_on() -> None:
    command = ssh_command("-p 2222 gpu1", Path("config"), "true")
    assert command[:5] == ["ssh", "-o", "ConnectTimeout=10", "-o", "BatchMode=yes"]
    assert command[5:] == ["-F", "config", "-p", "2222", "gpu1", "true"]


def test_code_with_quotes_reads_its_input_and_its_output_is_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_ssh(RUNS_HERE, tmp_path, monkeypatch)
    code = "import sys; print('it\\'s', \"$HOME\", sys.stdin.read())"
    assert SshHost("gpu1").run_python(code, b"data") == "it's $HOME data\n"


def test_a_login_shell_that_quotes_no_new_line_runs_code_of_several_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_line = '[ "$(printf %s "$last" | wc -l)" -eq 0 ] || { echo Unmatched quote >&2; exit 1; }'
    as_csh = RUNS_HERE.replace("exec sh", f"{is_line}\nexec sh")
    use_ssh(as_csh, tmp_path, monkeypatch)
    assert SshHost("gpu1").run_python("print(1)\nprint('it\\'s')") == "1\nit's\n"


def test_a_failure_has_what_the_host_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_ssh("#!/bin/sh\necho Permission denied >&2\nexit 255\n", tmp_path, monkeypatch)
    with pytest.raises(MlmsError, match="gpu1: Permission denied"):
        SshHost("gpu1").run_python("pass")
    use_ssh("#!/bin/sh\nexit 3\n", tmp_path, monkeypatch)
    with pytest.raises(MlmsError, match="gpu1: ssh ended with 3"):
        SshHost("gpu1").run_python("pass")


NOISY = """#!/bin/sh
for last; do :; done
printf 'Willkommen \\344\\033[2J\\n{{"version": 1}}\\n'
sh -c "$last"
status=$?
echo bye
exit $status
"""


def test_banners_before_and_after_an_answer_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_ssh(NOISY, tmp_path, monkeypatch)
    assert SshHost("gpu1").run_python("print('here')") == "here\n"


def test_a_host_that_runs_something_else_is_an_error_with_what_it_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_ssh("#!/bin/sh\nprintf 'only \\344\\033[2J git\\n'\n", tmp_path, monkeypatch)
    with pytest.raises(MlmsError, match=r"python3 didn't answer; it printed: only .\\x1b\[2J git"):
        SshHost("gpu1").run_python("pass")


def test_an_endless_answer_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_ssh("#!/bin/sh\nexec cat /dev/zero\n", tmp_path, monkeypatch)
    with pytest.raises(MlmsError, match="gpu1: "):
        SshHost("gpu1").run_python("pass")


def test_a_machine_without_ssh_is_an_error_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MlmsError, match="check that 'ssh gpu1' works without a password"):
        SshHost("gpu1").run_python("pass")
