"""python repro.zip says what it will do before it does anything, and refuses what is not plain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.explain.repro.archive import write_bundle
from pytest_mlms.explain.repro.bundle import BundleSide
from tests.support.bundles import PYTHON, bundle_of_matrix, side

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


def rewritten(bundle: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Return a copy of a bundle with another record."""
    copy = bundle.with_name("changed.zip")
    with zipfile.ZipFile(bundle) as source, zipfile.ZipFile(copy, "w") as target:
        for name in source.namelist():
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
    assert "1. unpack 0." in done.stdout, done.stderr
    assert "x float32[2,3]" in done.stdout
    assert "say --yes to go on" in done.stderr


def test_inputs_that_are_large_are_told_by_their_size(tmp_path: Path) -> None:
    done = run(written(tmp_path, inputs={"x": np.zeros((17, 1 << 20), np.float32)}), "--plan")
    assert "runs it on inputs.npz (68.0 MiB);" in done.stdout, done.stderr


def test_a_folder_to_keep_is_touched_only_once_somebody_agreed(tmp_path: Path) -> None:
    kept = tmp_path / "work" / "kept" / "bundle" / "mine.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    done = run(written(tmp_path), "--keep=kept")
    assert done.returncode == 2, done.stderr
    assert kept.read_text() == "mine"


def test_the_plan_names_packages_interpreter_index_and_model(tmp_path: Path) -> None:
    links = BundleSide("new", "skewed", PYTHON, ("a==1",), ("--extra-index-url=https://me:pw@x/",))
    done = run(written(tmp_path, new=links, threads=2), "--plan")
    assert done.returncode == 0, done.stderr
    assert "skewed==1.0" in done.stdout
    assert f"old: skewed 1.0, Python {PYTHON} (" in done.stdout
    assert "and --extra-index-url=https://***@x/" in done.stdout
    assert "loads model/graph.npy on cpu with 2 threads" in done.stdout
    assert "x float32[2,3]" in done.stdout
    assert "compare the outputs" in done.stdout


def test_a_python_that_is_not_there_is_named(tmp_path: Path) -> None:
    old = side("1.0")._replace(python="3.3.1")
    done = run(written(tmp_path, old=old))
    assert done.returncode == 2
    assert "there is no Python 3.3 here" in done.stderr
    assert "--python" in done.stderr
    assert (
        "Python 3.3" not in run(written(tmp_path, old=old), "--plan", f"--python={PYTHON}").stderr
    )


@pytest.mark.slow
def test_the_last_lines_of_pip_say_what_it_lacks(tmp_path: Path) -> None:
    missing = BundleSide("new", "skewed", PYTHON, ("no-such-package-of-ours==0.0.0",))
    done = run(written(tmp_path, old=None, new=missing), "--yes")
    assert done.returncode == 2
    assert "installing the packages of new ended with status 1" in done.stderr
    assert "no-such-package-of-ours" in done.stderr
    assert not list((tmp_path / "work").glob("mlms-*"))


def test_a_record_of_a_later_format_is_refused(tmp_path: Path) -> None:
    done = run(rewritten(written(tmp_path), lambda record: record.update(format=2)), "--yes")
    assert done.returncode == 2
    assert "is of a later format (2)" in done.stderr


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
