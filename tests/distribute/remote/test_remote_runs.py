"""Runs over a worker with a folder of its own, which transfers files as over ssh."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.project import Project

SELECT_ACCURACY = "-konnxruntime and accuracy"


@pytest.fixture
def elsewhere(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLMS_CACHE", str(tmp_path / "cache"))
    return f"--tx=popen//chdir={tmp_path / 'elsewhere'}"


def test_a_model_is_sent_once_and_what_was_measured_comes_back(
    project: Project, elsewhere: str, tmp_path: Path
) -> None:
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.set_thresholds()
    arguments = [elsewhere, "--dist=load", "-konnxruntime and (accuracy or b8-offline)"]
    assert project.run(*arguments).ret == 0
    run = project.path / "mlms-results" / "latest"
    items = project.items()
    assert len(items) == 2
    for item in items:
        assert item["artifacts"]
        for path in [*item["artifacts"].values(), *item["logs"]]:
            assert (run / path).stat().st_size
    for path in (tmp_path / "elsewhere").rglob("*.npz"):
        assert "cache" in path.parts
    model = (project.folder / "digits_cnn.onnx").read_bytes()
    digest = hashlib.sha256(model).hexdigest()
    folder = tmp_path / "cache" / "travelled" / digest[:2] / digest
    cached = folder / "digits_cnn.onnx"
    assert cached.read_bytes() == model
    written = cached.stat().st_mtime_ns
    assert project.run(elsewhere, "--dist=load", SELECT_ACCURACY).ret == 0
    assert cached.stat().st_mtime_ns == written


@pytest.mark.slow
def test_arrivals_of_any_size_are_sent(project: Project, elsewhere: str) -> None:
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [1]")
    project.edit("[single_stream, offline]", "[{replay: {arrivals: trace.csv}}]")
    note = "x" * 10_000  # a further column, so that the file is larger than what workspaces get
    rows = "".join(f"{number / 1000},{note}\n" for number in range(200))
    (project.folder / "trace.csv").write_text(rows)
    result = project.run(elsewhere, "--dist=load", "-konnxruntime and replay")
    assert result.ret == 0
    (item,) = project.items()
    assert item["processes"][0]["load"]["queries"] == 200


@pytest.mark.slow
def test_a_manifest_that_is_removed_here_is_removed_there(project: Project, elsewhere: str) -> None:
    arguments = [elsewhere, "--dist=load", SELECT_ACCURACY]
    (project.folder / "more.yaml").write_text(project.manifest.read_text())
    assert project.run(*arguments).ret == 0
    assert len(project.items()) == 2
    (project.folder / "more.yaml").unlink()
    assert project.run(*arguments).ret == 0
    assert len(project.items()) == 1


WAITS = """
import os, time, pytest

@pytest.mark.mlms(manifest="manifests/more.yaml")
def test_wait(mlms_case):
    open("HERE/waiting", "w").close()
    while not os.path.exists("HERE/go"):
        time.sleep(0.05)
    assert os.path.exists("manifests/more.yaml")
    assert "0.95" in open("manifests/digits.yaml").read()
"""


def folders_in(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()]


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 600
    while not path.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_two_runs_of_one_folder_on_one_host_do_not_disturb_each_other(
    project: Project, elsewhere: str, tmp_path: Path
) -> None:
    more = project.folder / "more.yaml"
    more.write_text(project.manifest.read_text())
    test = project.path / "test_waits.py"
    test.write_text(WAITS.replace("HERE", str(project.path)))
    options = ["--mlms-manifests=manifests", "--mlms-worker-timeout=900", "-ktest_wait"]
    command = [sys.executable, "-m", "pytest", *options, elsewhere, "--dist=load", test.name]
    first = project.pytester.popen(command)
    wait_for(project.path / "waiting", first)
    more.unlink()
    test.unlink()
    project.edit("top1: {min: 0.95}", "top1: {min: 0.9}")
    assert project.run(elsewhere, "--dist=load", SELECT_ACCURACY).ret == 0
    (project.path / "go").touch()
    assert first.wait(600) == 0
    runs = tmp_path / "elsewhere" / "mlms-mirror" / "runs"
    assert len(folders_in(runs)) == 2
    assert project.run(elsewhere, "--dist=load", SELECT_ACCURACY).ret == 0
    (left,) = folders_in(runs)
    for path in left.rglob("*"):
        assert path.suffix not in (".log", ".npz")  # they came back


def test_a_node_id_as_an_argument_means_the_same_there(project: Project, elsewhere: str) -> None:
    nodeid = "manifests/digits.yaml::test_accuracy[onnxruntime-cpu]"
    assert project.run(elsewhere, "--dist=load", nodeid).ret == 0
    (item,) = project.items()
    assert item["nodeid"] == nodeid


@pytest.mark.slow
def test_manifests_outside_of_the_rootdir_are_sent_too(
    project: Project, elsewhere: str, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    project.folder.rename(outside)
    arguments = [f"--mlms-manifests={outside}", elsewhere, "--dist=load", SELECT_ACCURACY]
    result = project.pytester.runpytest_subprocess(*arguments)
    assert result.ret == 0
    (item,) = project.items()
    file = os.path.relpath(outside / "digits.yaml", project.path)
    assert item["nodeid"] == f"{file}::test_accuracy[onnxruntime-cpu]"


def test_a_model_that_is_missing_on_the_controller_is_an_error_with_its_line(
    project: Project, elsewhere: str
) -> None:
    (project.folder / "digits_cnn.onnx").unlink()
    assert project.run(elsewhere, "--dist=load", SELECT_ACCURACY).ret == 1
    message = project.items()[0]["message"]
    assert "can't be fetched from the controller: on the controller: " in message
    assert "manifests/digits.yaml:" in message


SENDS_NO_RESULT = """
import pytest

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if hasattr(report, "mlms"):
        report.mlms = {"nodeid": 5, "message": 7}
    return report
"""


def test_a_worker_that_sends_no_result_makes_its_item_an_error(
    project: Project, elsewhere: str
) -> None:
    project.pytester.makeconftest(SENDS_NO_RESULT)
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    result = project.run(elsewhere, "--dist=load", SELECT_ACCURACY)
    assert result.ret == 1
    assert "INTERNALERROR" not in str(result.stdout)
    result.stdout.fnmatch_lines("*sent something else than its result: *")
    assert [item["verdict"] for item in project.items()] == ["ERROR"]


SENDS_FALSE_EVENTS = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    plugins = item.config.pluginmanager.get_plugins()
    (worker,) = [each for each in plugins if hasattr(each, "nextitem_index")]
    worker.sendevent(*EVENT)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "event",
    [
        '"runtest_protocol_complete", item_index=worker.item_index, duration=0.1',
        '"teardownreport", data={}',
    ],
)
def test_a_worker_that_sends_a_false_event_is_lost_and_its_item_an_error(
    project: Project, elsewhere: str, event: str
) -> None:
    """The run ended with an internal error, or passed without the item."""
    project.pytester.makeconftest(SENDS_FALSE_EVENTS.replace("*EVENT", event))
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    result = project.run(elsewhere, "--dist=load", SELECT_ACCURACY)
    assert result.ret == 1
    assert "INTERNALERROR" not in str(result.stdout)
    result.stdout.fnmatch_lines("*is given up: it sent *")
    assert [item["verdict"] for item in project.items()] == ["ERROR"]
