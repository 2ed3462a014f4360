"""A stand-in for an agent that is traced: it answers without a process or a model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np

from pytest_mlms.core.errors import AgentError
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Array, Reply
from pytest_mlms.measure.trace.builder import PreparedRequest
from pytest_mlms.measure.trace.runner import TraceTarget
from pytest_mlms.measure.trace.spans import SPAN_COLUMNS

__all__ = ["PROCESS", "Answer", "FakeAgent", "status", "trace_reply"]

Interval = tuple[int, int]

PROCESS = 50
"""The process ID of the agent."""

_COLUMNS = [name for name in SPAN_COLUMNS if name != "run"]
_MODEL = 0
_LAYER = 1
_LIBRARY = 2


def status(probe: str, available: bool = True, **facts: Any) -> dict[str, Any]:
    """Return the status of a probe as the agent sends it."""
    return {
        "probe": probe,
        "available": available,
        "reason": "",
        "missing": {},
        "fault": "",
        **facts,
    }


def trace_reply(
    calls: int,
    probes: Sequence[Mapping[str, Any]] = (),
    layers: Sequence[Interval] = ((0, 100),),
    launches: Sequence[Interval] = (),
) -> Reply:
    """Return a reply of calls that take 2 µs with probes, and 1 µs without any.

    The call with number n starts at n times 10 µs. ``layers`` and ``launches`` have start and end
    in nanoseconds since the start of each call.
    """
    spans = _SpanColumns()
    for request in range(calls):
        first = request * 10_000
        spans.add(_MODEL, first, first + 2000, request)
        for start, end in layers:
            spans.add(_LAYER, first + start, first + end, request)
        for start, end in launches:
            spans.add(_LIBRARY, first + start, first + end, request)
    arrays = spans.arrays()
    arrays["plain"] = np.full(calls, 1000, "i8")
    arrays["time_0"] = np.array([0, 5], "i8")
    arrays["value_0"] = np.array([1.0, 2.0])
    facts = {
        "strings": ["", "predict", "conv", "launch", "Conv", "1 x 8"],
        "tracks": [[PROCESS, None]],
        "levels": ["model", "layer", "library"],
        "series": [["page-faults", "count", True]],
        "probes": list(probes),
        "process": PROCESS,
        "load": [-500, -100],
    }
    return Reply(facts, arrays)


class _SpanColumns:
    """Columns of spans as an agent sends them; its strings and levels have fixed numbers."""

    def __init__(self) -> None:
        self._rows: list[dict[str, int]] = []

    def add(self, level: int, start: int, end: int, request: int) -> None:
        row = dict.fromkeys(_COLUMNS, 0)
        row.update(level=level, name=level + 1, start=start, end=end, request=request, bytes=-1)
        if level == _LAYER:
            row.update(type=4, shape=5, bytes=64)
        self._rows.append(row)

    def arrays(self) -> dict[str, Array]:
        arrays = {}
        for name in _COLUMNS:
            values = [row[name] for row in self._rows]
            arrays[f"span_{name}"] = np.array(values, "i8")
        return arrays


Answer = Callable[[int], Reply]
"""Makes the reply of so many calls; may raise AgentError."""


def _default_answer(calls: int) -> Reply:
    return trace_reply(calls, [status("layers", stepwise=False), status("perf")])


class WarmUp(NamedTuple):
    """The seconds of each call of a warm-up."""

    latencies: Array


@dataclass
class FakeAgent:
    """Answers the requests of a trace.

    ``answers`` has the reply at a level by the number of calls; an answer may raise AgentError.
    ``latency`` is that of a call in seconds. ``traced`` collects the levels that were asked for,
    and ``environments`` those of the agents.
    """

    answers: dict[str, Answer] = field(default_factory=dict)
    latency: float = 1.0
    traced: list[str] = field(default_factory=list)
    environments: list[dict[str, str]] = field(default_factory=list)
    peaks_error: str = ""
    layer_variables: dict[str, str] = field(default_factory=dict)

    @property
    def target(self) -> TraceTarget:
        """The target of a trace that this agent answers."""
        return TraceTarget(self._open, self._batch, self._request, self.layer_variables)

    def run(self, *arguments: Any, **limits: Any) -> WarmUp:
        return WarmUp(np.full(3, self.latency))

    def trace(self, level: str, probes: Sequence[str], count: int, *arguments: Any) -> Reply:
        self.traced.append(level)
        answer = self.answers.get(level, _default_answer)
        return answer(count)

    def predict(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": arrays["x"] + 1}

    def peaks(self) -> dict[str, Any]:
        if self.peaks_error:
            raise AgentError(self.peaks_error)
        return {"flops": 1e9, "bytes": 1e9, "how": "by hand"}

    def structure(self, shapes: Mapping[str, Sequence[int]]) -> Any:
        raise AgentError("no structure")

    @contextlib.contextmanager
    def _open(self, environment: dict[str, str]) -> Iterator[Predictor]:
        self.environments.append(environment)
        yield cast(Predictor, self)

    def _batch(self, predictor: Predictor) -> dict[str, Array]:
        return {"x": np.zeros(2)}

    def _request(self, predictor: Predictor) -> PreparedRequest:
        return PreparedRequest(self._batch(predictor), lambda outputs: None)
