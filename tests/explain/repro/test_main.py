"""python repro.zip says what it will do before it does anything, and refuses what is not plain."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pytest

import pytest_mlms
from pytest_mlms.explain.repro.archive import write_bundle
from pytest_mlms.explain.repro.bundle import BundleSide
from tests.support.bundles import PYTHON, bundle_of_matrix
from tests.support.project import HANG_GUARD
from tests.support.waiting import wait_until

EXPECTED = {"kind": "outputs", "quantity": "latency", "verdict": "REGRESSED", "summary": ""}


def written(folder: Path, **changes: Any) -> Path:
    """Write a bundle, and return its path."""
    path = folder / "repro.zip"
    write_bundle(bundle_of_matrix(folder, **changes), path)
    return path


def run(bundle: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a bundle without our packages on the path, and without a terminal."""
    work = bundle.parent / "work"
    work.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-I", str(bundle), *words],
        cwd=work,
        env={"PATH": os.environ["PATH"], "HOME": str(work), "TMPDIR": str(work)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def rewritten(
    bundle: Path, change: Callable[[dict[str, Any]], None], without: str = "none"
) -> Path:
    """Return a copy of a bundle with another record, and without some files."""
    copy = bundle.with_name("changed.zip")
    with zipfile.ZipFile(bundle) as source, zipfile.ZipFile(copy, "w") as target:
        for name in source.namelist():
            if name.startswith(without):
                continue
            content = source.read(name)
            if name == "repro.json":
                record = json.loads(content)
                change(record)
                content = json.dumps(record).encode()
            target.writestr(name, content)
    return copy


def test_without_a_terminal_nothing_is_done_unless_yes_is_said(tmp_path: Path) -> None:
    done = run(written(tmp_path))
    assert done.returncode == 2
    assert "say --yes to go on" in done.stderr
    assert not list((tmp_path / "work").iterdir())


def test_before_anybody_agrees_no_file_is_unpacked(tmp_path: Path) -> None:
    """Nothing of the zip may be written by then: the limit on sizes of files shows that."""
    bundle = written(tmp_path)
    limited = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (0, 0)); "
    code = f"import runpy, sys; {limited}sys.argv = ['repro.zip']; runpy.run_path({str(bundle)!r})"
    done = subprocess.run(
        [sys.executable, "-I", "-B", "-c", code], input="", capture_output=True, text=True
    )
    assert "1. unpack 1." in done.stdout, done.stderr
    assert "runs it on inputs.npz (0.0 MiB);" in done.stdout
    assert "say --yes to go on" in done.stderr


def test_a_folder_to_keep_is_touched_only_once_somebody_agreed(tmp_path: Path) -> None:
    kept = tmp_path / "work" / "kept" / "bundle" / "mine.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    done = run(written(tmp_path), "--keep=kept")
    assert done.returncode == 2, done.stderr
    assert kept.read_text() == "mine"


def test_the_plan_names_packages_index_model_and_what_comes_along(tmp_path: Path) -> None:
    links = BundleSide("new", "skewed", PYTHON, ("a==1",), ("--extra-index-url=https://me:pw@x/",))
    done = run(written(tmp_path, new=links, threads=2), "--plan")
    assert done.returncode == 0, done.stderr
    assert "skewed==1.0" in done.stdout
    assert f"old: skewed 1.0, Python {PYTHON}\n" in done.stdout
    own = f"2. make an environment of pytest_mlms-{pytest_mlms.__version__}-py3-none-any.whl with"
    assert own in done.stdout
    assert "and --extra-index-url=https://***@x/" in done.stdout
    assert "loads model/graph.npy on cpu with 2 threads" in done.stdout
    assert "5. compare the outputs." in done.stdout


def test_another_python_is_told_in_the_plan(tmp_path: Path) -> None:
    done = run(written(tmp_path), "--plan", "--python=3.12")
    assert "old: skewed 1.0, Python 3.12\n" in done.stdout, done.stderr
    assert "new: skewed 2.0, Python 3.12\n" in done.stdout


@pytest.mark.parametrize("version", ["3", "new", "3.12 --yes", "--plan"])
def test_what_is_no_version_of_python_is_wrong_use(tmp_path: Path, version: str) -> None:
    done = run(written(tmp_path), f"--python={version}")
    assert done.returncode == 2
    assert f"{version!r} is no version, such as 3.11 or 3.11.7" in done.stderr


@pytest.mark.parametrize(
    ("ending", "status"), [("exit 1", 1), ("exit 0", 0), ("kill -9 $$", -9), ("exit 3", 3)]
)
def test_a_replay_that_ends_without_a_verdict_is_none(
    tmp_path: Path, ending: str, status: int
) -> None:
    """A traceback ends with 1, too, which says NOT REPRODUCED."""
    main = import_module("pytest_mlms.explain.repro.replay.main")
    python = tmp_path / "python"
    options = argparse.Namespace(side="both", python=None)
    python.write_text(f"#!/bin/sh\n{ending}\n")
    python.chmod(0o755)
    words = (str(python), "repro.zip", str(tmp_path), str(tmp_path), options)
    with pytest.raises(main.CannotRun, match=f"ended with status {status}, before a verdict"):
        main._run_in(*words)
    python.write_text(f'#!/bin/sh\n: > "${main.AGREED}"\n{ending}\n')
    assert main._run_in(*words) == status


RUNS_A_REPLAY = """\
import argparse, os, signal, subprocess, sys
from pytest_mlms.explain.repro.replay import main

signal.signal(signal.SIGINT, signal.default_int_handler)
start = subprocess.Popen._execute_child

def interrupted_start(process, *arguments):
    start(process, *arguments)
    os.kill(os.getpid(), signal.SIGINT)

if sys.argv.pop() == "interrupted":
    subprocess.Popen._execute_child = interrupted_start
options = argparse.Namespace(side="both", python=None)
main._run_in(*sys.argv[1:], options)
"""
# It tells its number and that it was interrupted, and ends by itself in the end.
IGNORES_INTERRUPTS = """\
import os, signal, time
import pytest_mlms.core.lifeline
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
print(os.getpid(), flush=True)
time.sleep(120)
"""


@contextlib.contextmanager
def replaying(python: str, bundle: Path, when: str = "") -> Iterator[subprocess.Popen[str]]:
    """Have a Python replay a bundle, below a process of its own."""
    folder = str(bundle.parent)
    words = [sys.executable, "-c", RUNS_A_REPLAY, python, str(bundle), folder, folder, when]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


def replays_of(bundle: Path) -> list[psutil.Process]:
    """Return the replays of a bundle that a Python runs."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if "--replay" in words and str(bundle) in words:
                found.append(process)
    return found


@pytest.mark.slow
def test_a_second_ctrl_c_ends_what_does_not_end_by_the_first(tmp_path: Path) -> None:
    python = tmp_path / "python"
    script = tmp_path / "ignores.py"
    script.write_text(IGNORES_INTERRUPTS)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}"\n')
    python.chmod(0o755)
    with replaying(str(python), tmp_path / "repro.zip") as process:
        assert process.stdout is not None
        started = int(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(30)
        assert not psutil.pid_exists(started)


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[Path]:
    """The path of a bundle that is waited for without end."""
    path = tmp_path / "repro.zip"
    os.mkfifo(path)
    yield path
    for process in replays_of(path):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def test_a_replay_ends_where_what_started_it_is_killed(endless: Path) -> None:
    with replaying(sys.executable, endless) as process:
        wait_until(lambda: replays_of(endless))
    assert process.returncode == -signal.SIGKILL
    wait_until(lambda: not replays_of(endless))


def test_a_ctrl_c_while_a_replay_starts_ends_it(endless: Path) -> None:
    with replaying(sys.executable, endless, "interrupted") as process:
        assert process.wait(HANG_GUARD)
        assert not replays_of(endless)


def test_a_python_that_pytest_mlms_has_not_is_told_with_what_to_do(tmp_path: Path) -> None:
    code = (
        "import runpy, sys; sys.version_info = (3, 9, 1);"
        f"sys.argv = ['r', '--yes']; runpy.run_path({str(written(tmp_path))!r})"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "this is Python 3.9, and the replay needs 3.10 or later; run it by such a one" in (
        done.stderr
    )


def test_a_bundle_without_the_wheel_of_pytest_mlms_is_refused(tmp_path: Path) -> None:
    bundle = rewritten(written(tmp_path), lambda record: None, without="own/")
    done = run(bundle, "--yes")
    assert done.returncode == 2
    assert "it has not one wheel of pytest-mlms, but 0" in done.stderr


def test_a_record_of_a_later_format_is_refused(tmp_path: Path) -> None:
    done = run(rewritten(written(tmp_path), lambda record: record.update(format=3)), "--yes")
    assert done.returncode == 2
    assert "is of a later format (3)" in done.stderr


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("predictor", "../../evil"),
        ("files", {"graph": "../outside"}),
        ("inputs", "/etc/passwd"),
        ("new", {"name": "n", "framework": "f", "python": "3.11", "requirements": ["-r x"]}),
        ("threads", "many"),
        ("expected", {}),
        ("expected", {**EXPECTED, "calls": 2.5}),
        ("expected", {**EXPECTED, "calls": 10**9}),
        ("expected", {**EXPECTED, "kind": "ratio", "tolerance": -1}),
        ("expected", {**EXPECTED, "rtol": float("nan")}),
        ("expected", {**EXPECTED, "atol": 10**400}),
        ("expected", {**EXPECTED, "rules": {"y": {"share": float("inf")}}}),
    ],
)
def test_a_malformed_record_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    bundle = rewritten(written(tmp_path), lambda record: record.update({key: value}))
    done = run(bundle, "--yes")
    assert done.returncode == 2
    assert "repro.json is malformed" in done.stderr
    assert "Traceback" not in done.stderr


def test_pip_gets_no_option_but_addresses(tmp_path: Path) -> None:
    def change(record: dict[str, Any]) -> None:
        record["new"]["options"] = ["--target=/"]

    done = run(rewritten(written(tmp_path), change), "--yes")
    assert done.returncode == 2
    assert "an option of pip is '--target=/'" in done.stderr


def test_a_title_can_not_command_a_terminal(tmp_path: Path) -> None:
    done = run(written(tmp_path, title="a\x1b[2Jb\nc"), "--plan")
    assert done.stdout.startswith("a [2Jb c\n")


def test_a_member_outside_of_the_folder_is_refused_before_anything_runs(tmp_path: Path) -> None:
    bundle = written(tmp_path)
    with zipfile.ZipFile(bundle, "a") as archive:
        archive.writestr("../outside.py", "x")
    done = run(bundle, "--yes")
    assert done.returncode == 2
    assert "would be outside of the folder" in done.stderr
    assert not list(tmp_path.rglob("outside.py"))


def test_the_replay_needs_the_standard_library_alone(tmp_path: Path) -> None:
    bundle = written(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(bundle)!r}); import replay.main;"
        "print(*(set(name.partition('.')[0] for name in sys.modules) - sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert set(done.stdout.split()) <= {"replay", "__main__"}, done.stderr


def test_a_terminal_that_lacks_a_character_shows_a_question_mark(tmp_path: Path) -> None:
    bundle = written(tmp_path, title="×2")
    done = subprocess.run(
        [sys.executable, str(bundle), "--plan"],
        env={"PATH": os.environ["PATH"], "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("?2\n")
