"""Loads on a model in an agent, by our own generator or LoadGen: their plans and their records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from mlms_predictors._run.load import READING, RECORD, TOKEN
from mlms_predictors._run.load_request import READINGS, RECORDS, SAMPLES, SCHEDULED, TOKENS
from mlms_predictors._run.protocol import ProtocolError
from mlms_predictors._run.replies import DeviceBytes, LoadRunReply

from pytest_mlms.core.errors import AgentError
from pytest_mlms.core.memory import available_memory
from pytest_mlms.measure.agent.channel import Energy, read_energy
from pytest_mlms.measure.agent.process import Array


class Batcher(NamedTuple):
    """A dynamic batcher: it joins queries that wait to one call of the model.

    A call takes up to ``max_batch`` queries. It waits for that many, for ``max_delay`` nanoseconds
    from the arrival of the first of them.
    """

    max_batch: int
    max_delay: int


class Answers(NamedTuple):
    """The tokens of queries, each by LoadGen's definition in whole nanoseconds.

    ``counts`` are their numbers, and ``first`` is when the first of each came. ``each`` is
    (last - first) / (tokens - 1), rounded down, and -1 of an answer with one token.
    """

    counts: Array
    first: Array
    each: Array


@dataclass(frozen=True)
class LoadPlan:
    """The queries of a load and the instances that serve them.

    Attributes:
        samples: For each query the places of its inputs in the batches that are sent along: whole
            numbers, ``samples_per_query`` for each query, one query after another.
        longest: Seconds after which no call starts any more.
        scheduled: When each query arrives: int64 nanoseconds from the start, ascending. None: a
            query arrives when the one before is done, and ``samples`` begin again at their end.
        samples_per_query: The inputs of a query, which are joined on the first axis.
        instances: Copies of the model that serve queries at the same time.
        batcher: The dynamic batcher; None: a call serves one query.
        seconds: Without ``scheduled``: the load goes on for at least so long,
        least: and for at least so many queries.
        idle_seconds: Seconds before the load in which the power of the idle device is measured.
    """

    samples: Array
    longest: float
    scheduled: Array | None = None
    samples_per_query: int = 1
    instances: int = 1
    batcher: Batcher | None = None
    seconds: float = 0.0
    least: int = 1
    idle_seconds: float = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError for a plan that can't be run."""
        if not len(self.samples) or len(self.samples) % self.samples_per_query:
            raise ValueError("the samples are not whole queries")
        if self.scheduled is None:
            if self.instances > 1 or self.batcher is not None:
                raise ValueError("queries that follow one another need one instance, no batcher")
            return
        if len(self.scheduled) * self.samples_per_query != len(self.samples):
            raise ValueError("there are not as many samples as the scheduled queries take")
        if self.scheduled.dtype != np.int64 or self.scheduled[0] < 0:
            raise ValueError("the schedule is not in whole nanoseconds from the start")
        if (self.scheduled[1:] < self.scheduled[:-1]).any():
            raise ValueError("the schedule is not in ascending order")


@dataclass(frozen=True)
class LoadRun:
    """The records of the queries that were served, in their order.

    Times are int64 nanoseconds from the start of the load on one monotonic clock. ``issued`` is
    later than ``scheduled`` by our own lag, and not by any wait for an instance.

    Attributes:
        queries: The number of each query in the plan.
        scheduled: When it arrived, or should have.
        issued: When it could be served at the earliest.
        started: When the call that served it began.
        done: When its outputs were in host memory.
        batch_sizes: The number of inputs of the call that served it.
        readings: ``at``, ``cpu`` and ``wait``: int64 nanoseconds from the start, CPU time of the
            agent and wait of the instances for a core, both since the start.
        tokens: The number of the query and the time of each token, in their order; as many tokens
            as were generated.
        complete: True if the load came to its end, and all queries of a schedule were served.
        instances: The copies of the model.
        instance_bytes: The resident memory that each copy after the first took.
        peak_bytes: The peak of resident memory, without what is our own; None if not told.
        energy: The energy of the device; None if not told.
        busy: The threads that gained CPU time; None if not told.
        device_memory: The peak on a GPU; None on the CPU, or if not told.
    """

    queries: Array
    scheduled: Array
    issued: Array
    started: Array
    done: Array
    batch_sizes: Array
    readings: Mapping[str, Array]
    complete: bool
    instances: int
    instance_bytes: tuple[int, ...] = ()
    peak_bytes: int | None = None
    energy: Energy | None = None
    busy: int | None = None
    device_memory: DeviceBytes | None = None
    tokens: Array = field(default_factory=lambda: np.empty((0, len(TOKEN)), np.int64))

    @property
    def latencies(self) -> Array:
        """Seconds from the scheduled time of each query until it was done."""
        return np.asarray((self.done - self.scheduled) * 1e-9)

    @property
    def issue_delays(self) -> Array:
        """Seconds by which our own code delayed each query."""
        return np.asarray((self.issued - self.scheduled) * 1e-9)

    @property
    def answers(self) -> Answers | None:
        """The tokens of each query; None where nothing was generated, or served."""
        if not len(self.tokens):
            return None
        queries, at = self.tokens.T
        counts = np.bincount(np.searchsorted(self.queries, queries), minlength=len(self.queries))
        ends = np.cumsum(counts)
        first = at[ends - counts]
        each = (at[ends - 1] - first) // np.maximum(counts - 1, 1)
        return Answers(counts, first, np.where(counts > 1, each, -1))


class LoadLost(AgentError):
    """A load whose agent ended or failed; ``run`` is what had been received."""

    def __init__(self, error: AgentError, run: LoadRun) -> None:
        super().__init__(error)
        self.killed = error.killed
        self.run = run


class LoadInterrupted(KeyboardInterrupt):
    """Ctrl-C in a load; ``run`` is what had been received."""

    def __init__(self, run: LoadRun) -> None:
        super().__init__()
        self.run = run


def request_fields(plan: LoadPlan, batches: int) -> dict[str, Any]:
    """Return the fields of a request for a load."""
    batcher = plan.batcher or Batcher(1, 0)
    return {
        "batches": batches,
        "per_query": plan.samples_per_query,
        "instances": plan.instances,
        "most": batcher.max_batch,
        "max_delay": batcher.max_delay,
        "seconds": plan.seconds,
        "least": plan.least,
        "longest": plan.longest,
        "idle": plan.idle_seconds,
        "available": available_memory(),
    }


def schedule_arrays(plan: LoadPlan) -> list[tuple[str, Array]]:
    """Return the arrays of a request that come before the inputs."""
    arrays = [(SAMPLES, np.asarray(plan.samples, np.int32))]
    if plan.scheduled is not None:
        arrays.append((SCHEDULED, plan.scheduled))
    return arrays


class LoadRecords:
    """The records of a load as they come in, in parts."""

    def __init__(self, plan: LoadPlan) -> None:
        self._plan = plan
        self._parts: list[Array] = []
        self._readings: list[Array] = []
        self._tokens: list[Array] = []
        self._count = 0
        planned = 0 if plan.scheduled is None else len(plan.scheduled)
        self._served = np.zeros(planned, bool)

    def add(self, arrays: dict[str, Array]) -> None:
        """Move a part out of the arrays of a reply; raises ProtocolError where it is wrong."""
        records = _table(arrays, RECORDS, RECORD)
        readings = _table(arrays, READINGS, READING)
        queries, scheduled, issued, started, done, sizes = records.T
        in_order = (scheduled <= issued) & (issued <= started) & (started <= done)
        if not (in_order & (sizes > 0)).all():
            raise ProtocolError("a query was issued before it was due, or done before that")
        self._check_queries(queries, scheduled)
        if TOKENS in arrays:
            self._tokens.append(_table(arrays, TOKENS, TOKEN))
        self._parts.append(records)
        self._readings.append(readings)
        self._count += len(records)

    def run(self, record: LoadRunReply | None = None) -> LoadRun:
        """Return the records so far, with the readings at the end of the load if it came."""
        records = _joined(self._parts, RECORD)
        records = records[np.argsort(records[:, 0], kind="stable")]
        readings = _joined(self._readings, READING)
        columns = np.ascontiguousarray(records.T)
        tokens = _joined(self._tokens, TOKEN)
        of_known = np.isin(tokens[:, 0], columns[0])  # a block may have some ahead of a query
        if record is not None and not of_known.all():
            raise ProtocolError("there are tokens of a query that was not served")
        tokens = tokens[of_known]
        tokens = tokens[np.argsort(tokens[:, 0], kind="stable")]
        if record is not None:
            _check_tokens(tokens, columns)
        elif len(np.unique(tokens[:, 0])) < len(records):
            tokens = tokens[:0]
        run = LoadRun(
            queries=columns[0],
            scheduled=columns[1],
            issued=columns[2],
            started=columns[3],
            done=columns[4],
            batch_sizes=columns[5],
            readings=dict(zip(READING, readings.T, strict=True)),
            complete=record is not None and bool(self._served.all()),
            instances=self._plan.instances,
            tokens=tokens,
        )
        if record is None:
            return run
        return replace(
            run,
            instance_bytes=tuple(record.instance_bytes),
            peak_bytes=record.peak_rss - record.own_bytes,
            energy=read_energy(record),
            busy=record.busy,
            device_memory=record.device_memory,
        )

    def _check_queries(self, queries: Array, scheduled: Array) -> None:
        plan = self._plan.scheduled
        if plan is None:
            expected = np.arange(self._count, self._count + len(queries))
            if not np.array_equal(queries, expected):
                raise ProtocolError("the queries are not those that follow")
            return
        if len(queries) and not (queries.min() >= 0 and queries.max() < len(plan)):
            raise ProtocolError("there is a query that was not scheduled")
        if not np.array_equal(plan[queries], scheduled):
            raise ProtocolError("a query has another scheduled time than was asked for")
        if self._served[queries].any() or len(np.unique(queries)) != len(queries):
            raise ProtocolError("a query was served twice")
        self._served[queries] = True


def _check_tokens(tokens: Array, columns: Array) -> None:
    """Raise ProtocolError where tokens are not of all queries, or outside of their calls."""
    if not len(tokens):
        return
    queries, _, _, started, done, _ = columns
    places = np.searchsorted(queries, tokens[:, 0])
    if len(np.unique(places)) != len(queries):
        raise ProtocolError("there is a query without a token, and others with some")
    at = tokens[:, 1]
    if (
        (at < started[places]).any()
        or (at > done[places]).any()
        or ((np.diff(at) < 0) & (np.diff(places) == 0)).any()
    ):
        raise ProtocolError("a token has a time outside of its call, or before the last token")


def _table(arrays: dict[str, Array], name: str, columns: tuple[str, ...]) -> Array:
    table = arrays.pop(name, None)
    if table is None or table.dtype != np.int64 or table.ndim != 2:
        raise ProtocolError(f"there is no table {name!r} of int64")
    if table.shape[1] != len(columns):
        raise ProtocolError(f"table {name!r} has {table.shape[1]} columns, not {len(columns)}")
    return table


def _joined(parts: list[Array], columns: tuple[str, ...]) -> Array:
    empty = np.empty((0, len(columns)), np.int64)
    return np.concatenate([empty, *parts])


@dataclass(frozen=True)
class LoadGenPlan:
    """A run of LoadGen, and the instances that serve its queries.

    Attributes:
        scenario: LoadGen's name of the scenario, such as "Server".
        settings: Settings by their names in LoadGen's ``TestSettings``.
        longest: Seconds that the run may take.
        mode: LoadGen's name of the mode: "PerformanceOnly" or "AccuracyOnly".
        samples_per_query: The inputs of a query of MultiStream, which are one call.
        instances: Copies of the model that serve queries at the same time.
        batcher: The dynamic batcher; None: a call serves one query.
    """

    scenario: str
    settings: Mapping[str, Any]
    longest: float
    mode: str = "PerformanceOnly"
    samples_per_query: int = 1
    instances: int = 1
    batcher: Batcher | None = None

    def request_fields(self, batches: int) -> dict[str, Any]:
        """Return the fields of the request, with as many batches."""
        batcher = self.batcher or Batcher(1, 0)
        return {
            "scenario": self.scenario,
            "mode": self.mode,
            "settings": dict(self.settings),
            "batches": batches,
            "per_query": self.samples_per_query,
            "instances": self.instances,
            "most": batcher.max_batch,
            "max_delay": batcher.max_delay,
            "seconds": 0.0,
            "least": 0,
            "longest": self.longest,
            "idle": 0.0,
            "available": available_memory(),
        }
