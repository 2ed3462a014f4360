"""Agents in containers, in an image made from this machine's own files: no registry is asked."""

from __future__ import annotations

import contextlib
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
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.errors import AgentError, StackError, Unavailable
from pytest_mlms.core.records import Launch, Stack
from pytest_mlms.measure.agent.process import Agent, start_agent
from pytest_mlms.provide.stacks import containers
from pytest_mlms.provide.stacks.containers import find_engine
from pytest_mlms.provide.stacks.launch import prepare
from tests.support.project import PREDICTORS, Project

HANG_GUARD = 300.0  # seconds
IMAGE = f"localhost/pytest-mlms-test-{os.getpid()}:1"  # another worker has its own
IMAGES = np.zeros((2, 1, 8, 8), np.float32)
FAULTY = PREDICTORS / "faulty.py"
UNNEEDED = (
    "test",
    "tests",
    "site-packages",
    "dist-packages",
    "__pycache__",
    "idlelib",
    "ensurepip",
    "config-*",
)


def libraries_of(path: Path) -> set[str]:
    """Return the libraries that a program or a library loads."""
    done = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
    found = re.findall(r"(/\S+)", done.stdout)
    return {library for library in found if os.path.exists(library)}


class ImageRoot:
    """The files of an image: this interpreter, its standard library, numpy, system libraries."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        interpreter = Path(os.path.realpath(sys.executable))
        self._copy(interpreter)
        self._copy_packages(Path(sysconfig.get_path("stdlib")))
        needed = libraries_of(interpreter)
        for library in self.path.rglob("*.so*"):
            needed |= libraries_of(library)
        for path in needed:
            if not Path(path).is_relative_to(self.path):
                self._copy(Path(path))
        programs = self.path / "usr" / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        (programs / "python3").symlink_to(interpreter)
        for name in ("tmp", "proc", "sys", "dev", "etc"):
            (self.path / name).mkdir(exist_ok=True)

    def _copy(self, path: Path) -> None:
        target = self._inside(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(path), target)

    def _copy_packages(self, standard: Path) -> None:
        unneeded = shutil.ignore_patterns(*UNNEEDED)
        shutil.copytree(standard, self._inside(standard), ignore=unneeded)
        site_packages = self._inside(standard) / "site-packages"
        tests = shutil.ignore_patterns("tests", "__pycache__")
        for folder in Path(np.__file__).parent.parent.glob("numpy*"):
            shutil.copytree(folder, site_packages / folder.name, ignore=tests)

    def _inside(self, path: Path) -> Path:
        return self.path / str(path).lstrip("/")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of an engine that has IMAGE."""
    name = find_engine()
    if name is None:
        pytest.skip("neither podman nor docker answers on this machine")
    root = tmp_path_factory.mktemp("image")
    ImageRoot(root).fill()
    with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
        command = [name, "import", "-", IMAGE]
        subprocess.run(command, stdin=tar.stdout, check=True, capture_output=True)
    yield name
    subprocess.run([name, "image", "rm", "--force", IMAGE], capture_output=True, check=False)


def boxed(**fields: Any) -> Stack:
    return Stack("boxed", "faulty", container=IMAGE, **fields)


def running(engine: str, pid: int = os.getpid()) -> list[str]:
    """Return the containers of the agents that a process started, not those of others."""
    command = [engine, "ps", "--all"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    name = f"mlms-agent-{pid}-"
    return [line for line in done.stdout.splitlines() if name in line]


@contextlib.contextmanager
def started(launch: Launch, predictor: Path, folder: Path) -> Iterator[Agent]:
    agent = start_agent(launch, predictor, folder / "log", HANG_GUARD)
    try:
        yield agent
    finally:
        agent.close()


def launch_faulty(folder: Path, **behaviour: Any) -> Launch:
    """Return how to start an agent for the model ``folder / graph``, which behaves as told."""
    graph = folder / "graph"
    graph.write_text(json.dumps(behaviour))
    return prepare(boxed(), folder / "cache", mounts=[PREDICTORS, graph])


def load(agent: Agent, folder: Path) -> None:
    files = {"graph": str(folder / "graph")}
    agent.request("load", {"files": files, "device": "cpu", "threads": None})


@pytest.mark.slow
def test_an_agent_in_a_container_loads_and_computes(engine: str, tmp_path: Path) -> None:
    launch = launch_faulty(tmp_path, answer=4)
    with started(launch, FAULTY, tmp_path) as agent:
        hello = agent.request("hello").facts
        load(agent, tmp_path)
        reply = agent.request("predict", arrays=[("image", IMAGES)])
        assert reply.arrays["logits"].argmax(axis=1).tolist() == [4, 4]
        assert len(running(engine)) == 1
    assert not running(engine)
    assert hello["executable"] == "/usr/bin/python3"
    assert launch.lock[0].startswith(f"{IMAGE} @ ")


SPY = """
import os, socket

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

def load(request):
    raise NotImplementedError

def predict(loaded, arrays):
    raise NotImplementedError
"""


@pytest.mark.slow
def test_a_container_has_no_network_writes_nothing_and_sees_only_its_environment(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "1")
    monkeypatch.setenv("TOKEN_FOR_THE_MODEL", "x y\nz")
    folder = tmp_path / "own"
    folder.mkdir()
    spy = folder / "spy.py"
    spy.write_text(SPY)
    stack = boxed(env=(("OWN", "x y"),), env_passthrough=("TOKEN_*",), threads=2)
    launch = prepare(stack, tmp_path, mounts=[folder])
    assert "x y\nz" not in " ".join(launch.command)
    with started(launch, spy, tmp_path) as agent:
        versions = agent.request("hello").facts["versions"]
    assert versions["network"] == "[Errno 101] Network is unreachable"
    assert versions["write"] == "Read-only file system"
    assert "SECRET_OF_THE_HOST" not in versions
    assert versions["OWN"] == "x y"
    assert versions["TOKEN_FOR_THE_MODEL"] == "x y\nz"
    assert versions["OMP_NUM_THREADS"] == "2"


@pytest.mark.slow
def test_a_container_that_hangs_is_ended_with_its_agent(engine: str, tmp_path: Path) -> None:
    agent = start_agent(launch_faulty(tmp_path, seconds=600), FAULTY, tmp_path / "log", HANG_GUARD)
    agent.request("hello")
    load(agent, tmp_path)
    impatient = type(agent)(agent.process, agent.channel, agent.log, 1, agent.end)
    with pytest.raises(AgentError, match="gave no reply to 'predict' in 1 s and was killed"):
        impatient.request("predict", arrays=[("image", IMAGES)])
    assert not running(engine)


ALONE = """
import sys
from pathlib import Path
import numpy
from pytest_mlms.measure.agent.process import start_agent
from pytest_mlms.provide.stacks.launch import prepare
from pytest_mlms.core.records import Stack

image, predictor, graph = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
stack = Stack("boxed", "faulty", container=image)
launch = prepare(stack, graph.parent, mounts=[predictor.parent, graph])
agent = start_agent(launch, predictor, graph.parent / "log", 600)
agent.request("hello")
agent.request("load", {"files": {"graph": str(graph)}, "device": "cpu", "threads": None})
print("loaded", flush=True)
agent.request("predict", arrays=[("image", numpy.zeros((1, 1, 8, 8), "f4"))])
"""


@pytest.mark.slow
def test_a_container_ends_when_pytest_is_killed_during_a_request(
    engine: str, tmp_path: Path
) -> None:
    graph = tmp_path / "graph"
    graph.write_text(json.dumps({"seconds": 600}))
    command = [sys.executable, "-c", ALONE, IMAGE, str(FAULTY), str(graph)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == "loaded\n"
        assert len(running(engine, parent.pid)) == 1
        parent.kill()
    end = time.monotonic() + HANG_GUARD
    while running(engine, parent.pid):
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.slow
def test_an_image_that_is_not_there_is_an_error_with_the_engine_s_last_lines(
    engine: str, tmp_path: Path
) -> None:
    absent = Stack("boxed", "faulty", container="localhost/pytest-mlms-none:1")
    message = f"stack boxed: {engine} has no image localhost/pytest-mlms-none:1 and can't pull it"
    with pytest.raises(StackError, match=message):
        prepare(absent, tmp_path)


@pytest.mark.slow
def test_a_python_that_the_image_does_not_have_is_an_error(engine: str, tmp_path: Path) -> None:
    with pytest.raises(StackError, match=f"stack boxed: {engine} can't run python9 of image"):
        prepare(boxed(interpreter="python9"), tmp_path)


@pytest.mark.slow
def test_a_manifest_runs_in_a_container(engine: str, project: Project) -> None:
    project.use_faulty(answer=3)
    stack = f"boxed: {{framework: faulty, container: '{IMAGE}'}}\n"
    (project.path / "stacks.yaml").write_text(stack)
    result = project.run("--mlms-stack=boxed", "-k", "accuracy or performance")
    result.assert_outcomes(passed=2)
    accuracy, _ = project.items()
    assert accuracy["case"] == "boxed-cpu"
    assert accuracy["launch"]["lock"][0].startswith(IMAGE)


FAKE_ENGINE = """#!/bin/sh
echo "$*" >> {log}
case "$*" in
  "image inspect"*none*) exit 1;;
  "image inspect"*) echo sha256:0123;;
  *pull*) echo 'manifest unknown' >&2; exit 125;;
  *--runtime=runc*) echo '3.11.7';;
  run*) echo 'crun: no cgroup' >&2; exit 126;;
esac
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A script in the place of podman; the path of its log."""
    log = tmp_path / "log"
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    write_program(tmp_path / "podman", FAKE_ENGINE.format(log=log))
    forget_engines()
    yield log
    forget_engines()


def forget_engines() -> None:
    for known in (containers._answers, containers._working_options, containers._gpu_option):
        known.cache_clear()


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_the_first_options_that_start_a_container_are_used(fake: Path, tmp_path: Path) -> None:
    launch = prepare(boxed(), tmp_path)
    assert "--runtime=runc" in launch.command
    assert fake.read_text().count("print(sys.version)") == 3


def test_a_launch_mounts_each_folder_once_and_sets_the_environment(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "models" / "graph"
    monkeypatch.setenv("MLMS_GIVEN", "s3cret")
    stack = boxed(env=(("A", "b"),), env_passthrough=("MLMS_GIVEN", "NOT_THERE"))
    launch = prepare(stack, tmp_path, mounts=[inner, inner.parent])
    volumes = [option for option in launch.command if option.startswith("--volume=")]
    assert f"--volume={inner.parent}:{inner.parent}:ro" in volumes
    assert len(volumes) == 2
    assert "--env=A=b" in launch.command
    assert "--env=MLMS_GIVEN" in launch.command
    assert "--network=none" in launch.command
    assert "--security-opt=label=disable" in launch.command
    assert launch.command[-4:] == ("sha256:0123", "python3", "-s", "-B")
    assert launch.end == ("podman", "rm", "--force", "--volumes", "{agent}")


def test_a_folder_with_a_colon_is_mounted_too(fake: Path, tmp_path: Path) -> None:
    launch = prepare(boxed(), tmp_path, mounts=[Path("/data/a:b")])
    assert "--mount=type=bind,source=/data/a:b,target=/data/a:b,readonly" in launch.command


def test_docker_is_used_where_podman_does_not_answer(fake: Path, tmp_path: Path) -> None:
    write_program(tmp_path / "podman", "#!/bin/sh\nexit 1\n")
    works = FAKE_ENGINE.replace("echo 'crun: no cgroup' >&2; exit 126", "echo 3.11.7")
    write_program(tmp_path / "docker", works.format(log=fake))
    launch = prepare(boxed(), tmp_path)
    assert launch.command[0] == "docker"
    assert not any(option.startswith(("--runtime", "--ulimit")) for option in launch.command)
    assert launch.end[0] == "docker"


GPU = "GPU-0a1b2c3d-0000-1111-2222-333344445555"


def last_run(log: Path) -> list[str]:
    """Return the arguments of the last container that was started."""
    return [line for line in log.read_text().splitlines() if line.startswith("run ")][-1].split()


def test_podman_gives_a_container_the_gpu_that_is_locked_by_cdi(fake: Path, tmp_path: Path) -> None:
    launch = prepare(boxed(), tmp_path, gpu=GPU)
    option = f"--device=nvidia.com/gpu={GPU}"
    assert launch.command.index(option) < launch.command.index("sha256:0123")
    assert "--runtime=runc" in launch.command
    assert option in last_run(fake)
    assert launch.device == "cuda:0"


def test_docker_gives_a_container_the_gpu_that_is_locked(fake: Path, tmp_path: Path) -> None:
    write_program(tmp_path / "podman", "#!/bin/sh\nexit 1\n")
    works = FAKE_ENGINE.replace("echo 'crun: no cgroup' >&2; exit 126", "echo 3.11.7")
    write_program(tmp_path / "docker", works.format(log=fake))
    launch = prepare(boxed(), tmp_path, gpu=GPU)
    option = f"--gpus=device={GPU}"
    assert launch.command.index(option) < launch.command.index("sha256:0123")
    assert option in last_run(fake)


def test_a_container_for_the_cpu_gets_no_gpu(fake: Path, tmp_path: Path) -> None:
    launch = prepare(boxed(), tmp_path)
    assert not any("gpu" in option for option in launch.command)
    assert launch.device == ""


def test_an_engine_that_knows_no_gpus_is_told_how_to(fake: Path, tmp_path: Path) -> None:
    refusing = FAKE_ENGINE.replace(
        "  *pull*", "  *nvidia.com*) echo 'unresolvable CDI devices' >&2; exit 125;;\n  *pull*"
    )
    write_program(tmp_path / "podman", refusing.format(log=fake))
    message = (
        f"stack boxed: podman can't give a container GPU {GPU}; install NVIDIA's container toolkit "
        "1.15 or later, and run nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml\n    unresolvable CDI devices"
    )
    with pytest.raises(Unavailable, match=message):
        prepare(boxed(), tmp_path, gpu=GPU)


LOCAL_ENGINE = """#!/bin/sh
case "$1 $*" in
  "image image inspect"*) echo sha256:0123; exit;;
  *nvidia.com/gpu=GPU-bb*) export MLMS_HOST=mlms2;; # where the framework has one GPU
esac
test "$1" = run || exit 0
while [ "$1" != sha256:0123 ]; do shift; done
shift 2
exec {python} "$@"
"""
TWO_GPUS = """
def pytest_mlms_devices(config):
    return [{"name": "cuda:0", "uuid": "GPU-aa"}, {"name": "cuda:1", "uuid": "GPU-bb"}]
"""


def test_an_item_runs_on_the_second_gpu_which_is_the_first_in_its_container(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(tmp_path / "podman", LOCAL_ENGINE.format(python=sys.executable))
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    project.use_faulty(answer=3)
    project.edit("devices: [cpu]", "devices: ['cuda:1']")
    project.pytester.makeconftest(TWO_GPUS)
    stack = f"boxed: {{framework: faulty, container: '{IMAGE}'}}\n"
    (project.path / "stacks.yaml").write_text(stack)
    project.run("--mlms-stack=boxed", "-k", "accuracy").assert_outcomes(passed=1)
    (accuracy,) = project.items()
    assert "--device=nvidia.com/gpu=GPU-bb" in accuracy["launch"]["command"]
    assert accuracy["device_used"] == "cuda:1"


def test_an_image_that_can_not_be_pulled_is_an_error(fake: Path, tmp_path: Path) -> None:
    steps: list[str] = []
    stack = Stack("boxed", "faulty", container="none:1")
    message = "stack boxed: podman has no image none:1 and can't pull it\n    manifest unknown"
    with pytest.raises(StackError, match=message):
        prepare(stack, tmp_path, show=steps.append)
    assert steps == ["podman pulls none:1", ""]


def test_a_python_that_can_not_be_run_is_an_error_with_the_first_reason(
    fake: Path, tmp_path: Path
) -> None:
    write_program(tmp_path / "podman", FAKE_ENGINE.format(log=fake).replace("3.11.7", "odd"))
    message = "podman can't run python3 of image sha256:0123\n    crun: no cgroup"
    with pytest.raises(StackError, match=message):
        prepare(boxed(), tmp_path)


@pytest.fixture
def no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with nothing on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    containers._answers.cache_clear()
    yield
    containers._answers.cache_clear()


@pytest.mark.usefixtures("no_engine")
def test_without_an_engine_a_container_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="neither podman nor docker answers; install podman"):
        prepare(boxed(), tmp_path)


@pytest.mark.usefixtures("no_engine")
def test_a_client_without_its_service_is_no_engine(tmp_path: Path) -> None:
    write_program(tmp_path / "docker", "#!/bin/sh\nexit 1\n")
    assert find_engine() is None
