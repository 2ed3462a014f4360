"""Agents that are hard to end: nothing that they started is left, however they and pytest end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from pytest_mlms.core.errors import AgentError
from pytest_mlms.measure.agent.process import Agent, start_agent
from tests.support.agents import TIMEOUT
from tests.support.project import PREDICTORS, ROOT, launch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="subreapers are Linux's")

HOSTILE = PREDICTORS / "hostile.py"

STATES = {
    "returns": 2,
    "sleeps": 2,
    "holds Python's lock": 2,
    "is stopped": 2,
    "closed its channel": 2,
    "ignores signals": 3,
    "started children": 11,
    "exits in load": 2,
}
"""The number of processes that each state has."""

HANGING = [state for state in STATES if state not in ("returns", "started children")]

CODE = """
import os, sys, time
from pathlib import Path
from pytest_mlms.measure.agent.process import start_agent
from pytest_mlms.core.records import Launch
predictor = Path(sys.argv[1])
agent = start_agent(Launch((sys.executable,), os.environ), predictor, Path("agent.log"), 300)
agent.request("hello")
agent.request("load", {"files": {"graph": "graph"}, "device": "cpu", "threads": None})
agent.request("predict")
time.sleep(600)
"""


class Scene:
    """A folder with the graph of a state, and the processes that an agent noted there."""

    def __init__(self, folder: Path, state: str) -> None:
        self.folder = folder
        self._state = state
        self._pids = folder / "pids"
        (folder / "graph").write_text(state)

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT), "MLMS_PIDS": str(self._pids)}

    def processes(self) -> list[psutil.Process]:
        """Wait until the state is reached; return its processes, the agent first.

        One that has ended meanwhile is left out.
        """
        wait_until(lambda: len(self._noted()) >= STATES[self._state])
        found = []
        for pid in self._noted():
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(pid))
        return found

    def _noted(self) -> list[int]:
        if not self._pids.exists():
            return []
        return [int(line) for line in self._pids.read_text().splitlines()]


def wait_until(condition: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_for_the_end_of(processes: list[psutil.Process]) -> None:
    wait_until(lambda: all(map(is_gone, processes)))


@contextlib.contextmanager
def running(action: Callable[[], None]) -> Iterator[None]:
    """Run something in a thread, which has ended before the folder of the test is removed."""
    with ThreadPoolExecutor() as pool:
        done = pool.submit(action)
        yield
        done.result()


@pytest.fixture
def agent(scene: Scene) -> Iterator[Agent]:
    started = replace(launch(), env=scene.env)
    agent = start_agent(started, HOSTILE, scene.folder / "agent.log", TIMEOUT)
    agent.learn_pid(agent.request("hello").facts["process"])
    yield agent
    agent.kill()


def use(agent: Agent, scene: Scene) -> None:
    """Load the model and predict, as a test would."""
    files = {"graph": str(scene.folder / "graph")}
    agent.request("load", {"files": files, "device": "cpu", "threads": None})
    agent.request("predict")


def use_for_ever(agent: Agent, scene: Scene) -> None:
    """Predict until there is an error."""
    use(agent, scene)
    while True:
        agent.request("predict")


@pytest.fixture
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Scene:
    return Scene(tmp_path, request.param)


in_each_state = pytest.mark.parametrize("scene", STATES, indirect=True)


@in_each_state
def test_nothing_is_left_where_pytest_is_killed(scene: Scene) -> None:
    end_with(signal.SIGKILL, scene)


@in_each_state
def test_nothing_is_left_after_control_c(scene: Scene) -> None:
    end_with(signal.SIGINT, scene)


def end_with(number: signal.Signals, scene: Scene) -> None:
    command = [sys.executable, "-c", CODE, str(HOSTILE)]
    output = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=scene.folder, env=scene.env, stderr=output) as parent:
        processes = scene.processes()
        parent.send_signal(number)
    wait_for_the_end_of(processes)


@in_each_state
def test_nothing_is_left_after_a_crash(agent: Agent, scene: Scene) -> None:
    def crash() -> None:
        for process in scene.processes()[:1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    with running(crash), pytest.raises(AgentError):
        use_for_ever(agent, scene)
    wait_for_the_end_of(scene.processes())


@pytest.mark.parametrize("scene", HANGING, indirect=True)
def test_nothing_is_left_of_an_agent_that_is_given_up(agent: Agent, scene: Scene) -> None:
    def give_up() -> None:
        scene.processes()
        agent.channel.deadline = 0

    with running(give_up), pytest.raises(AgentError):
        use(agent, scene)
    assert all(map(is_gone, scene.processes()))


@pytest.mark.parametrize("scene", ["closed its channel"], indirect=True)
def test_a_closed_channel_is_noticed_at_once(
    agent: Agent, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_mlms.measure.agent.process._GRACE", 1e6)
    with pytest.raises(AgentError, match="it closed its channel but went on running"):
        use(agent, scene)


@pytest.mark.parametrize("scene", ["returns", "started children"], indirect=True)
def test_nothing_is_left_after_a_normal_end(agent: Agent, scene: Scene) -> None:
    use(agent, scene)
    processes = scene.processes()
    agent.close()
    assert agent.process.returncode == 0
    assert all(map(is_gone, processes))
