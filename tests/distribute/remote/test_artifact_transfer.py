"""What travels to a worker with a folder of its own, and what comes back.

Without ssh, as xdist can do that too.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_mlms.distribute.messages import Link
from pytest_mlms.distribute.remote.artifact_transfer import ArtifactServer
from pytest_mlms.distribute.remote.result_transfer import ResultReceiver, ResultSender
from pytest_mlms.distribute.remote.workspace_sync import _small_files
from tests.support.project import Project, copy_digits


class Wire:
    """A channel whose two ends are in this process."""

    def __init__(self) -> None:
        self.other: Wire
        self.callback: Any = None

    def setcallback(self, callback: Any, endmarker: object) -> None:
        self.callback = callback

    def send(self, message: Any) -> None:
        self.other.callback(message)


def wires() -> tuple[Wire, Wire]:
    one, two = Wire(), Wire()
    one.other, two.other = two, one
    return one, two


@pytest.fixture
def elsewhere(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLMS_CACHE", str(tmp_path / "cache"))
    return f"--tx=popen//chdir={tmp_path / 'elsewhere'}"


def test_models_travel_once_and_what_was_measured_comes_back(
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
        assert all(
            (run / path).stat().st_size for path in [*item["artifacts"].values(), *item["logs"]]
        )
    assert not [
        path for path in (tmp_path / "elsewhere").rglob("*.npz") if "cache" not in path.parts
    ]
    model = (project.folder / "digits_cnn.onnx").read_bytes()
    digest = hashlib.sha256(model).hexdigest()
    here = tmp_path / "cache" / "travelled" / digest[:2] / digest / "digits_cnn.onnx"
    assert here.read_bytes() == model
    made = here.stat().st_mtime_ns
    assert project.run(*arguments).ret == 0
    assert here.stat().st_mtime_ns == made


@pytest.mark.slow
def test_what_is_removed_here_is_removed_there(project: Project, elsewhere: str) -> None:
    arguments = [elsewhere, "--dist=load", "-konnxruntime and accuracy"]
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


@pytest.mark.slow
def test_two_runs_of_one_folder_on_one_host_do_not_disturb_each_other(
    project: Project, elsewhere: str, tmp_path: Path
) -> None:
    more, test = project.folder / "more.yaml", project.path / "test_waits.py"
    more.write_text(project.manifest.read_text())
    test.write_text(WAITS.replace("HERE", str(project.path)))
    options = [
        "--mlms-manifests=manifests",
        "--mlms-worker-timeout=900",
        elsewhere,
        "--dist=load",
        "-ktest_wait",
    ]
    first = project.pytester.popen([sys.executable, "-m", "pytest", *options, test.name])
    deadline = time.monotonic() + 600
    while not (project.path / "waiting").exists():
        assert first.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    more.unlink()
    test.unlink()
    project.edit("top1: {min: 0.95}", "top1: {min: 0.9}")
    assert project.run(elsewhere, "--dist=load", "-konnxruntime and accuracy").ret == 0
    (project.path / "go").touch()
    assert first.wait(600) == 0
    runs = tmp_path / "elsewhere" / "mlms-mirror" / "runs"
    assert len([path for path in runs.iterdir() if path.is_dir()]) == 2
    assert project.run(elsewhere, "--dist=load", "-konnxruntime and accuracy").ret == 0
    (left,) = [path for path in runs.iterdir() if path.is_dir()]  # what nobody uses is removed
    assert not [path for path in left.rglob("*") if path.suffix in (".log", ".npz")]  # it came back


def test_a_path_or_a_node_id_as_an_argument_means_the_same_elsewhere(
    project: Project, elsewhere: str
) -> None:
    result = project.run(
        elsewhere, "--dist=load", "manifests/digits.yaml::test_accuracy[onnxruntime-cpu]"
    )
    assert result.ret == 0
    assert [item["nodeid"] for item in project.items()] == [
        "manifests/digits.yaml::test_accuracy[onnxruntime-cpu]"
    ]


@pytest.mark.slow
def test_manifests_and_files_outside_of_the_rootdir_travel_too(
    project: Project, elsewhere: str, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    project.folder.rename(outside)
    arguments = [
        f"--mlms-manifests={outside}",
        elsewhere,
        "--dist=load",
        "-konnxruntime and accuracy",
    ]
    result = project.pytester.runpytest_subprocess(*arguments)
    assert result.ret == 0
    assert len(project.items()) == 1


def test_a_model_that_is_missing_on_the_controller_is_an_error_with_its_line(
    project: Project, elsewhere: str
) -> None:
    (project.folder / "digits_cnn.onnx").unlink()
    assert project.run(elsewhere, "--dist=load", "-konnxruntime and accuracy").ret == 1
    assert "can't be had from the controller: on the controller: " in project.items()[0]["message"]
    assert "manifests/digits.yaml:" in project.items()[0]["message"]


def test_a_file_that_is_damaged_on_its_way_is_lost_and_says_so(tmp_path: Path) -> None:
    here, there = wires()
    receiver = ResultReceiver(tmp_path / "run")
    receiver.link = Link(here, receiver.handlers)
    link = Link(there, {})
    link.send("file", "items/a/x.npz")
    link.send("data", b"half")
    link.send("end", "0" * 64, "")
    link.send("file", "agents/log")
    link.send("end", "", "could not be read on its host: no such file")
    result = {"artifacts": {"x.npz": "items/a/x.npz"}, "artifacts_lost": {}, "logs": ["agents/log"]}
    receiver.complete(result)
    lost = {
        "x.npz": "it was damaged on its way",
        "agents/log": "could not be read on its host: no such file",
    }
    assert result == {"artifacts": {}, "artifacts_lost": lost, "logs": []}
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../../outside", "items/../../b", "results.jsonl", "items/a\0b", ""]
)
def test_no_worker_writes_outside_of_the_items_of_the_run(tmp_path: Path, path: str) -> None:
    receiver = ResultReceiver(tmp_path / "run")
    here, there = wires()
    receiver.link = Link(here, receiver.handlers)
    link = Link(there, {})
    link.send("file", path)
    link.send("data", b"x")
    link.send("end", hashlib.sha256(b"x").hexdigest(), "")
    assert receiver.lost == {path: "its path leads out of the items of the run"}
    assert not list(tmp_path.rglob("*"))


def test_files_come_back_whole_in_chunks_and_are_removed_there(tmp_path: Path) -> None:
    here, there = wires()
    receiver = ResultReceiver(tmp_path / "run")
    receiver.link = Link(here, receiver.handlers)
    away = tmp_path / "away"
    sender = ResultSender(away)
    sender.link = Link(there, sender.handlers)
    (away / "items").mkdir(parents=True)
    data = bytes(range(256)) * 5000
    (away / "items" / "x").write_bytes(data)
    (away / "agents").mkdir()
    log = away / "agents" / "log"
    log.write_text("one\n")
    sender.send({"artifacts": {"x": "items/x"}, "logs": ["agents/log"]})
    assert (tmp_path / "run" / "items" / "x").read_bytes() == data
    assert not (away / "items" / "x").exists()
    assert log.exists()  # it may grow
    log.write_text("one\ntwo\n")
    sender.send({"logs": ["agents/log"]})
    log.write_text("one\ntwo\nat the end\n")
    sender.finish()
    assert (tmp_path / "run" / "agents" / "log").read_text() == "one\ntwo\nat the end\n"
    assert not log.exists()
    assert receiver.lost == {}


def test_what_did_not_arrive_whole_is_not_removed_there(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("no folder")
    here, there = wires()
    receiver = ResultReceiver(tmp_path / "run")
    receiver.link = Link(here, receiver.handlers)
    sender = ResultSender(tmp_path / "away")
    sender.link = Link(there, sender.handlers)
    (tmp_path / "away" / "items").mkdir(parents=True)
    (tmp_path / "away" / "items" / "x").write_text("measured")
    sender.send({"artifacts": {"x": "items/x"}})
    assert "make room" in receiver.lost["items/x"]
    assert (tmp_path / "away" / "items" / "x").exists()


def test_a_worker_gets_nothing_that_a_manifest_names_which_is_not_of_the_run(
    tmp_path: Path,
) -> None:
    manifest = copy_digits(tmp_path / "manifests")
    mirror: Any = SimpleNamespace(original=lambda place: tmp_path / place, files={})
    here, there = wires()
    courier = ArtifactServer(mirror)
    courier.link = Link(here, courier.handlers)
    answers: list[tuple[str, ...]] = []
    answered = threading.Event()

    def answer(*fields: str) -> None:
        answers.append(fields)
        answered.set()

    link = Link(there, {"have": answer, "refused": answer})
    for known in (False, True):
        mirror.files = {"manifests/digits.yaml": b""} if known else {}
        answered.clear()
        link.send("want", "manifests/digits.yaml", "digits_cnn.onnx")
        assert answered.wait(600)
    assert answers[0] == ("manifests/digits.yaml names no file digits_cnn.onnx",)
    assert answers[1] == (
        hashlib.sha256((manifest.parent / "digits_cnn.onnx").read_bytes()).hexdigest(),
        "digits_cnn.onnx",
    )


def test_what_can_not_be_read_and_environments_stay_here(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("")
    (tmp_path / ".#b.yaml").symlink_to(tmp_path / "somebody@edits")
    (tmp_path / "env" / "lib").mkdir(parents=True)
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    (tmp_path / "env" / "lib" / "c.py").write_text("")
    assert list(_small_files(tmp_path)) == [tmp_path / "a.yaml"]
