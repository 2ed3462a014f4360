"""What a history knows of candidates on the hosts of a fleet, in place of measuring them."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, select

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Estimate
from pytest_mlms.core.statistics import Interval
from pytest_mlms.decide.advice.candidates import Candidate
from pytest_mlms.decide.advice.hosts import LAST_RUNS, Host
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
_APART = 1.05
"""By what factor a run is outside of others."""
_NEWEST = 200
"""Points of a host by which its class is known: older ones may be of other hardware."""

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
        """Where it ran."""
        return f"{self.host.name}: {self.machine}"

    @property
    def answering(self) -> object:
        """What its outputs depend on: also the class of machine."""
        return super().answering, self.machine


class Remembered:
    """Runs of candidates as a search's processes; each run, of several processes, counts as one."""

    def __init__(self, candidates: Sequence[HostedCandidate], objective: str) -> None:
        self._candidates = candidates
        self._objective = objective
        self._timed: list[deque[dict[str, float]]] = [deque() for _ in candidates]

    def prepare(self, number: int) -> None:
        """Raise UnknownError where runs, quantities or the price are missing."""
        candidate = self._candidates[number]
        runs = candidate.runs
        is_price = self._objective == PRICE.name
        if is_price and candidate.host.price is None:
            raise UnknownError(f"{candidate.host.name} has no price in the file")
        if not candidate.machine:
            where = f"{candidate.host.name} with {candidate.case.device}"
            raise UnknownError(f"the history has no run on {where}")
        timed = {n: each for n, each in runs.items() if QUANTITIES[n].kind == "performance"}
        missing = [name for name in runs if not runs[name]]
        if missing:
            known = f"no {' and no '.join(missing)} of it on {candidate.machine}"
            raise UnknownError(f"the history has {known}")
        count = min(map(len, timed.values()))
        if count < _FEWEST:
            raise UnknownError("the history has a single run, which doesn't show how runs differ")
        for at in range(-count, 0):
            values = {name: each[at].value for name, each in timed.items()}
            if is_price:
                values[PRICE.name] = candidate.host.price_at(values["throughput"])
            self._timed[number].append(values)

    def measure(self, number: int) -> Process:
        """Return the next run, the oldest first; raises NoFurtherRun."""
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
        """Return how old the runs are, and what the last one differs in from those before."""
        runs = self._candidates[number].runs
        first = min(each[0].started for each in runs.values())
        last = max(each[-1].started for each in runs.values())
        text = f"runs from {first[:10]} to {last[:10]}; software may have changed since"
        for name, each in runs.items():
            before = [point.value for point in each[:-1]]
            if before and not min(before) / _APART <= each[-1].value <= max(before) * _APART:
                text += f"; {name} of the last one is outside of those before"
        return text


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
    """Return candidates on each host, whose class of machine is that of its newest runs."""
    machines = {host: _machines_of(connection, host.name) for host in hosts}
    found = []
    for candidate in candidates:
        case, names = candidate.case, quantities_of(candidate)
        known = _runs_of(connection, case, names)
        for host in hosts:
            machine = machines[host].get(device_kind(case.device), "")
            runs = {name: known.get((machine, name), ()) for name in names}
            found.append(HostedCandidate(case, candidate.options, host, machine, runs))
    return found


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
    """Return the class of machine of a host by kind of device."""
    point, series = schema.point.c, schema.series.c
    query = (
        select(series.parts)
        .join_from(schema.point, schema.series, series.id == point.series)
        .where(point.host == host)
        .order_by(point.started.desc())
        .limit(_NEWEST)
    )
    found: dict[str, str] = {}
    for row in connection.execute(query):
        found.setdefault(row.parts["device"], row.parts["machine"])
    return found


def _runs_of(
    connection: Connection, case: Case, quantities: Iterable[str]
) -> dict[tuple[str, str], Sequence[PointRow]]:
    """Return the last runs of a performance case by class of machine and quantity.

    Quantities of answers are those of the accuracy items of its model on its stack.
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
                found[row.parts["machine"], name] = runs
    return found


def _comparable(parts: Mapping[str, Any], kind: str) -> Any:
    """Return the parts that are the same on other machines, as JSON has them."""
    left_out = {*_OF_MACHINE, *(_OF_CALLS if kind == "accuracy" else ())}
    kept = {name: value for name, value in parts.items() if name not in left_out}
    return json.loads(json.dumps(kept))
