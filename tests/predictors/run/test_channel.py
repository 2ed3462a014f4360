"""The agent's end of the channel, in processes of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from mlms_predictors._run import protocol

from tests.support.closing import ClosingAgent
from tests.support.project import ROOT

TAKES_CHANNEL = """
import os, sys
sys.path.insert(0, sys.argv[1])
from mlms_predictors._run.channel import take_channel
channel = take_channel()
print("chatter of Python", flush=True)
os.write(1, b"chatter of native code")
assert sys.stdin.read() == "", "the framework reads nothing of the requests"
line = channel.requests.readline()
channel.write([b"reply to ", line])
"""


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "the condition did not hold in 5 minutes"
        time.sleep(0.02)


def test_the_channel_is_private_and_chatter_goes_to_standard_error(tmp_path: Path) -> None:
    (tmp_path / "mlms_predictors").symlink_to(ROOT / "predictors")
    done = subprocess.run(
        [sys.executable, "-c", TAKES_CHANNEL, str(tmp_path)],
        input=b"request\n",
        capture_output=True,
        timeout=300,
    )
    assert done.stdout == b"reply to request\n", done.stderr.decode()
    assert b"chatter of Python" in done.stderr
    assert b"chatter of native code" in done.stderr


def test_an_idle_agent_closes_its_model_and_ends_with_its_channel(closing: ClosingAgent) -> None:
    closing.load("one")
    closing.agent.channel.close()
    closing.agent.process.wait(300)
    assert closing.notes() == ["load one", "close one"]


def test_a_busy_agent_is_ended_with_its_channel(closing: ClosingAgent) -> None:
    closing.load("hang")
    closing.agent.channel.deadline = time.monotonic() + 300
    closing.agent.channel.write(protocol.encode({"type": "predict"}))
    wait_for(lambda: "predict hang" in closing.notes())
    process = psutil.Process(closing.agent.pid)
    closing.agent.channel.close()
    process.wait(300)
    assert closing.notes() == ["load hang", "predict hang"]
