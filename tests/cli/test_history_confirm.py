"""From suspicion to conviction: recorded stacks are made again, and judged in turns."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from pytest_mlms.cli.main import main
from tests.support.confirmations import Nights
from tests.support.project import HANG_GUARD, PREDICTORS, Project
from tests.support.wheels import offline  # noqa: F401

pytestmark = [pytest.mark.usefixtures("offline"), pytest.mark.slow]

OPTIONS = f"-p no:hypothesispytest -p no:anyio --mlms-duration=0.05 --mlms-predictors={PREDICTORS}"


@pytest.fixture
def nights(
    project: Project, tmp_path: Path, seeds: Path, monkeypatch: pytest.MonkeyPatch
) -> Nights:
    monkeypatch.chdir(project.path)
    monkeypatch.setenv("PYTEST_ADDOPTS", OPTIONS)
    return Nights(project, tmp_path / "wheels", seeds)


def words(nights: Nights, *arguments: str) -> list[str]:
    """Return the command that confirms changes."""
    folders = [f"--mlms-cache={nights.cache}", f"--mlms-predictors={nights.predictors}"]
    command = ["history", "changes", "--confirm", f"--history={nights.address}"]
    return [*command, *folders, *arguments]


def confirm(nights: Nights, *arguments: str) -> int:
    return main(words(nights, *arguments))


def ended(command: list[str], number: signal.Signals) -> tuple[int, list[psutil.Process]]:
    """End a command by a signal once its gate has started an agent.

    Returns its exit status, and the processes that it had started and that are left.
    """
    program = psutil.Popen([sys.executable, "-m", "pytest_mlms", *command])
    started: list[psutil.Process] = []
    while program.poll() is None:
        started = program.children(recursive=True)
        if any("worker.py" in " ".join(_command_of(child)) for child in started):
            program.send_signal(number)
            break
        time.sleep(0.1)
    status = int(program.wait(HANG_GUARD))
    _, left = psutil.wait_procs(started, timeout=60)
    return status, left


def _command_of(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:  # it has ended
        return []


@pytest.mark.slow(seconds=70)
def test_each_suspicion_gets_its_cause(nights: Nights, capfd: pytest.CaptureFixture[str]) -> None:
    first, slower, wrong = (nights.measure(version) for version in "123")
    nights.repeat(first, 4)
    nights.repeat(first, 2, ratio=1.1)  # night 5: the machine, from now on
    nights.repeat(slower, 3, ratio=1.1)  # night 7
    nights.repeat(wrong, 2, ratio=1.1)  # night 10; with 11 points in all nothing is found
    nights.control(5)
    of_machine = nights.suspect("load_time", 5, 1.1)
    of_software = nights.suspect("latency_p50", 7, 1.3)
    of_rate = nights.suspect("throughput", 8, 1 / 1.3)
    of_outputs = nights.suspect("latency_mean", 10, 1 / 1.3)
    noise = nights.suspect("peak_memory", 2, 1.2)
    unknown = nights.suspect("late_latency", 7, 1.3)  # calls of 10 ms are too slow for it
    capfd.readouterr()
    assert confirm(nights, "--fail") == 1
    output = capfd.readouterr().err
    changes = nights.changes()
    causes = {number: (row.cause, row.status) for number, row in changes.items()}
    planted = {
        of_machine: ("machine", "dismissed"),
        of_software: ("software", "confirmed"),
        of_rate: ("software", "confirmed"),
        of_outputs: ("software", "confirmed"),
        noise: ("noise", "dismissed"),
        unknown: (None, "open"),
    }
    assert {number: causes.pop(number) for number in planted} == planted
    for named in [changes[number] for number in causes]:
        assert named.first_run in ("night-007", "night-010")  # where the version changed
        assert named.kind == ("step" if named.status == "confirmed" else "named")
        assert named.status in ("confirmed", "dismissed")
    assert changes[of_software].confirmed_by == changes[of_rate].confirmed_by
    gate = nights.project.path / "mlms-results" / f"gate-{changes[of_rate].confirmed_by}"
    assert (gate / "results.jsonl").is_file()
    check_reproduced(nights, gate)
    assert "before: pacekit of run night-006" in output
    assert "  pacekit 1 → 2" in output
    assert changes[of_outputs].reason.endswith("the stacks compute different outputs")
    assert changes[unknown].reason.startswith("INCONCLUSIVE in late_latency: not measured: ")
    check_what_is_gone(nights)


def check_reproduced(nights: Nights, run: Path) -> None:
    """Check that the command of each regressed item of a run finds the item."""
    lines = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    commands = [line["reproduce"] for line in lines if line.get("reproduce")]
    assert commands
    for command in commands:
        _, *arguments = shlex.split(command)
        found = nights.project.pytester.runpytest_subprocess(*arguments, "--collect-only", "-q")
        assert "1 test collected" in found.stdout.str()


def check_what_is_gone(nights: Nights) -> None:
    """Check the reasons of a suspicion whose package, then whose model isn't there any more."""
    (nights.wheels / "pacekit-1-py3-none-any.whl").unlink()
    shutil.rmtree(nights.cache)
    number = nights.suspect("latency_p90", 8, 1.3)  # near the version of night 7
    assert confirm(nights, "-kp90") == 0
    gone = "stack pacekit can't be recreated: pacekit==1 is not on the index any more; it has 3, 2"
    assert nights.changes()[number].reason == gone
    nights.project.replace_file("digits_cnn.onnx", b"another model")
    assert confirm(nights) == 0
    row = nights.changes()[number]
    assert (row.status, row.cause) == ("open", None)
    assert "manifests/digits.yaml:10: the graph is not the one that was measured" in row.reason


def test_a_slower_release_is_suspected_and_confirmed_also_after_an_interruption(
    nights: Nights, capfd: pytest.CaptureFixture[str]
) -> None:
    nights.repeat(nights.measure("1"), 14)
    nights.repeat(nights.measure("2"), 6)
    assert ended(words(nights, "-kp50"), signal.SIGINT) == (130, [])
    assert ended(words(nights, "-kp50"), signal.SIGKILL) == (-signal.SIGKILL, [])
    assert not [row for row in nights.changes().values() if row.cause]
    capfd.readouterr()
    assert confirm(nights, "--fail", "-kp50") == 1
    (row,) = [row for row in nights.changes().values() if row.confirmed_by]
    assert (row.first_run, row.cause, row.status) == ("night-015", "software", "confirmed")
    assert row.reason == "REGRESSED in latency, ×1.300 (1.300 to 1.300)"
    output = capfd.readouterr()
    assert "cause: software, by run" in output.out
    assert "confirming 1 of 1 open changes" in output.err


def test_the_printed_command_confirms_a_suspicion_that_one_night_can_not_show(
    nights: Nights, capfd: pytest.CaptureFixture[str]
) -> None:
    first, slower = nights.measure("1"), nights.measure("2")
    for ratio in (0.93, 1.07, 0.94, 1.06, 0.95, 1.05, 0.93, 1.07, 1.0, 1.0):
        nights.repeat(first, 1, ratio=ratio)
    nights.repeat(slower, 1)
    capfd.readouterr()
    assert main([word for word in words(nights, "-kp50") if word != "--confirm"]) == 0
    output = capfd.readouterr().out
    assert "no change" in output
    assert "suspected, worse: digits-cnn pacekit-cpu-b8-single_stream latency_p50" in output
    [line] = [line for line in output.splitlines() if line.startswith("confirm: ")]
    assert main([*shlex.split(line)[2:], "--fail"]) == 1
    [row] = [row for row in nights.changes().values() if row.confirmed_by]
    assert (row.first_run, row.cause, row.status) == ("night-011", "software", "confirmed")
    confirmed = capfd.readouterr()
    assert "suspicion (digits-cnn, latency_p50 ×" in confirmed.err
    assert "1 confirmed" in confirmed.out
    assert "suspected" not in confirmed.out
