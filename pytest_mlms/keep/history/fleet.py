"""A history's values of candidates on the hosts of a fleet, in place of measuring them."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, func, select

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Estimate
from pytest_mlms.core.statistics import Interval
from pytest_mlms.decide.advice.candidates import Candidate
from pytest_mlms.decide.advice.hosts import LAST_RUNS, Host, runs_since_change
from pytest_mlms.decide.advice.measuring import widened
from pytest_mlms.decide.advice.parsing import PRICE
from pytest_mlms.decide.advice.record import Answers, UnknownError
from pytest_mlms.decide.advice.search import NoFurtherRun, Process
from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.known import parts_of_case
from pytest_mlms.keep.history.machine_class import device_kind
from pytest_mlms.keep.history.queries import PointRow, points
from pytest_mlms.provide.cases import Case

_FEWEST = 2
"""Runs that show by how much runs differ."""

_OF_MACHINE = ("machine", "core_kinds", "quantity")
_OF_CALLS = ("batch_size", "threads", "cores")
"""Parts that don't count for answers: items score a model on a stack once."""


@dataclass(frozen=True)
class HostedCandidate(Candidate):
    """A candidate on a host, whose class of machine is "" where the history doesn't know it.

    ``runs`` are its last ones on that class by quantity, the newest last.
    """

    host: Host
    machine: str
    runs: Mapping[str, Sequence[PointRow]]

    def words(self, with_manifest: bool) -> str:
        """Return what tells it from others."""
        return f"{super().words(with_manifest)} on {self.host.name}"

    @property
    def place(self) -> str:
        """The host that it ran on, and its class of machine."""
        return f"{self.host.name}: {self.machine}"

    @property
    def answering(self) -> object:
        """The key of its outputs, which depend on the class of machine, too."""
        return super().answering, self.machine


class Remembered:
    """Runs of candidates as a search's processes; each run, of several processes, counts as one."""

    def __init__(self, candidates: Sequence[HostedCandidate], objective: str) -> None:
        self._candidates = candidates
        self._objective = objective
        self._timed: list[deque[dict[str, float]]] = [deque() for _ in candidates]
        self._days: dict[int, tuple[str, str]] = {}

    def prepare(self, number: int) -> None:
        """Take the newest runs of a candidate; raises UnknownError where it isn't known enough.

        They are those since one of what was timed changed, and of answers the last one.
        """
        candidate = self._candidates[number]
        is_price = self._objective == PRICE.name
        _check_known(candidate, is_price)
        timed = {n: r for n, r in candidate.runs.items() if QUANTITIES[n].kind == "performance"}
        since = {name: runs_since_change([run.value for run in timed[name]]) for name in timed}
        name = min(since, key=since.__getitem__)
        count = since[name]
        if count < _FEWEST:
            changed = f" since its {name} changed" if count < len(timed[name]) else ""
            problem = f"a single run{changed}, which doesn't show how runs differ"
            raise UnknownError(f"the history has {problem}")
        used = [run for runs in timed.values() for run in runs[-count:]]
        used += [runs[-1] for name, runs in candidate.runs.items() if name not in timed]
        days = sorted(run.started[:10] for run in used)
        self._days[number] = (days[0], days[-1])
        for at in range(1, count + 1):
            values = {name: runs[-at].value for name, runs in timed.items()}
            if is_price:
                values[PRICE.name] = candidate.host.price_at(values["throughput"])
            self._timed[number].append(values)

    def measure(self, number: int) -> Process:
        """Return the next run, the newest first; raises NoFurtherRun.

        A host that has few of them is so compared with what others are now.
        """
        if not self._timed[number]:
            raise NoFurtherRun
        return Process(self._timed[number].popleft(), 0.0, {})

    def answers(self, number: int, risk: float) -> Answers:
        """Return the answers' quantities of the last run that scored them."""
        found = {}
        for name, runs in self._candidates[number].runs.items():
            if QUANTITIES[name].kind == "accuracy":
                found[name] = _estimate(runs[-1])
        wide = {name: widened(estimate, risk) for name, estimate in found.items()}
        return Answers(found, wide, 0.0)

    def reach(self, number: int, quantity: str, confidence: float) -> Interval:
        """Return nothing: the calls aren't in the history."""
        return Interval(float("inf"), 0.0)

    def turn(self) -> AbstractContextManager[None]:
        """Hold nothing: nothing is measured."""
        return nullcontext()

    def doubts(self, number: int) -> str:
        """Return how old the runs are that it was compared by."""
        own = self._days[number]
        others = [each for other, each in self._days.items() if other != number]
        text = f"runs from {own[0]} to {own[1]}"
        if others:
            first, last = min(each[0] for each in others), max(each[1] for each in others)
            text += f", those of others from {first} to {last}"
        return f"{text}; software may have changed since"


def _check_known(candidate: HostedCandidate, is_price: bool) -> None:
    """Raise UnknownError where a candidate's price, host or one of its quantities is missing."""
    host = candidate.host
    if is_price and host.price is None:
        raise UnknownError(f"{host.name} has no price in the file")
    if not candidate.machine:
        where = f"{host.name} with {candidate.case.device}"
        raise UnknownError(f"the history has no run on {where}")
    missing = [name for name, runs in candidate.runs.items() if not runs]
    if missing:
        known = f"no {' and no '.join(missing)} of it on {candidate.machine}"
        raise UnknownError(f"the history has {known}")


def _estimate(point: PointRow) -> Estimate:
    lacking = "" if point.low is not None and point.high is not None else "no interval is known"
    low = 0.0 if point.low is None else point.low
    high = float("inf") if point.high is None else point.high
    return Estimate(point.value, low, high, 0.95, point.replicates or 0, "inputs", lacking)


def on_hosts(
    connection: Connection,
    candidates: Sequence[Candidate],
    hosts: Sequence[Host],
    quantities_of: Callable[[Candidate], Collection[str]],
) -> list[HostedCandidate]:
    """Return candidates on each host, whose class of machine is that of its newest runs.

    A host whose newest run saw no GPU has only those on the CPU.
    """
    machines = {host: _machines_of(connection, host.name) for host in hosts}
    found = []
    for candidate in candidates:
        case, names = candidate.case, quantities_of(candidate)
        kind = device_kind(case.device)
        known = _runs_of(connection, case, names)
        for host in hosts:
            machine = machines[host].get(kind, "")
            if not machine and _is_without_gpu(connection, host.name, machines[host]):
                continue
            runs = {name: known.get((machine, name), ()) for name in names}
            found.append(HostedCandidate(case, candidate.options, host, machine, runs))
    return found


def _is_without_gpu(connection: Connection, host: str, machines: Mapping[str, str]) -> bool:
    """Return whether the newest run's class of machine, which has GPUs, is that of the CPU."""
    run = schema.run.c
    query = select(run.machine_class).where(run.host == host).order_by(run.started.desc()).limit(1)
    return "cpu" in machines and connection.scalar(query) == machines["cpu"]


def without_dearer(
    candidates: Sequence[HostedCandidate], say: Callable[[str], None]
) -> list[HostedCandidate]:
    """Return candidates without those on a host of whose class there is a cheaper one.

    They have the same runs. What is left out is told.
    """
    found = []
    for each in candidates:
        alike = [one for one in candidates if one.case is each.case and one.machine == each.machine]
        cheapest = min(alike, key=lambda one: one.host.price or math.inf)
        if each.machine and (each.host.price or 0.0) > (cheapest.host.price or math.inf):
            say(f"{each.label} is left out: {cheapest.host.name} is of the same class, and cheaper")
        else:
            found.append(each)
    return found


def _machines_of(connection: Connection, host: str) -> dict[str, str]:
    """Return the class of machine of a host's newest run by kind of device."""
    point, series = schema.point.c, schema.series.c
    newest = (
        select(point.series, func.max(point.started).label("started"))
        .where(point.host == host)
        .group_by(point.series)
        .subquery()
    )
    query = (
        select(series.parts)
        .join_from(newest, schema.series, series.id == newest.c.series)
        .order_by(newest.c.started.desc(), series.id)
    )
    found: dict[str, str] = {}
    for row in connection.execute(query):
        found.setdefault(row.parts["device"], row.parts["machine"])
    return found


def _runs_of(
    connection: Connection, case: Case, quantities: Iterable[str]
) -> dict[tuple[str, str], Sequence[PointRow]]:
    """Return the last runs of a performance case by class of machine and quantity.

    Quantities of answers are those of the accuracy items of its model on its stack. Of several
    series that are alike but for what does not count, the one with the newest run is taken.
    """
    found: dict[tuple[str, str], Sequence[PointRow]] = {}
    for name in quantities:
        kind = QUANTITIES[name].kind
        scored = replace(case, kind="accuracy", scenario=None)
        like = _comparable(parts_of_case(scored if kind == "accuracy" else case, {}), kind)
        columns = schema.series.c
        query = select(columns.id, columns.parts).where(
            columns.quantity == name,
            columns.name.startswith(f"{like['manifest']} {kind} ", autoescape=True),
        )
        for row in connection.execute(query).all():
            if _comparable(row.parts, kind) == like:
                runs = points(connection, row.id, LAST_RUNS, usable=True)
                key = (row.parts["machine"], name)
                if runs and (key not in found or found[key][-1].started < runs[-1].started):
                    found[key] = runs
    return found


def _comparable(parts: Mapping[str, Any], kind: str) -> Any:
    """Return the parts that are the same on other machines, as JSON has them."""
    left_out = {*_OF_MACHINE, *(_OF_CALLS if kind == "accuracy" else ())}
    kept = {name: value for name, value in parts.items() if name not in left_out}
    return json.loads(json.dumps(kept))
