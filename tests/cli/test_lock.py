"""Tests of ``mlms lock`` on the results of runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.cli.main import main
from tests.support.locks import ACCURACY, MACHINE, PERFORMANCE, line_of, slower

NEWER = ["numpy==2.4.6", "onnxruntime==1.32.0"]
TRACE = "digits.yaml::test_trace[here-cpu-b8]"
WRONG = {"sha256": "8" * 64, "inputs": 600, "right": 590}

Run = Callable[..., Any]


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Run:
    """A function that runs ``mlms lock`` in a folder, and returns its status and its outputs."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        status = main(["lock", *words])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def measured(*lines: Any) -> None:
    """Leave a run with these lines."""
    folder = Path("mlms-results/latest")
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "results.jsonl").write_text(text)


def git(*words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.invalid"]
    subprocess.run(["git", *identity, *words], check=True, capture_output=True)


def test_a_run_is_written_and_compared(lock: Run) -> None:
    measured(line_of(ACCURACY), line_of(PERFORMANCE))
    assert lock("write") == (0, "mlms.lock: 2 items of the run\n", "")
    before = Path("mlms.lock").read_bytes()
    assert lock("check") == (0, "mlms.lock: 2 items compared, none differs\n", "")
    lock("write")
    assert Path("mlms.lock").read_bytes() == before


def test_another_package_is_a_difference(lock: Run) -> None:
    measured(line_of(ACCURACY))
    lock("write")
    measured(line_of(ACCURACY, NEWER, predictions=WRONG))
    status, out, _ = lock("check")
    assert status == 1
    assert "  onnxruntime  1.20.1 -> 1.32.0\n" in out
    assert "  right answers  594 of 600 -> 590 of 600\n" in out
    assert out.endswith("mlms.lock: 1 item compared, 1 differ\n")
    status, out, _ = lock("check", "--format=json")
    found = json.loads(out)
    assert status == 1
    assert found["stacks"][0]["changes"] == [
        {"name": "onnxruntime", "old": "1.20.1", "new": "1.32.0"}
    ]


def test_a_timing_is_told_and_fails_nothing(lock: Run) -> None:
    measured(line_of(PERFORMANCE))
    lock("write")
    measured(line_of(PERFORMANCE, estimates=slower(1.5)))
    status, out, _ = lock("check")
    assert status == 0
    assert "latency_p50  5.00 ms (4.90 ms to 5.10 ms) -> 7.50 ms" in out
    assert "latency" not in lock("check", "--tolerance=60%")[1]


def test_timings_of_another_class_of_machines_are_said_to_be_ignored(lock: Run) -> None:
    measured(line_of(PERFORMANCE))
    lock("write")
    measured(line_of(PERFORMANCE, estimates=slower(9), machine={**MACHINE, "memory": 2**36}))
    status, out, _ = lock("check")
    assert status == 0
    assert out.startswith("timings on Fast CPU, 2 cores, 64 GiB are not compared: mlms.lock has")
    assert "latency" not in out


def test_items_that_are_not_locked_fail_under_strict(lock: Run) -> None:
    measured(line_of(ACCURACY))
    lock("write")
    lines = [line_of(TRACE), line_of(PERFORMANCE)]
    measured(lines[0])
    lock("write")
    measured(*lines)
    status, out, _ = lock("check")
    assert status == 0
    assert f"not locked: {PERFORMANCE}\nlocked, but not measured: {ACCURACY}\n" in out
    assert lock("check", "--strict")[0] == 1


def test_a_run_of_other_items_is_a_difference(lock: Run) -> None:
    measured(line_of(ACCURACY))
    lock("write")
    measured(line_of(PERFORMANCE))
    status, out, _ = lock("check")
    assert status == 1
    assert "no item of the run is in it; items have the names of their stacks" in out


def test_items_that_failed_are_told_and_keep_their_lines(lock: Run) -> None:
    measured(line_of(ACCURACY))
    lock("write")
    measured(line_of(ACCURACY, NEWER, verdict="FAILED"), line_of(PERFORMANCE))
    status, _, err = lock("write", "--prune")
    assert status == 1
    assert f"mlms: not locked: {ACCURACY}: FAILED\n" in err
    assert "onnxruntime==1.20.1" in Path("mlms.lock").read_text()
    assert lock("write", "--force") == (0, "mlms.lock: 2 items of the run\n", "")
    assert "onnxruntime==1.32.0" in Path("mlms.lock").read_text()


def test_items_that_the_run_does_not_have_are_kept_or_dropped(lock: Run) -> None:
    measured(line_of(ACCURACY))
    lock("write")
    measured(line_of(PERFORMANCE))
    assert lock("write")[1] == "mlms.lock: 1 item of the run, 1 kept\n"
    assert lock("write", "--prune")[1] == "mlms.lock: 1 item of the run, 1 dropped\n"


def test_versions_of_git_are_compared(lock: Run) -> None:
    git("init", "-q")
    measured(line_of(ACCURACY))
    lock("write")
    git("add", "mlms.lock")
    git("commit", "-q", "-m", "lock")
    assert lock("diff") == (0, "nothing changed\n", "")
    measured(line_of(ACCURACY, NEWER))
    lock("write")
    assert lock("diff", "git:HEAD")[1] == (f"here, {ACCURACY}:\n  onnxruntime  1.20.1 -> 1.32.0\n")
    status, _, err = lock("diff", "git:nowhere")
    assert status == 2
    assert "git:nowhere has no mlms.lock: fatal: invalid object name 'nowhere'" in err
    assert "names no revision" in lock("diff", "git:--output=x")[2]


@pytest.mark.parametrize("action", ["write", "check"])
def test_a_run_without_results_is_an_error(lock: Run, action: str) -> None:
    status, _, err = lock(action)
    assert status == 2
    assert "there are no results in mlms-results/latest; run pytest" in err


def test_a_run_of_upgrades_is_an_error(lock: Run) -> None:
    measured(line_of("m.yaml::test_upgrade[a-vs-b]"))
    assert "has upgrades only, which measure two stacks" in lock("write")[2]
    assert not Path("mlms.lock").exists()


def test_a_damaged_lock_is_left_as_it_is(lock: Run) -> None:
    measured(line_of(ACCURACY))
    Path("mlms.lock").write_text("format = 1\n<<<<<<< HEAD\n")
    status, _, err = lock("write")
    assert status == 2
    assert err.startswith("mlms: mlms.lock:2: has a conflict of a merge")
    assert Path("mlms.lock").read_text() == "format = 1\n<<<<<<< HEAD\n"


def test_a_folder_that_cannot_be_written_is_an_error(lock: Run) -> None:
    measured(line_of(ACCURACY))
    status, _, err = lock("write", "--file=nowhere/mlms.lock")
    assert status == 2
    assert "nowhere/mlms.lock can't be written: No such file or directory" in err


ELSEWHERE = [
    "tiny @ https://example.invalid/tiny-1.0-py3-none-any.whl",
    "tiny==1.0 # https://example.invalid/tiny-1.0-py3-none-any.whl",
    "tiny @ git+https://example.invalid/tiny@" + "1" * 40,
    "tiny==1.0 # file:mlms-results/latest/items/tiny-1.0-py3-none-any.whl",
]


@pytest.mark.parametrize("package", ELSEWHERE)
def test_where_packages_come_from_is_locked_only_of_trusted_runs(lock: Run, package: str) -> None:
    measured(line_of(ACCURACY, [*NEWER, package]), line_of(PERFORMANCE))
    status, _, errors = lock("write")
    assert status == 1
    assert f"not locked: {ACCURACY}: results have tiny from " in errors
    assert "declare that in stacks.yaml, or trust the run by --trust-run RUN" in errors
    assert "tiny" not in Path("mlms.lock").read_text()
    assert lock("write", "--trust-run", "latest")[0] == 0
    assert "tiny" in Path("mlms.lock").read_text()


def test_an_image_without_its_whole_id_is_not_locked(lock: Run) -> None:
    measured(line_of(ACCURACY, ["any:1 @ 0123456789ab"]))
    assert "results have the image 0123456789ab" in lock("write")[2]


def test_an_address_that_a_stack_beside_the_manifest_declares_is_locked(lock: Run) -> None:
    Path("manifests").mkdir()
    declared = json.dumps({"mine": {"framework": "onnxruntime", "requirements": [ELSEWHERE[0]]}})
    Path("manifests/stacks.yaml").write_text(declared)
    manifest = {"name": "digits-cnn", "path": "manifests/digits.yaml"}
    measured(line_of(ACCURACY, [*NEWER, ELSEWHERE[0]], manifest=manifest))
    assert lock("write")[0] == 0
    Path("manifests/results.jsonl").touch()  # such a folder may be a stranger's
    assert lock("write")[0] == 1
