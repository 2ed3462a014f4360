"""Agents in containers, in an image made from this machine's own files: no registry is asked."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.agent.process import start_agent
from pytest_mlms.errors import AgentError, StackError, Unavailable
from pytest_mlms.records import Launch, Stack
from pytest_mlms.stacks import containers
from pytest_mlms.stacks.containers import find_engine
from pytest_mlms.stacks.launch import prepare
from tests.support.project import PREDICTORS, Project

IMAGE = f"localhost/pytest-mlms-test-{os.getpid()}:1"  # another worker has its own
IMAGES = np.zeros((2, 1, 8, 8), np.float32)


def libraries(path: Path) -> set[str]:
    done = subprocess.run(["ldd", path], capture_output=True, text=True)
    return {found for found in re.findall(r"(/\S+)", done.stdout) if os.path.exists(found)}


def fill(root: Path) -> None:
    """Copy this interpreter, its standard library, numpy, and the system's libraries that these
    need.
    """

    def put(path: Path | str) -> None:
        target = root / str(path).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(path), target)

    interpreter, standard = (
        Path(os.path.realpath(sys.executable)),
        Path(sysconfig.get_path("stdlib")),
    )
    put(interpreter)
    unneeded = (
        "test",
        "tests",
        "site-packages",
        "dist-packages",
        "__pycache__",
        "idlelib",
        "ensurepip",
        "config-*",
    )
    shutil.copytree(
        standard, root / str(standard).lstrip("/"), ignore=shutil.ignore_patterns(*unneeded)
    )
    for folder in Path(np.__file__).parent.parent.glob("numpy*"):
        target = root / str(standard).lstrip("/") / "site-packages" / folder.name
        shutil.copytree(folder, target, ignore=shutil.ignore_patterns("tests", "__pycache__"))
    for path in set().union(
        libraries(interpreter), *(libraries(path) for path in root.rglob("*.so*"))
    ):
        if not Path(path).is_relative_to(root):
            put(path)
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    (root / "usr/bin/python3").symlink_to(interpreter)
    for name in ("tmp", "proc", "sys", "dev", "etc"):
        (root / name).mkdir(exist_ok=True)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    name = find_engine()
    if name is None:
        pytest.skip("neither podman nor docker answers on this machine")
    root = tmp_path_factory.mktemp("image")
    fill(root)
    with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
        subprocess.run(
            [name, "import", "-", IMAGE], stdin=tar.stdout, check=True, capture_output=True
        )
    yield name
    subprocess.run([name, "image", "rm", "--force", IMAGE], capture_output=True)


def boxed(**facts: object) -> Stack:
    return Stack("boxed", "faulty", container=IMAGE, **facts)  # type: ignore[arg-type]


def running(engine: str, pid: int = os.getpid()) -> list[str]:
    """Return the containers of the agents that a process started.

    Others on this machine may have some too.
    """
    said = subprocess.run(
        [engine, "ps", "--all"], capture_output=True, text=True, check=True
    ).stdout
    return [line for line in said.splitlines() if f"mlms-agent-{pid}-" in line]


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    (tmp_path / "graph").write_text(json.dumps({"answer": 4}))
    return tmp_path / "graph"


def launch(stack: Stack, graph: Path) -> Launch:
    return prepare(stack, graph.parent / "cache", mounts=[PREDICTORS, graph])


@pytest.mark.slow
def test_an_agent_in_a_container_loads_and_computes(engine: str, graph: Path) -> None:
    made = launch(boxed(), graph)
    agent = start_agent(made, PREDICTORS / "faulty.py", graph.parent / "log", 300)
    hello = agent.request("hello").facts
    agent.request("load", {"files": {"graph": str(graph)}, "device": "cpu", "threads": None})
    assert agent.request("predict", arrays=[("image", IMAGES)]).arrays["logits"].argmax(
        axis=1
    ).tolist() == [4, 4]
    assert len(running(engine)) == 1
    agent.close()
    assert not running(engine)
    assert hello["executable"] == "/usr/bin/python3"
    assert made.lock[0].startswith(f"{IMAGE} @ ")


SPY = """
import os, socket
from mlms_predictors import Loaded, Tensor

def versions():
    facts = dict(os.environ)
    try:
        socket.create_connection(("192.0.2.1", 80), 2)
        facts["network"] = "connected"
    except OSError as error:
        facts["network"] = str(error)
    try:
        open(os.path.join(os.path.dirname(__file__), "written"), "w")
        facts["write"] = "written"
    except OSError as error:
        facts["write"] = error.strerror
    return facts

def devices():
    return ["cpu"]
"""


@pytest.mark.slow
def test_a_container_has_no_network_writes_nothing_and_sees_only_its_environment(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "1")
    (tmp_path / "own").mkdir()
    spy = tmp_path / "own" / "spy.py"
    spy.write_text(SPY)
    made = prepare(boxed(env=(("OWN", "x y"),), threads=2), tmp_path, mounts=[spy.parent])
    agent = start_agent(made, spy, tmp_path / "log", 300)
    try:
        seen = agent.request("hello").facts["versions"]
    finally:
        agent.close()
    assert seen["network"] == "[Errno 101] Network is unreachable"
    assert seen["write"] == "Read-only file system"
    assert "SECRET_OF_THE_HOST" not in seen
    assert (seen["OWN"], seen["OMP_NUM_THREADS"]) == ("x y", "2")


@pytest.mark.slow
def test_a_container_that_hangs_is_ended_with_its_agent(engine: str, tmp_path: Path) -> None:
    graph = tmp_path / "graph"
    graph.write_text(json.dumps({"seconds": 600}))
    agent = start_agent(launch(boxed(), graph), PREDICTORS / "faulty.py", tmp_path / "log", 300)
    agent.request("hello")
    agent.request("load", {"files": {"graph": str(graph)}, "device": "cpu", "threads": None})
    hasty = type(agent)(agent.process, agent.channel, agent.log, 1, agent.end)
    with pytest.raises(AgentError, match="gave no reply to 'predict' in 1 s and was killed"):
        hasty.request("predict", arrays=[("image", IMAGES)])
    assert not running(engine)


ALONE = """
import sys
from pathlib import Path
import numpy
from pytest_mlms.agent.process import start_agent
from pytest_mlms.stacks.launch import prepare
from pytest_mlms.records import Stack
image, predictor, graph = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
launch = prepare(Stack("boxed", "faulty", container=image), graph.parent, mounts=[predictor.parent, graph])
agent = start_agent(launch, predictor, graph.parent / "log", 600)
agent.request("hello")
agent.request("load", {"files": {"graph": str(graph)}, "device": "cpu", "threads": None})
print("loaded", flush=True)
agent.request("predict", arrays=[("image", numpy.zeros((1, 1, 8, 8), "f4"))])
"""


@pytest.mark.slow
def test_a_container_ends_when_pytest_is_killed_in_mid_request(engine: str, tmp_path: Path) -> None:
    (tmp_path / "graph").write_text(json.dumps({"seconds": 600}))
    command = [
        sys.executable,
        "-c",
        ALONE,
        IMAGE,
        str(PREDICTORS / "faulty.py"),
        str(tmp_path / "graph"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == "loaded\n"
        assert len(running(engine, parent.pid)) == 1
        parent.kill()
    end = time.monotonic() + 600
    while running(engine, parent.pid) and time.monotonic() < end:
        time.sleep(0.2)
    assert not running(engine, parent.pid)


@pytest.mark.slow
def test_an_image_that_is_not_there_is_an_error_with_the_engines_last_words(
    engine: str, tmp_path: Path
) -> None:
    absent = Stack("boxed", "faulty", container="localhost/pytest-mlms-none:1")
    with pytest.raises(
        StackError,
        match=f"stack boxed: {engine} has no image localhost/pytest-mlms-none:1 and can't",
    ):
        prepare(absent, tmp_path)


@pytest.mark.slow
def test_a_python_that_the_image_lacks_is_an_error(engine: str, tmp_path: Path) -> None:
    with pytest.raises(StackError, match=f"stack boxed: {engine} can't run python9 of image"):
        prepare(boxed(interpreter="python9"), tmp_path)


@pytest.mark.slow
def test_a_manifest_runs_on_a_container(engine: str, project: Project) -> None:
    project.use_faulty(answer=3)
    (project.path / "stacks.yaml").write_text(
        f"boxed: {{framework: faulty, container: '{IMAGE}'}}\n"
    )
    project.run(
        "--mlms-stack=boxed", "-k", "accuracy or performance", timeout=3600
    ).assert_outcomes(passed=2)
    accuracy = project.items()[0]
    assert accuracy["case"] == "boxed-cpu"
    assert accuracy["launch"]["lock"][0].startswith(IMAGE)


def test_without_an_engine_a_container_is_lacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    containers._answers.cache_clear()
    try:
        with pytest.raises(Unavailable, match="neither podman nor docker answers; install podman"):
            prepare(boxed(), tmp_path)
    finally:
        containers._answers.cache_clear()


def test_a_client_without_its_service_is_no_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    containers._answers.cache_clear()
    try:
        assert find_engine() is None
    finally:
        containers._answers.cache_clear()
