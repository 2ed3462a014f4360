"""Two stacks in turns on the same cores: fresh pairs of processes, until what must be decided is
decided.

Measures and records; compare.py computes and decides. Only the side whose turn it is runs: the
other is stopped, since a framework's threads go on spinning for work and would take the cores from
it.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from pytest_mlms.agent.predictor import Clocks, Predictor, Turn
from pytest_mlms.agent.process import Array
from pytest_mlms.errors import MlmsError
from pytest_mlms.statistics import is_steady
from pytest_mlms.upgrade.decision import LEAST_ROUNDS, MOST_ROUNDS, Round, Side, call_waits

__all__ = [
    "SIDES",
    "AgentPair",
    "InterleavePlan",
    "RoundRecord",
    "SideName",
    "TurnPlan",
    "naming",
    "run_interleaved",
]

SideName = Literal["a", "b"]
SIDES: tuple[SideName, SideName] = ("a", "b")

_WINDOW, _WINDOWS = 8, 6  # pairs of a window of the warm-up, and windows at most
_LEAST_PAIRS, _MOST_PAIRS = 40, 2000
_TELLING_PAIRS = 6  # fewer have no interval at all
_TURN = 0.002  # seconds of calls in a turn, so that waking up is a small part of it
_MOST_CALLS = 200  # in a turn
_MUCH_SLOWER = 1.5
_PROBE = 1.0  # seconds that finding out how to measure may take
_REFILL = 1.02  # how much longer the first call of a turn takes where it has caches to fill again


@dataclass(frozen=True)
class InterleavePlan:
    """What to run: ``seconds`` of turns a round and ``budget`` seconds in all; ``cores`` those that
    may be used.

    ``threads`` of a side is how many cores it is held to; None: all of them.
    """

    seconds: float
    budget: float
    seed: int
    cores: Sequence[int] = ()
    threads: int | None = None

    @property
    def longest(self) -> float:
        """Seconds that the turns of a round may take: half of its share of the budget."""
        return self.budget / LEAST_ROUNDS / 2


@dataclass(frozen=True)
class TurnPlan:
    """A turn: calls that are timed, after calls that aren't."""

    count: int = 1
    skip: int = 0


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """A round as it was run, for the record: what it gave, and how."""

    round: Round
    facts: Mapping[str, Any]
    raw: Mapping[str, Array]
    outputs: Mapping[str, Mapping[str, Array]]


@dataclass
class AgentPair:
    """A fresh process of each side, one of them running at a time; ``local``: they aren't in a
    container of their own.

    ``labels`` are what errors call them.
    """

    a: Predictor
    b: Predictor
    labels: Mapping[SideName, str] = field(default_factory=lambda: {"a": "side A", "b": "side B"})
    local: bool = True
    batches: Sequence[Mapping[str, Array]] = ()
    clocks: dict[SideName, Clocks] = field(default_factory=dict)

    def __getitem__(self, side: SideName) -> Predictor:
        return self.a if side == "a" else self.b

    @contextlib.contextmanager
    def only(self, side: SideName) -> Iterator[Predictor]:
        """Let a side run for the length of the context, and stop it then where that can be done."""
        predictor, stops = self[side], self.stops(side)
        if stops:
            predictor.agent.resume()
        with naming(self.labels[side]):
            yield predictor
        if stops:
            predictor.agent.pause()

    def stops(self, side: SideName) -> bool:
        """Whether a side can be stopped while it has no turn."""
        return self.local and side in self.clocks and self.clocks[side].stoppable

    def turn(self, side: SideName, pace: TurnPlan, first: int = 0, outputs: bool = False) -> Turn:
        """Give a side its turn."""
        with self.only(side) as predictor:
            return predictor.turn(pace.count, pace.skip, first, outputs)


@contextlib.contextmanager
def naming(side: str) -> Iterator[None]:
    """Put the side in front of what is told of a fault."""
    try:
        yield
    except MlmsError as error:
        error.args = (f"{side}: {error}", *error.args[1:])
        raise


def run_interleaved(
    duel: InterleavePlan,
    open_pair: Callable[[Sequence[SideName], Sequence[int]], AbstractContextManager[AgentPair]],
    batches_for: Callable[[Predictor], Sequence[Mapping[str, Array]]],
    after_round: Callable[[int, RoundRecord, AgentPair], bool],
) -> int:
    """Run rounds until ``after_round``, which gets each one with its processes still alive, says
    that it is enough.

    At most six, and no further one that would pass the budget if it takes as long as those before
    it; what ``after_round`` does is no part of that. Return how many there were. The seed draws the
    order of everything and the cores of each round.
    """
    rng, spent = random.Random(duel.seed), 0.0
    for index in range(MOST_ROUNDS):
        began = time.monotonic()
        order = rng.sample(SIDES, 2)
        cores = sorted(
            rng.sample(list(duel.cores), min(duel.threads or len(duel.cores), len(duel.cores)))
        )
        with open_pair(order, cores) as pair:
            shift = _round(
                duel, pair, batches_for, rng, {"started_first": order[0], "cores": cores}
            )
            spent += time.monotonic() - began
            enough = after_round(index, shift, pair)
        if enough or spent + spent / (index + 1) > duel.budget:
            break
    return index + 1


def _round(
    duel: InterleavePlan,
    pair: AgentPair,
    batches_for: Callable[[Predictor], Any],
    rng: random.Random,
    facts: dict[str, Any],
) -> RoundRecord:
    began = time.monotonic()
    pair.batches = batches = batches_for(pair.a)
    for side in SIDES:
        with pair.only(side) as predictor:
            pair.clocks[side] = predictor.bind(batches)
    for side in SIDES:
        with pair.only(side):
            pass  # from here on they run in turns only
    firsts = {side: pair.turn(side, TurnPlan(), outputs=True) for side in rng.sample(SIDES, 2)}
    medians, warmup = _warm_up(duel, pair, rng)
    held = _hold(pair, medians, facts["cores"], rng)
    pace = _pace(pair, medians)
    turns, leads = _turns(duel, pair, pace, len(batches), rng)
    lasts = {side: pair.turn(side, TurnPlan(), outputs=True) for side in rng.sample(SIDES, 2)}
    made = {
        side: _side(pair[side], firsts[side], turns[side], lasts[side], pair.clocks[side])
        for side in SIDES
    }
    raw = {f"{name}_{side}": values for side in SIDES for name, values in _raw(made[side]).items()}
    facts.update(
        pairs=len(leads),
        calls=pace.count,
        skipped=pace.skip,
        calling_core=held,
        warmup_pairs=warmup,
        steady=all(is_steady(medians[side]) for side in SIDES),
        turns_exclusive=all(map(pair.stops, SIDES)),
        seconds=time.monotonic() - began,
        sides={side: _facts(pair[side], made[side]) for side in SIDES},
    )
    outputs: dict[str, Mapping[str, Array]] = {side: lasts[side].outputs for side in SIDES}
    return RoundRecord(
        Round(made["a"], made["b"]), facts, {**raw, "b_first": np.array(leads) == "b"}, outputs
    )


def _warm_up(
    duel: InterleavePlan, pair: AgentPair, rng: random.Random
) -> tuple[dict[SideName, list[float]], int]:
    """Run windows of pairs until neither side's median falls any more.

    Return all windows' medians, and the pairs.
    """
    medians: dict[SideName, list[float]] = {side: [] for side in SIDES}
    pairs, end = 0, time.monotonic() + duel.longest / 2
    while not all(is_steady(medians[side]) for side in SIDES) and len(medians["a"]) < _WINDOWS:
        taken: dict[SideName, list[float]] = {side: [] for side in SIDES}
        while len(taken["a"]) < _WINDOW and not (taken["a"] and time.monotonic() > end):
            for side in rng.sample(SIDES, 2):
                taken[side].append(float(_walls(pair.turn(side, TurnPlan()))[0]))
        for side in SIDES:
            medians[side].append(float(np.median(taken[side])))
        pairs += len(taken["a"])
        if time.monotonic() > end:
            break
    return medians, pairs


def _hold(
    pair: AgentPair,
    medians: Mapping[SideName, Sequence[float]],
    cores: Sequence[int],
    rng: random.Random,
) -> int | None:
    """Hold both sides' calling threads to one of the cores, drawn; return it, or None where that
    isn't done.

    No two cores are equally fast, and a thread that may choose finds another one in each turn. What
    gets much slower by it starts threads for each call, which are held with it: then both are let
    go again.
    """
    if len(cores) < 2:
        return cores[0] if cores else None
    core = rng.choice(list(cores))
    _hold_to(pair, [core])
    tries = max(1, min(_WINDOW, int(_PROBE / max(medians[side][-1] for side in SIDES))))
    taken = {
        side: np.median([_walls(pair.turn(side, TurnPlan()))[0] for _ in range(tries)])
        for side in SIDES
    }
    if any(taken[side] > _MUCH_SLOWER * medians[side][-1] for side in SIDES):
        _hold_to(pair, cores)
        return None
    return core


def _hold_to(pair: AgentPair, cores: Sequence[int]) -> None:
    for side in SIDES:
        with pair.only(side) as predictor:
            predictor.hold(cores)


def _pace(pair: AgentPair, medians: Mapping[SideName, Sequence[float]]) -> TurnPlan:
    """Return how long turns are.

    Some milliseconds, and with a call ahead where the first one fills caches again.
    """
    call = max(medians[side][-1] for side in SIDES)
    if call < _TURN:
        call = max(
            float(np.median(_walls(pair.turn(side, TurnPlan(_WINDOW, 1))))) for side in SIDES
        )
        return TurnPlan(max(1, min(_MOST_CALLS, math.ceil(_TURN / call))), 1)
    if call > _PROBE / _WINDOW:
        return TurnPlan()  # so long that filling the caches again is nothing beside it
    twice = np.array([_walls(pair.turn(side, TurnPlan(2))) for side in SIDES * (_WINDOW // 2)])
    first, second = np.median(twice, axis=0)
    return TurnPlan(1, 1 if first > _REFILL * second else 0)


def _turns(
    duel: InterleavePlan, pair: AgentPair, pace: TurnPlan, batches: int, rng: random.Random
) -> tuple[dict[SideName, list[Turn]], list[SideName]]:
    """Give both sides turns in an order drawn for each pair.

    Return the turns, and who led each pair.
    """
    turns: dict[SideName, list[Turn]] = {side: [] for side in SIDES}
    leads: list[SideName] = []
    began = time.monotonic()
    while len(leads) < _MOST_PAIRS:
        spent = time.monotonic() - began
        if (spent >= duel.seconds and len(leads) >= _LEAST_PAIRS) or (
            spent >= duel.longest and len(leads) >= _TELLING_PAIRS
        ):
            break
        order = rng.sample(SIDES, 2)
        for side in order:
            turns[side].append(pair.turn(side, pace, len(leads) % batches))
        leads.append(order[0])
    return turns, leads


def _walls(turn: Turn) -> Array:
    return np.asarray(turn.times["end"] - turn.times["start"])


def _side(
    predictor: Predictor, first: Turn, turns: Sequence[Turn], last: Turn, clocks: Clocks
) -> Side:
    waits = [
        call_waits(turn.times["start"], turn.times["end"], turn.times["wait"], turn.times["at"])
        for turn in (turns if clocks.wait else ())
    ]
    spent = [
        (turn.times["cpu"][-1] - turn.times["cpu"][0]) / len(turn.times["start"]) for turn in turns
    ]
    return Side(
        wall=np.array([_walls(turn) for turn in turns]),
        wait=np.array(waits) if clocks.wait else None,
        cpu=np.array(spent),
        device=np.array([turn.times["device"] for turn in turns]) if clocks.device else None,
        load_seconds=predictor.load_seconds - predictor.load_waited,
        first_seconds=float(_walls(first)[0] - (first.times["wait"][-1] - first.times["wait"][0])),
        peak_bytes=last.peak_bytes if predictor.peak_is_since_load else None,
    )


def _raw(side: Side) -> dict[str, Array]:
    arrays = {"wall": side.wall, "wait": side.wait, "cpu": side.cpu, "device": side.device}
    return {name: values for name, values in arrays.items() if values is not None}


def _facts(predictor: Predictor, side: Side) -> dict[str, Any]:
    return {
        "pid": predictor.agent.process.pid,
        "versions": dict(predictor.versions),
        "python": predictor.python,
        "executable": predictor.executable,
        "device_used": predictor.device,
        "threads_used": predictor.threads,
        "start_seconds": predictor.start_seconds,
        "load_seconds": side.load_seconds,
        "first_seconds": side.first_seconds,
        "peak_bytes": side.peak_bytes,
    }
