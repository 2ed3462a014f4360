"""Tests of agents as real processes, and of everything that can go wrong in them."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from pytest_mlms.core.errors import AgentError
from pytest_mlms.core.memory import oom_kills
from pytest_mlms.core.records import Launch
from pytest_mlms.measure.agent.process import WORKER, Agent, Refused, start_agent
from tests.support.agents import TIMEOUT
from tests.support.project import PREDICTORS, launch

FAULTY = PREDICTORS / "faulty.py"
IMAGES = np.zeros((4, 1, 8, 8), np.float32)

ORPHANED = """
import os, sys, numpy
from pathlib import Path
from pytest_mlms.core.records import Launch
from pytest_mlms.measure.agent.process import start_agent
launch = Launch((sys.executable,), os.environ)
agent = start_agent(launch, Path(sys.argv[1]), Path("agent.log"), 300)
agent.request("hello")
agent.request("load", {"files": {"graph": "graph"}, "device": "cpu", "threads": None})
agent.request("predict", arrays=[("image", numpy.zeros((1, 1, 8, 8), "f4"))])
"""

SHADOWED = """
import sys, runpy
sys.argv = ["worker", "x"]
runpy.run_path({worker!r})
import onnxruntime
print(onnxruntime.__file__)
"""


class Agents:
    """Starts agents of the faulty predictor in a folder, and ends them after the test."""

    def __init__(self, folder: Path) -> None:
        self.pids = folder / "pids"
        self.log = folder / "agent.log"
        self._graph = folder / "graph"
        self._started: list[Agent] = []

    def start(self, **spec: object) -> Agent:
        """Start an agent whose predictor does what ``spec`` says, and import its framework."""
        self._graph.write_text(json.dumps(spec))
        agent = start_agent(launch(), FAULTY, self.log, TIMEOUT)
        self._started.append(agent)
        agent.learn_pid(agent.request("hello").facts["process"])
        return agent

    def load(self, agent: Agent) -> None:
        """Load the model."""
        files = {"graph": str(self._graph)}
        agent.request("load", {"files": files, "device": "cpu", "threads": None})

    def loaded(self, **spec: object) -> Agent:
        """Start an agent, and load its model."""
        agent = self.start(**spec)
        self.load(agent)
        return agent

    def written_pids(self) -> list[int]:
        """Wait for the process ids that a hanging predictor writes: its own, and its child's."""
        wait_until(lambda: self.pids.exists() and " " in self.pids.read_text())
        return [int(pid) for pid in self.pids.read_text().split()]

    def close(self) -> None:
        """End the agents."""
        for agent in self._started:
            agent.close()


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    made = Agents(tmp_path)
    yield made
    made.close()


def predict(agent: Agent, images: np.ndarray = IMAGES) -> np.ndarray:
    return agent.request("predict", arrays=[("image", images)]).arrays["logits"]


def is_gone(pid: int) -> bool:
    """Return whether a process ended, also one that its parent never waits for."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(condition: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def many_files() -> Iterator[None]:
    """More files are open than select(2) knows numbers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 4096 if hard == resource.RLIM_INFINITY else min(hard, 4096)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    yield
    for file in opened:
        os.close(file)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_the_end_of_an_agent_is_seen_beside_many_open_files(agents: Agents) -> None:
    agent = agents.loaded()
    agent.leave(TIMEOUT)
    assert agent.end_of_leaving(TIMEOUT) == ""


def test_an_agent_that_does_not_end_is_told_with_all_the_time_that_it_had(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that had hung for 11 s beside a baseline that did was told with the last of them."""
    agent = agents.loaded()
    monkeypatch.setattr(agent, "_say_bye", lambda *_, **__: None)
    agent.leave(TIMEOUT)
    time.sleep(1.6)
    found = re.search(r"had not ended (\d+) s after its last answer", agent.end_of_leaving(0.1))
    assert found
    assert int(found[1]) >= 2


def test_an_agent_answers_with_arrays_and_ends_by_itself(agents: Agents) -> None:
    agent = agents.loaded(answer=7)
    logits = predict(agent)
    assert logits.argmax(axis=1).tolist() == [7, 7, 7, 7]
    agent.close()
    assert agent.process.returncode == 0


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("segv", "ended while it did 'predict': killed by SIGSEGV"),
        ("killed", "killed by SIGKILL, as the kernel does when memory runs out"),
        ("vanish", "ended while it did 'predict': exit status 7"),
        ("garbage", "can't exchange frames for 'predict': expected a frame, found b'this is no"),
    ],
)
def test_the_error_says_how_an_agent_ended(agents: Agents, fault: str, message: str) -> None:
    agent = agents.loaded(at="predict", fault=fault)
    with pytest.raises(AgentError) as raised:
        predict(agent)
    assert message in str(raised.value)
    assert ("its log, " in str(raised.value)) == agents.log.exists()
    assert not agent.alive


def test_an_agent_that_has_ended_says_so(agents: Agents) -> None:
    agent = agents.start()
    agent.close()
    with pytest.raises(AgentError, match="has ended; ask for a new one"):
        agent.request("hello")


def test_a_crash_leaves_the_python_stack_in_the_log_and_in_the_error(agents: Agents) -> None:
    agent = agents.start(at="load", fault="segv")
    with pytest.raises(AgentError, match="in _fault"):
        agents.load(agent)
    assert "Fatal Python error: Segmentation fault" in agents.log.read_text()


def test_an_agent_that_hangs_is_killed_with_all_that_it_started(agents: Agents) -> None:
    agent = agents.loaded(at="predict", fault="hang", pids=str(agents.pids))

    def reach_the_deadline_once_it_hangs() -> None:
        agents.written_pids()
        agent.channel.deadline = 0

    threading.Thread(target=reach_the_deadline_once_it_hangs).start()
    with pytest.raises(AgentError) as raised:
        predict(agent)
    assert "gave no reply to 'predict' in 300 s and was killed" in str(raised.value)
    assert "waiting for nothing" in str(raised.value)
    for pid in agents.written_pids():
        wait_until(lambda pid=pid: is_gone(pid))  # type: ignore[misc]


def test_a_wait_is_shortened_by_what_the_other_side_took(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_mlms.measure.agent.process._LEAST_WAIT", 0.2)
    agent = agents.loaded(at="predict", fault="hang", pids=str(agents.pids))
    pace: dict[str, float] = {}
    agent.pace = pace

    def tell_the_pace_once_it_hangs() -> None:
        agents.written_pids()
        pace["predict"] = 0.01
        agent.hurry()

    threading.Thread(target=tell_the_pace_once_it_hangs).start()
    with pytest.raises(AgentError, match=r"in 0\.2 s and was killed; the other side took 0\.01 s"):
        predict(agent)


def test_a_longer_timeout_gives_a_slow_side_more_than_a_minute(agents: Agents) -> None:
    agent = agents.loaded()
    agent.pace = {"predict": 0.01}
    for timeout, wait in ((5.0, 5.0), (300.0, 60.0), (1500.0, 300.0)):
        agent.timeout = timeout
        assert agent._longest_wait("predict") == wait


def test_only_an_agent_that_was_killed_from_outside_counts_as_killed(agents: Agents) -> None:
    for fault, killed in (("killed", True), ("vanish", False), ("segv", False)):
        with pytest.raises(AgentError) as raised:
            predict(agents.loaded(at="predict", fault=fault))
        assert raised.value.killed is killed


def test_a_lack_of_memory_is_named_where_the_kernel_counts_it(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agents.loaded(at="predict", fault="killed")
    before = oom_kills() or 0
    monkeypatch.setattr("pytest_mlms.measure.agent.process.oom_kills", lambda: before + 1)
    with pytest.raises(AgentError, match="killed by the kernel, since memory ran out"):
        predict(agent)


@pytest.mark.parametrize(("fault", "error"), [("memory", "MemoryError"), ("exit", "SystemExit")])
def test_what_a_framework_raises_is_a_reply(agents: Agents, fault: str, error: str) -> None:
    agent = agents.loaded(at="predict", fault=fault)
    with pytest.raises(Refused, match=error) as raised:
        predict(agent)
    assert raised.value.error == error
    agent.close()  # a thread writes the log
    assert "Traceback" in agents.log.read_text()


def test_after_running_out_of_memory_an_agent_is_not_used_again(agents: Agents) -> None:
    agent = agents.loaded(at="predict", fault="memory")
    with pytest.raises(Refused):
        predict(agent)
    assert not agent.alive


def test_output_of_the_framework_goes_to_the_log(agents: Agents) -> None:
    agent = agents.loaded(at="predict", fault="stdout")
    assert predict(agent).shape == (4, 10)
    agent.close()
    log = agents.log.read_text()
    assert "{chatter on standard output}" in log
    assert "and on its descriptor" in log


def test_a_flooded_log_keeps_its_beginning_and_its_end(agents: Agents) -> None:
    agent = agents.loaded(at="predict", fault="flood")
    predict(agent)
    agent.close()
    log = agents.log.read_text()
    assert log.endswith("the last words\n")
    assert "bytes left out" in log
    assert len(log) < 2 << 20


def test_large_batches_go_through_in_both_directions(agents: Agents) -> None:
    large = np.zeros((200_000, 1, 8, 8), np.float32)
    assert predict(agents.loaded(), large).shape == (200_000, 10)


def test_an_agent_ends_in_mid_request_where_its_pytest_is_killed(
    agents: Agents, tmp_path: Path
) -> None:
    spec = {"at": "predict", "fault": "hang", "pids": str(agents.pids)}
    (tmp_path / "graph").write_text(json.dumps(spec))
    command = [sys.executable, "-c", ORPHANED, str(FAULTY)]
    with subprocess.Popen(command, cwd=tmp_path) as parent:
        agent_pid, child_pid = agents.written_pids()
        parent.kill()
    wait_until(lambda: is_gone(agent_pid))
    if sys.platform == "linux":
        wait_until(lambda: is_gone(child_pid))


def test_a_command_that_is_no_interpreter_is_named(tmp_path: Path) -> None:
    message = "can't start /nowhere/python: No such file or directory; is it an interpreter"
    with pytest.raises(AgentError, match=message):
        start_agent(Launch(("/nowhere/python",), {}), FAULTY, tmp_path / "log", TIMEOUT)


def test_a_program_that_sends_no_frames_is_shown_by_what_it_sent(tmp_path: Path) -> None:
    echo = Launch(("/bin/echo", "hello"), {})
    agent = start_agent(echo, FAULTY, tmp_path / "log", TIMEOUT)
    with pytest.raises(AgentError, match="expected a frame, found b'hello"):
        agent.request("hello")


def test_each_agent_has_a_name_and_a_command_that_ends_what_outlives_it(tmp_path: Path) -> None:
    note = f"import sys; open({str(tmp_path / 'ended')!r}, 'w').write(sys.argv[1])"
    started = Launch(
        (sys.executable, "-c", "pass", "{agent}"), {}, end=(sys.executable, "-c", note, "{agent}")
    )
    agent = start_agent(started, FAULTY, tmp_path / "log", TIMEOUT)
    agent.kill()
    name = (tmp_path / "ended").read_text()
    assert name.startswith(f"mlms-agent-{os.getpid()}-")
    assert name in agent.end


def test_an_unknown_request_is_refused(agents: Agents) -> None:
    with pytest.raises(Refused, match="no request 'dance'"):
        agents.start().request("dance")


@pytest.mark.parametrize("value", [b"text", None])
def test_bytes_and_objects_are_refused_before_they_are_sent(agents: Agents, value: object) -> None:
    with pytest.raises(AgentError, match="frames carry numbers and texts only"):
        agents.start().request("predict", arrays=[("x", np.array([value]))])


def test_the_worker_shadows_no_framework() -> None:
    command = [sys.executable, "-c", SHADOWED.format(worker=str(WORKER))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "site-packages" in done.stdout, done.stderr


ENDINGS: dict[str, Callable[[Agent], None]] = {
    "closed": lambda agent: agent.close(),
    "killed": lambda agent: agent.kill(),
    "dead": lambda agent: agent.process.kill(),
}


@pytest.mark.skipif(sys.platform != "linux", reason="processes are stopped on Linux only")
@pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS)
def test_a_paused_agent_continues_and_can_be_ended(
    agents: Agents, end: Callable[[Agent], None]
) -> None:
    agent = agents.loaded(answer=7)
    process = psutil.Process(agent.pid)
    agent.pause()
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED)
    agent.resume()
    assert predict(agent).shape == (4, 10)
    agent.pause()
    end(agent)
    agent.kill()
    wait_until(lambda: is_gone(agent.pid))
    agent.pause()
    agent.resume()  # neither minds that the agent has ended
