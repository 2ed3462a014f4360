"""A model in an agent before there is a manifest that it could be compared with."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlms_predictors._run.replies import HelloReply

from pytest_mlms.core.errors import AgentError, Unavailable
from pytest_mlms.core.records import Launch, Stack
from pytest_mlms.measure.agent.opening import import_problem, load_model
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Agent, Refused, start_agent
from pytest_mlms.measure.agent.replies import read_record

_TIMEOUT = 300.0  # seconds for a reply
_LONGEST_TEXT = 4096  # characters


@dataclass(frozen=True)
class UncheckedModel:
    """Everything that is needed to load a model of which nothing is known but its files.

    ``predictor`` is the predictor's file, ``files`` are the model's by role, ``log`` is where the
    agent's output goes.
    """

    stack: Stack
    launch: Launch
    predictor: Path
    files: Mapping[str, Path]
    log: Path
    device: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    allow_code: bool = False


@contextlib.contextmanager
def open_unchecked(model: UncheckedModel) -> Iterator[Predictor]:
    """Start an agent and load a model; the agent ends with the context.

    Without a device it is the CPU, or the first one where the framework has no CPU. Raises
    Unavailable where the framework is missing, and AgentError where the model can't be loaded.
    """
    began = time.perf_counter()
    agent = start_agent(model.launch, model.predictor, model.log, _TIMEOUT)
    try:
        hello = _say_hello(agent, model)
        request = {
            "files": {role: str(path) for role, path in model.files.items()},
            "device": model.device or _device(hello, model),
            "threads": None,
            "options": dict(model.options),
            "allow_code": model.allow_code,
        }
        yield load_model(agent, request, hello, time.perf_counter() - began)
    finally:
        agent.close()


def _say_hello(agent: Agent, model: UncheckedModel) -> HelloReply:
    try:
        facts = agent.request("hello").facts
    except Refused as error:
        environment = f"stack {model.stack.name} ({model.launch.command[0]})"
        problem = import_problem(agent, error, model.stack, environment)
        if not problem:
            raise
        raise Unavailable(problem) from None
    with agent.checking("hello"):
        hello: HelloReply = read_record(HelloReply, facts, _LONGEST_TEXT)
    agent.learn_pid(hello.process)
    return hello


def _device(hello: HelloReply, model: UncheckedModel) -> str:
    if "cpu" in hello.devices:
        return "cpu"
    if hello.devices:
        return hello.devices[0]
    raise AgentError(f"{model.stack.framework} finds no device here; run it on a host with one")
