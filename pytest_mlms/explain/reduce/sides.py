"""Both stacks of a bundle, each as an agent that runs one model after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mlms_predictors._run.replies import HelloReply

from pytest_mlms.core.arrays import Array, Arrays
from pytest_mlms.core.errors import AgentError, MlmsError
from pytest_mlms.core.records import Launch
from pytest_mlms.explain.bisect.judgement import ending_of
from pytest_mlms.explain.repro.bundle import Bundle
from pytest_mlms.explain.repro.check import launch_of
from pytest_mlms.measure.agent.channel import read_record
from pytest_mlms.measure.agent.opening import load_model
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Agent, Refused, start_agent
from pytest_mlms.provide.stacks.installers import Show

HUNG = "no answer"


_LONGEST_TEXT = 4096  # characters
_LONGEST_REASON = 160  # characters


class Failure(NamedTuple):
    """A model that a side didn't run.

    ``how`` is what ``Expectation.crash`` has: the signal or exit status of an agent that ended, or
    the class of the error; for one that hung it is HUNG.
    """

    how: str
    text: str


@dataclass
class Side:
    """One stack. The agent starts with the first model, and again after it died."""

    name: str
    launch: Launch
    predictor: Path
    log: Path
    device: str
    threads: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = 300.0
    _agent: Agent | None = None
    _hello: HelloReply | None = None

    def run(self, model: Path, inputs: Arrays) -> dict[str, Array] | Failure:
        """Load a model and run one batch; return its outputs by name, or why there are none.

        Raises MlmsError where not even an agent starts.
        """
        return next(self.runs(model, inputs, 1))

    def runs(self, model: Path, inputs: Arrays, calls: int) -> Iterator[dict[str, Array] | Failure]:
        """Load a model, run one batch as often as that, and yield as ``run`` returns.

        A failure is the last one.
        """
        self._start()
        try:
            predictor = self.load(model)
        except MlmsError as error:
            yield _failure_of(error)
            return
        for _ in range(calls):
            try:
                outputs = predictor.predict(inputs)
            except MlmsError as error:
                yield _failure_of(error)
                return
            yield outputs

    def load(self, model: Path) -> Predictor:
        """Load a model instead of the one before; raises AgentError."""
        agent, hello = self._start()
        request = {
            "files": {"graph": str(model)},
            "device": self.device,
            "threads": self.threads,
            "options": dict(self.options),
            "allow_code": False,
        }
        return load_model(agent, request, hello, 0.0)

    def close(self) -> None:
        """End the agent; the next model starts another."""
        if self._agent is not None:
            self._agent.close()
        self._agent = None
        self._hello = None

    def _start(self) -> tuple[Agent, HelloReply]:
        if self._agent is None or self._hello is None or not self._agent.alive:
            self.close()
            self._agent = start_agent(self.launch, self.predictor, self.log, self.timeout)
            facts = self._agent.request("hello").facts
            with self._agent.checking("hello"):
                self._hello = read_record(HelloReply, facts, _LONGEST_TEXT)
            self._agent.learn_pid(self._hello.process)
        return self._agent, self._hello


def _failure_of(error: MlmsError) -> Failure:
    if isinstance(error, Refused):
        return Failure(error.error, _first_line(error))
    if isinstance(error, AgentError):
        return Failure(ending_of(str(error).partition("\n")[0]) or HUNG, _first_line(error))
    return Failure(type(error).__name__, _first_line(error))


def _first_line(error: MlmsError) -> str:
    """Return the beginning of an error, which may have the framework's own lines behind it."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:_LONGEST_REASON]


class Sides(NamedTuple):
    """The stack that is fine, and the one that fails."""

    old: Side
    new: Side

    @contextlib.contextmanager
    def closing(self) -> Iterator[Sides]:
        """End both agents with the context."""
        try:
            yield self
        finally:
            self.old.close()
            self.new.close()


def sides_of(bundle: Bundle, cache: Path, logs: Path, show: Show) -> Sides:
    """Return both sides of a bundle, with their environments; no agent is started.

    The one side of a bundle without another is both. ``show`` is called with the steps of an
    installation, ``logs`` is the folder of the agents' output. Raises MlmsError for software that
    can't be had.
    """
    sides = [
        Side(
            name=software.name,
            launch=launch_of(bundle, software, cache, show),
            predictor=bundle.predictor,
            log=logs / f"side-{number}.log",
            device=bundle.device,
            threads=bundle.threads,
            options=bundle.options,
        )
        for number, software in enumerate(bundle.sides)
    ]
    return Sides(sides[0], sides[-1])
