"""Agents with predictors of the tests, and what tests of loads ask of ``server``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from mlms_predictors._run.replies import HelloReply

from pytest_mlms.core.records import Launch
from pytest_mlms.measure.agent.channel import read_record
from pytest_mlms.measure.agent.opening import load_model
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import start_agent
from tests.support.project import PREDICTORS, launch

TIMEOUT = 60.0  # seconds
LIBRARY = [{"x": np.full((1, 2), value, np.float32)} for value in range(4)]
"""Samples whose output is their place."""


@contextlib.contextmanager
def open_server(folder: Path, **options: Any) -> Iterator[Predictor]:
    """Load the predictor ``server`` in an agent."""
    with open_agent(folder, "server", launch(), **options) as predictor:
        yield predictor


@contextlib.contextmanager
def open_agent(folder: Path, name: str, started: Launch, **options: Any) -> Iterator[Predictor]:
    """Load a predictor of the tests in an agent."""
    agent = start_agent(started, PREDICTORS / f"{name}.py", folder / "log", TIMEOUT)
    request = {"files": {}, "device": "cpu", "threads": None, "options": options}
    try:
        hello = read_record(HelloReply, agent.request("hello").facts)
        agent.learn_pid(hello.process)
        yield load_model(agent, request, hello, 0.0)
    finally:
        agent.close()


def every(milliseconds: float, count: int) -> np.ndarray:
    """Return a schedule of queries at equal distances, in nanoseconds."""
    return (np.arange(count) * milliseconds * 1e6).astype(np.int64)


def in_turn(count: int) -> np.ndarray:
    """Return the samples of ``count`` queries that take those of LIBRARY in turn."""
    return np.arange(count) % len(LIBRARY)
