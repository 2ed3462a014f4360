"""Agents as real processes, whatever goes wrong in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from pytest_mlms.agent.process import WORKER, Agent, Refused, start_agent
from pytest_mlms.errors import AgentError
from pytest_mlms.records import Launch
from tests.support.project import PREDICTORS, launch

IMAGES = np.zeros((4, 1, 8, 8), np.float32)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    agents = []

    def start(timeout: float = 300, **spec: object) -> Agent:
        (tmp_path / "graph").write_text(json.dumps(spec))
        agent = start_agent(launch(), PREDICTORS / "faulty.py", tmp_path / "agent.log", timeout)
        agents.append(agent)
        agent.request("hello")
        return agent

    yield start
    for agent in agents:
        agent.close()


def load(agent: Agent, tmp_path: Path) -> None:
    agent.request(
        "load", {"files": {"graph": str(tmp_path / "graph")}, "device": "cpu", "threads": None}
    )


def gone(pid: int) -> bool:
    """Whether the process ended, or is a zombie that its parent in this container never waits for."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(condition: Callable[[], bool], seconds: float = 600) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_an_agent_answers_with_arrays_and_ends_by_itself(
    start: Callable[..., Agent], tmp_path: Path
) -> None:
    agent = start(answer=7)
    load(agent, tmp_path)
    logits = agent.request("predict", arrays=[("image", IMAGES)]).arrays["logits"]
    assert logits.shape == (4, 10)
    assert (logits.argmax(axis=1) == 7).all()
    agent.close()
    assert agent.process.returncode == 0


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("segv", "ended while it did 'predict': killed by SIGSEGV"),
        ("killed", "killed by SIGKILL, as the kernel does when memory runs out"),
        ("vanish", "ended while it did 'predict': exit status 7"),
        (
            "garbage",
            "can't exchange frames for 'predict': expected a frame, found b'this is no frame",
        ),
    ],
)
def test_an_agent_that_dies_or_babbles_says_how(
    start: Callable[..., Agent], tmp_path: Path, fault: str, says: str
) -> None:
    agent = start(at="predict", fault=fault)
    load(agent, tmp_path)
    with pytest.raises(AgentError) as raised:
        agent.request("predict", arrays=[("image", IMAGES)])
    assert says in str(raised.value)
    assert ("its log, " in str(raised.value)) == (tmp_path / "agent.log").exists()
    assert not agent.alive


def test_a_crash_leaves_the_python_stack_in_the_log_and_in_the_error(
    start: Callable[..., Agent], tmp_path: Path
) -> None:
    agent = start(at="load", fault="segv")
    with pytest.raises(AgentError) as raised:
        load(agent, tmp_path)
    assert "Fatal Python error: Segmentation fault" in agent.log.path.read_text()
    assert "in _fault" in str(raised.value)


def test_an_agent_that_hangs_is_killed_with_all_that_it_started(
    start: Callable[..., Agent], tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    agent = start(at="predict", fault="hang", pids=str(pids))
    load(agent, tmp_path)

    def let_time_pass_once_it_hangs() -> None:
        wait_until(lambda: pids.exists() and " " in pids.read_text())
        agent.channel.deadline = 0

    threading.Thread(target=let_time_pass_once_it_hangs).start()
    with pytest.raises(
        AgentError, match="gave no reply to 'predict' in 300 s and was killed"
    ) as raised:
        agent.request("predict", arrays=[("image", IMAGES)])
    assert "waiting for nothing" in str(raised.value)
    for pid in pids.read_text().split():
        assert wait_until(lambda pid=int(pid): gone(pid)), pid  # type: ignore[misc]


@pytest.mark.parametrize(("fault", "error"), [("memory", "MemoryError"), ("exit", "SystemExit")])
def test_what_a_framework_raises_is_an_answer(
    start: Callable[..., Agent], tmp_path: Path, fault: str, error: str
) -> None:
    agent = start(at="predict", fault=fault)
    load(agent, tmp_path)
    with pytest.raises(Refused, match=error) as raised:
        agent.request("predict", arrays=[("image", IMAGES)])
    assert raised.value.error == error
    agent.close()  # a thread writes the log
    assert "Traceback" in agent.log.path.read_text()


def test_after_running_out_of_memory_an_agent_is_not_used_again(
    start: Callable[..., Agent], tmp_path: Path
) -> None:
    agent = start(at="predict", fault="memory")
    load(agent, tmp_path)
    with pytest.raises(Refused):
        agent.request("predict", arrays=[("image", IMAGES)])
    assert not agent.alive


def test_chatter_on_standard_output_goes_to_the_log(
    start: Callable[..., Agent], tmp_path: Path
) -> None:
    agent = start(at="predict", fault="stdout")
    load(agent, tmp_path)
    assert agent.request("predict", arrays=[("image", IMAGES)]).arrays["logits"].shape == (4, 10)
    agent.close()
    log = agent.log.path.read_text()
    assert "{chatter on standard output}" in log
    assert "and on its descriptor" in log


def test_a_flooded_log_blocks_nobody_and_keeps_its_beginning_and_end(
    start: Callable[..., Agent], tmp_path: Path
) -> None:
    agent = start(at="predict", fault="flood")
    load(agent, tmp_path)
    agent.request("predict", arrays=[("image", IMAGES)])
    agent.close()
    log = agent.log.path.read_text()
    assert log.endswith("the last words\n")
    assert "bytes left out" in log
    assert len(log) < 2 << 20


def test_large_batches_go_through_in_both_directions(
    start: Callable[..., Agent], tmp_path: Path
) -> None:
    agent = start()
    load(agent, tmp_path)
    large = np.zeros((200_000, 1, 8, 8), np.float32)
    assert agent.request("predict", arrays=[("image", large)]).arrays["logits"].shape == (
        200_000,
        10,
    )


def test_an_agent_whose_pytest_is_killed_ends_in_mid_request(tmp_path: Path) -> None:
    (tmp_path / "graph").write_text(
        json.dumps({"at": "predict", "fault": "hang", "pids": str(tmp_path / "pids")})
    )
    script = f"""
import os, sys, numpy
from pathlib import Path
from pytest_mlms.records import Launch
from pytest_mlms.agent.process import start_agent
agent = start_agent(Launch((sys.executable,), os.environ), Path({str(PREDICTORS / "faulty.py")!r}), Path("agent.log"), 300)
agent.request("hello")
agent.request("load", {{"files": {{"graph": "graph"}}, "device": "cpu", "threads": None}})
agent.request("predict", arrays=[("image", numpy.zeros((1, 1, 8, 8), "f4"))])
"""
    with subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path) as parent:
        assert wait_until(
            lambda: (tmp_path / "pids").exists() and " " in (tmp_path / "pids").read_text()
        )
        parent.kill()
    agent_pid = int((tmp_path / "pids").read_text().split()[0])
    assert wait_until(lambda: gone(agent_pid))
    child_pid = int(
        (tmp_path / "pids").read_text().split()[1]
    )  # in a session of its own, so out of the agent's reach
    if not gone(child_pid):
        os.kill(child_pid, 9)


def test_a_command_that_is_no_interpreter_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        AgentError,
        match="can't start /nowhere/python: No such file or directory; is it an interpreter",
    ):
        start_agent(
            Launch(("/nowhere/python",), {}), PREDICTORS / "faulty.py", tmp_path / "log", 300
        )
    agent = start_agent(
        Launch(("/bin/echo", "hello"), {}), PREDICTORS / "faulty.py", tmp_path / "log", 300
    )
    with pytest.raises(AgentError, match="expected a frame, found b'hello"):
        agent.request("hello")


def test_an_unknown_request_is_an_answer_too(start: Callable[..., Agent]) -> None:
    with pytest.raises(Refused, match="no request 'dance'"):
        start().request("dance")


def test_strings_are_refused_before_they_are_sent(start: Callable[..., Agent]) -> None:
    with pytest.raises(AgentError, match="frames carry numbers only"):
        start().request("predict", arrays=[("x", np.array(["text"]))])


def test_the_worker_is_started_by_path_and_shadows_no_framework() -> None:
    code = f"import sys; sys.argv = ['worker', 'x']; import runpy; runpy.run_path({str(WORKER)!r}); import onnxruntime"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print(onnxruntime.__file__)"],
        capture_output=True,
        text=True,
    )
    assert "site-packages" in done.stdout, done.stderr


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="processes are stopped on Linux only"
)
def test_an_agent_that_is_paused_goes_on_where_it_was_and_can_be_ended_in_any_way(
    start: Callable[..., Agent], tmp_path: Path
) -> None:
    def stopped() -> bool:
        return psutil.Process(agent.process.pid).status() == psutil.STATUS_STOPPED

    for end in (
        lambda agent: agent.close(),
        lambda agent: agent.kill(),
        lambda agent: agent.process.kill(),
    ):
        agent = start(answer=7)
        load(agent, tmp_path)
        agent.pause()
        assert wait_until(stopped)
        agent.resume()
        assert agent.request("predict", arrays=[("image", IMAGES)]).arrays["logits"].shape == (
            4,
            10,
        )
        agent.pause()
        end(agent)
        agent.kill()
        assert gone(agent.process.pid)
    agent.pause()
    agent.resume()  # neither minds that it has ended
