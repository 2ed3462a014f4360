"""``mlms compare``: a model's file, two stacks, and pytest's status."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_mlms.cli import compare as command
from pytest_mlms.cli.main import main
from pytest_mlms.manifest import load
from tests.support.project import DIGITS, HANG_GUARD, PREDICTORS, TWIN
from tests.support.waiting import wait_until

assert command  # imported here: numpy can't be imported again once a test has dropped it

LABOUR = ("--mlms-predictors", str(PREDICTORS))
QUICK = ("--pytest=--mlms-duration=0.01", "--pytest=--mlms-budget=600")


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a model's file, as a new user has it."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(DIGITS / "digits_cnn.onnx", tmp_path / "net.onnx")
    return tmp_path


def compare(*words: str) -> int:
    try:
        return main(["compare", *words])
    except SystemExit as end:
        return int(str(end.code))


def test_a_slower_stack_ends_with_the_status_of_pytest_and_leaves_a_manifest() -> None:
    old, new = "here+LABOUR_WORK=1", "here+LABOUR_WORK=9"
    words = ["labour=net.onnx", "--old", old, "--new", new, "--keep", "net.yaml", *LABOUR]
    assert compare(*words, *QUICK) == pytest.ExitCode.TESTS_FAILED
    assert load(Path("net.yaml")).manifest.models[0].name == "labour"
    (results,) = Path("mlms-results").glob("2*/results.jsonl")
    assert '"verdict": "REGRESSED"' in results.read_text()
    assert compare(*words, *QUICK) == pytest.ExitCode.USAGE_ERROR, "the manifest is there"


def test_the_columns_of_a_table_are_said_as_to_init(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["net.onnx", "--old", "here+ONE=1", "--new", "here", "--target", "z", "--without", "b"]
    assert compare(*words) == pytest.ExitCode.USAGE_ERROR
    assert "--target z is a column of a table, and there is no data" in capsys.readouterr().err
    (tmp_path / "data.csv").write_text("a,b\n1,2\n3,4\n")
    assert compare(*words, "--data", "data.csv") == pytest.ExitCode.USAGE_ERROR
    assert "data.csv has no column 'z'; write one of a" in capsys.readouterr().err


def test_ctrl_c_keeps_what_was_measured_and_says_where(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words = ["labour=net.onnx", "--old", "here+LABOUR_WORK=1", "--new", "here", *LABOUR, *QUICK]
    with subprocess.Popen(
        [sys.executable, "-m", "pytest_mlms", "compare", *words],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as run:
        wait_until(lambda: any(tmp_path.glob("mlms-results/2*/items/*/pairs-0.npz")))
        os.killpg(run.pid, signal.SIGINT)  # as a terminal sends it: to all of its processes
        output, errors = run.communicate(timeout=HANG_GUARD)
    assert run.returncode == 130
    kept = "mlms-results/compared/net.yaml"
    told = f"mlms: {kept} is kept, and in mlms-results what was measured"
    assert errors.splitlines()[-2:] == [told, "mlms: interrupted"], output
    assert load(Path(kept)).manifest.models[0].name == "labour"
    lines = Path("mlms-results/latest/results.jsonl").read_text().splitlines()
    types = [json.loads(line)["type"] for line in lines]
    assert types == ["run", "item", "end"]
    item = json.loads(lines[1])
    assert (item["outcome"], item["complete"], len(item["rounds"])) == ("interrupted", False, 1)
    assert list(temporary.iterdir()) == []


def test_two_frameworks_are_compared_by_the_stacks_that_are_for_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("more").mkdir()
    Path("more/twin.py").write_text(TWIN)
    stack = "{framework: NAME, interpreter: current}"
    stacks = [f"{name[:2]}: {stack.replace('NAME', name)}" for name in ("onnxruntime", "twin")]
    Path("stacks.yaml").write_text("\n".join(stacks))
    words = ["net.onnx", "--new", "tw", "--mlms-predictors", "more", *QUICK]
    assert compare(*words, "--old", "here") == pytest.ExitCode.USAGE_ERROR
    message = "here may run onnxruntime and twin; declare which one in stacks.yaml, as in 'own: {fr"
    assert message in capsys.readouterr().err
    compare(*words, "--old", "on", "--keep", "kept.yaml", "--pytest=--mlms-budget=1")
    assert [model.name for model in load(Path("kept.yaml")).manifest.models] == [
        "onnxruntime",
        "twin",
    ]
    text = Path("mlms-results/latest/results.jsonl").read_text()
    (line,) = [json.loads(line) for line in text.splitlines() if '"b8"' in line or "-b8" in line]
    assert (line["framework"], line["stack"]["name"], line["against"]["name"]) == (
        "twin",
        "tw",
        "on",
    )
    assert line["comparisons"][0]["quantity"] == "agreement"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no.onnx", "--old", "here", "--new", "onnxruntime==1.30.0"], "there is no no.onnx"),
        (["net.onnx", "--old", "here", "--new", "here"], "--old and --new are both here"),
        (["net.onnx", "--old", "here", "--new", "onnxrt==1"], "--new: 'onnxrt==1' is neither a"),
        (["net.onnx", "--old", "1.30.0", "--new", "here"], "; for a release write NAME==1.30.0; "),
        (["net.onnx", "--old", "here", "--new", "here+A=1", "--keep", "a.txt"], "ends in .yaml"),
        (
            ["net.onnx", "--old", "here", "--new", "here+A=1", "--keep", "no/a.yaml"],
            "--keep: there is no folder no; make it, or name a file in another one",
        ),
    ],
)
def test_a_mistake_is_told_in_a_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(*words) == pytest.ExitCode.USAGE_ERROR
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_a_framework_that_can_not_open_the_file_is_refused_before_its_stack_is_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # should it be made
    monkeypatch.setenv("PIP_RETRIES", "0")
    words = ["--old", "torch==2.0", "--new", "onnxruntime==1.30.0", "--mlms-cache", "cache"]
    assert compare("net.onnx", *words) == pytest.ExitCode.USAGE_ERROR
    message = "net.onnx: pytorch can't open such a file; name stacks of onnxruntime or opencv or op"
    assert message in capsys.readouterr().err
    assert not Path("cache").exists()


def test_a_baseline_that_was_built_for_an_older_numpy_is_told_what_to_ask_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("more").mkdir()
    Path("more/old.py").write_text("raise ImportError('numpy.core: _ARRAY_API not found')\n")
    words = ["old=net.onnx", "--old", "here", "--new", "here+A=1", "--mlms-predictors", "more"]
    assert compare(*words) == pytest.ExitCode.USAGE_ERROR
    error = capsys.readouterr().err
    assert (
        "; it was built for numpy 1, and there is a newer one; pip install 'numpy<2' there" in error
    )
    assert len(error.splitlines()) == 1


def test_an_index_that_can_not_be_reached_is_told_in_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    words = ["--old", "here", "--new", "onnxruntime==1.29.1", "--mlms-cache", "cache"]
    assert compare("net.onnx", *words) == pytest.ExitCode.USAGE_ERROR
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("mlms: ")]
    assert len(errors) == 1
