"""Interleaved measurement of two stacks: rounds of turns, in a fresh pair of agents each.

This module measures and records; ``decision`` computes and decides. Only the side with the turn
runs. The other side is stopped, because the threads of a framework go on spinning while they wait
for work, and would take the cores from it.
"""

from __future__ import annotations

import copy
import functools
import math
import random
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.statistics import is_steady
from pytest_mlms.core.token_times import TokenTimes
from pytest_mlms.decide.upgrade.agents import AgentPair, TurnPlan
from pytest_mlms.decide.upgrade.crash import EXITS_TO_FAIL, Exits
from pytest_mlms.decide.upgrade.figures import centre_of, slow_calls
from pytest_mlms.decide.upgrade.interleave_plan import (
    InterleavePlan,
    TurnWatch,
    durations,
    ratios_of,
    undisturbed,
    waits,
)
from pytest_mlms.decide.upgrade.late_calls import LateCalls, RoundGrowth
from pytest_mlms.decide.upgrade.round_load import LoadRunner, LoadStrategy, RoundLoad
from pytest_mlms.decide.upgrade.round_record import RoundRecord, SideRecord
from pytest_mlms.decide.upgrade.rounds import (
    SIDES,
    Array,
    Outputs,
    Round,
    RoundInputs,
    Side,
    SideName,
)
from pytest_mlms.measure.agent.predictor import Clocks, Predictor, Turn, bytes_above_load
from pytest_mlms.measure.evaluate.steadiness import SUSPECT_GROWTH, even_out
from pytest_mlms.measure.evaluate.timed_inputs import (
    cycle_of,
    elements_of,
    fill_caches,
    groups_of,
    mix_of,
)
from pytest_mlms.warning_types import MlmsKilled

LEAST_SKIPPED = 1
"""Calls at the start of each turn of short calls that aren't timed, at least."""

TURNS_AGAIN = 3
"""Turns of each input that earlier rounds showed as slower."""

WINDOW_PAIRS = 8
"""Pairs of a window of the warm-up, which has two windows at least."""

OpenPair = Callable[[Sequence[SideName], Sequence[int]], AbstractContextManager[AgentPair]]
"""Starts both sides, in the order and on the cores given."""

Batches = Callable[[Predictor], Sequence[Outputs]]
"""Returns the batches of inputs that both sides are timed on."""

KeepPart = Callable[[int, Mapping[str, Array]], None]
"""Keeps the arrays of a round, by its index, whose load did not come to its end."""

T = TypeVar("T")
Turns = dict[SideName, list[Turn]]

_WINDOW_SECONDS = 0.03  # after which half of its pairs are enough
_MOST_WINDOWS = 6
_TURN_SECONDS = 0.002  # so that waking up is a small part of a turn
_MOST_CALLS = 200  # in a turn
_MUCH_SLOWER = 1.5
_PROBE_SECONDS = 1.0  # that finding out how to measure may take
_MOST_DRAWS = 1 << 31
_ENERGY_SECONDS = 0.3  # of calls, longer where a counter takes longer to be right
_STEADY = 1.02  # ratio of a call of a turn to later ones from which it isn't one of the start
_PROBED_CALLS = 16  # of a turn
_PROBED_SECONDS = 0.025  # of a turn
_MOST_SKIPPED = 8
_IDLE_SECONDS = 0.05
_PLANNED_ROUNDS = 2  # that find out how long turns are


class MeasuredRound(NamedTuple):
    """A round: its raw measurements, its record, and the outputs of its last calls.

    ``first_outputs`` are those of the first call of each process. ``first_sides`` says for each
    pair of turns which side began. ``load`` is None where there is none, and ``queries`` has its
    arrays.
    """

    raw: Round
    record: RoundRecord
    first_sides: Sequence[SideName]
    outputs: Mapping[SideName, Outputs]
    load: RoundLoad | None = None
    queries: Mapping[str, Array] = MappingProxyType({})
    inputs: RoundInputs | None = None
    first_outputs: Mapping[SideName, Outputs] = MappingProxyType({})

    def arrays(self) -> dict[str, Array]:
        """Return the arrays of ``pairs-N.npz`` by name."""
        arrays = {"b_first": np.array(self.first_sides) == "b", **self.queries}
        for side, raw in zip(SIDES, self.raw, strict=True):
            for name, values in raw.arrays().items():
                arrays[f"{name}_{side}"] = values
        if self.inputs is not None:
            arrays["batch"] = self.inputs.numbers
            arrays["group"] = self.inputs.groups
            if any(self.inputs.elements):
                arrays["elements"] = np.array(self.inputs.elements)
        return arrays


def run_interleaved(
    plan: InterleavePlan,
    open_pair: OpenPair,
    batches_for: Batches,
    after_round: Callable[[int, MeasuredRound, AgentPair], bool],
    keep_part: KeepPart = lambda index, arrays: None,
    is_for_guards: Callable[[], bool] = lambda: False,
) -> None:
    """Run rounds until ``after_round`` returns that they are enough.

    ``after_round`` gets each round while its agents are alive; what it does is no part of the
    budget. ``keep_part`` gets what there is of a round whose load is interrupted, or whose agent
    dies under it. There is no further round that would exceed the budget if it takes as long as
    those before, but those up to the first that may fail an item which ``is_for_guards``: whose
    gates passed, while a guard looks worse.

    Where the candidate seems to fail more often at its exit, processes are started that only end:
    as many as may show it, or that one failure is chance, and more in a time that is the budget
    once more.
    """
    earlier = EarlierRounds(LateCalls(plan.watches_late))
    _Rounds(plan, open_pair, batches_for, after_round, keep_part, is_for_guards, earlier).run()


@dataclass(frozen=True)
class EarlierRounds:
    """Facts that rounds hand on: late calls, logs of B / A, slow calls, growths, plans of turns.

    ``call_seconds`` are those that a call of both sides takes in turns, with all that is beside it,
    and ``mean_calls`` those of a call alone, of the slower side.
    """

    late_calls: LateCalls
    changes: list[float] = field(default_factory=list)
    slow_calls: list[tuple[int, int]] = field(default_factory=list)
    call_seconds: list[float] = field(default_factory=list)
    mean_calls: list[float] = field(default_factory=list)
    growths: list[Mapping[SideName, float]] = field(default_factory=list)
    probes: list[Mapping[SideName, Array]] = field(default_factory=list)
    turn_plans: list[TurnPlan] = field(default_factory=list)


class KilledOnce:
    """Tries once more what the candidate was killed in, which may happen once."""

    def __init__(self) -> None:
        self._is_spent = False

    def unless_killed(self, step: Callable[[], T]) -> T:
        """Return the result of a step, of a second try the first time that the candidate is killed.

        The kernel or a person may kill any process.
        """
        try:
            return step()
        except MlmsError as error:
            if self._is_spent or not error.killed or error.side != "b":
                raise
            self._is_spent = True
            warnings.warn(f"{error}\n  it was started once more", MlmsKilled, stacklevel=3)
        return step()


@dataclass
class _Rounds:
    """The rounds of a run: how many were ``measured``, and the seconds that they ``spent``."""

    plan: InterleavePlan
    open_pair: OpenPair
    batches_for: Batches
    after_round: Callable[[int, MeasuredRound, AgentPair], bool]
    keep_part: KeepPart
    is_for_guards: Callable[[], bool]
    earlier: EarlierRounds
    measured: int = 0
    spent: float = 0.0
    kills: KilledOnce = field(default_factory=KilledOnce)
    exits: Exits | None = None
    batches: Sequence[Outputs] = ()
    spent_on_exits: float = 0.0

    def run(self) -> None:
        """Run rounds until they are enough, then what else shows how processes end."""
        rng = random.Random(self.plan.seed)
        self._run_rounds(rng)
        if self.exits is not None:
            self._end_more(self.exits, rng, lambda exits: exits.are_suspect)

    def _run_rounds(self, rng: random.Random) -> None:
        """Run rounds until they are enough, and one again where the candidate was killed in it."""
        load = self.plan.load_strategy()
        if self.plan.fills_caches:
            self.kills.unless_killed(lambda: self._fill_caches(self.plan.draw_cores(rng)))
        order = list(SIDES)  # at first, as what the baseline takes bounds what the candidate may
        for index in range(self.plan.rounds.most):
            if index:
                order = order[::-1] if index % 2 else rng.sample(SIDES, 2)  # in blocks of two
            if self.kills.unless_killed(functools.partial(self._round, order, rng, load)):
                return
            if self.exits is not None and self.exits.always_differ:
                self._end_more(self.exits, rng, lambda exits: exits.always_differ)
            rounds = self.plan.rounds
            is_guarded = rounds.least <= index + 1 < rounds.to_fail and self.is_for_guards()
            if self.spent + self.spent / (index + 1) > self.plan.budget and not is_guarded:
                return

    def _fill_caches(self, cores: Sequence[int]) -> None:
        with self.open_pair(SIDES, cores) as pair:
            batches = self.batches_for(pair.a)
            for side in SIDES:
                with pair.running(side) as predictor:
                    fill_caches(predictor, batches)

    def _round(
        self, order: Sequence[SideName], rng: random.Random, load: LoadStrategy | None
    ) -> bool:
        """Measure a round; return whether there are enough."""
        index = self.measured
        earlier = copy.deepcopy(self.earlier)  # a round that is killed tells later ones nothing
        began = time.monotonic()
        cores = self.plan.draw_cores(rng)
        with self.open_pair(order, cores) as pair:
            self.exits = pair.exits
            of_round = self.plan.for_round(
                earlier.changes,
                self.is_for_guards(),
                earlier.slow_calls,
                earlier.call_seconds,
            )
            runner = RoundRunner(of_round, pair, cores, rng, earlier)
            measured = runner.run(self.batches_for, order)
            self.batches = pair.batches
            if load is not None:
                keep = functools.partial(self.keep_part, index)
                measured = runner.with_load(measured, load, keep)
            self.measured += 1
            self.earlier = earlier
            self.spent += time.monotonic() - began
            return self.after_round(index, measured, pair)

    def _end_more(
        self, exits: Exits, rng: random.Random, is_wanted: Callable[[Exits], bool]
    ) -> None:
        """End further processes after a call each, as long as these exits are wanted."""
        exits.only_end = True
        while exits.are_suspect and is_wanted(exits):
            if exits.counts.exits > EXITS_TO_FAIL and self.spent_on_exits > self.plan.budget:
                break
            began = time.monotonic()
            order, cores = rng.sample(SIDES, 2), self.plan.draw_cores(rng)
            self.kills.unless_killed(functools.partial(self._call_and_end, order, cores))
            self.spent_on_exits += time.monotonic() - began
        exits.only_end = False

    def _call_and_end(self, order: Sequence[SideName], cores: Sequence[int]) -> None:
        with self.open_pair(order, cores) as pair:
            pair.bind(self.batches)
            for side in SIDES:
                pair.turn(side, TurnPlan())


class _WarmUp(NamedTuple):
    """Medians of the warm-up's windows in seconds, by side, and how many pairs it took.

    ``spent`` are the seconds of all its calls, those of other shapes too, by side.
    """

    medians: Mapping[SideName, Sequence[float]]
    pairs: int
    spent: Mapping[SideName, float]

    @property
    def steady(self) -> bool:
        """True if neither side's median falls any more."""
        return all(is_steady(self.medians[side]) for side in SIDES)

    @property
    def slowest(self) -> float:
        """Seconds of a call of the slower side, in the last window."""
        return max(self.medians[side][-1] for side in SIDES)


class RoundRunner:
    """The steps of one round: warm-up, choice of core and of the length of turns, turns, load."""

    def __init__(
        self,
        plan: InterleavePlan,
        pair: AgentPair,
        cores: Sequence[int],
        rng: random.Random,
        earlier: EarlierRounds,
    ) -> None:
        self._earlier = earlier
        self._plan = plan
        self._pair = pair
        self._cores = cores
        self._rng = rng

    def run(self, batches_for: Batches, started_order: Sequence[SideName]) -> MeasuredRound:
        """Measure the round; sides have their first turns in the order in which they started."""
        pair = self._pair
        began = time.monotonic()
        batches = batches_for(pair.a)
        pair.bind(batches)
        first_turns = self._turn_with_outputs(started_order)
        warm_up = self._warm_up()
        calling_core = self._hold_calling_threads(warm_up)
        turn_plan, starts = self._plan_turns(warm_up)

        earlier = self._earlier
        watches_growth = self._plan.watches_growth or _seems_to_leak(earlier.growths)
        memory = RoundGrowth(pair, watches_growth, self._plan.longest_turns)
        turns, first_sides, places = self._run_turns(turn_plan)
        again, numbers_again = self._time_again(turn_plan)
        last_turns = self._turn_with_outputs(self._draw_order())

        calls = len(first_sides) * (turn_plan.skip + turn_plan.count)
        calls += len(numbers_again) * (turn_plan.skip + 1)
        earlier.mean_calls.append(max(self._mean_call(turns[side]) for side in SIDES))
        slowest = float(np.median(earlier.mean_calls))  # as few turns may have short calls only
        growth = memory.growth(calls, slowest, is_first=not earlier.growths)
        earlier.growths.append(growth)
        change = earlier.changes[-1]
        late = earlier.late_calls.run(pair, turn_plan, slowest, change, self._draw_order)

        joules = self._joules_per_input()
        idle = self._idle_cpu()
        sides: dict[SideName, Side] = {}
        for side in SIDES:
            turns_of_side = (first_turns[side], turns[side], last_turns[side])
            measured = _measured_side(pair[side], pair.clocks[side], *turns_of_side)
            sides[side] = replace(
                measured,
                growth=growth[side],
                warm_up_seconds=warm_up.spent[side],
                late_seconds=late.seconds.get(side),
                all_times=late.all_times.get(side),
                joules=joules.get(side),
                idle_cpu=idle[side],
            )
        record = RoundRecord(
            started_first=started_order[0],
            started_together=pair.together,
            cores=self._cores,
            pairs=len(first_sides),
            calls=turn_plan.count,
            skipped=turn_plan.skip,
            calling_core=calling_core,
            warmup_pairs=warm_up.pairs,
            steady=warm_up.steady,
            starts=starts,
            turns_exclusive=pair.exclusive,
            seconds=time.monotonic() - began,
            sides={side: _side_record(pair[side], sides[side]) for side in SIDES},
        )

        raw = Round(sides["a"], sides["b"])
        outputs = {side: last_turns[side].outputs for side in SIDES}
        inputs = RoundInputs(
            numbers=cycle_of(batches)[places],
            groups=groups_of(batches),
            mix=mix_of(batches),
            elements=elements_of(batches),
            again=self._round_again(sides, again) if numbers_again else None,
            numbers_again=numbers_again,
        )
        earlier.slow_calls.append(slow_calls(raw, inputs))
        first_outputs = {side: first_turns[side].outputs for side in SIDES}
        return MeasuredRound(
            raw, record, first_sides, outputs, inputs=inputs, first_outputs=first_outputs
        )

    def _round_again(self, sides: Mapping[SideName, Side], again: Turns) -> Round:
        """Return the turns of inputs that were timed again, in the form of a round."""
        found = []
        for side in SIDES:
            times: dict[str, Any] = _times_of(again[side], self._pair.clocks[side])
            found.append(replace(sides[side], **times))
        return Round(*found)

    def with_load(
        self, measured: MeasuredRound, strategy: LoadStrategy, keep: Callable[..., None]
    ) -> MeasuredRound:
        """Put load on both sides, whose threads may use all cores of the round again.

        ``keep`` gets all arrays of the round where the load doesn't come to its end.
        """
        began = time.monotonic()
        if measured.record.calling_core is not None:
            self._hold_to(self._cores)
        runner = LoadRunner(self._pair)
        try:
            load = strategy.run(runner, self._draw_order(), self._rng.randrange(_MOST_DRAWS))
        except BaseException:
            keep({**measured.arrays(), **runner.arrays()})
            raise
        seconds = measured.record.seconds + time.monotonic() - began
        record = replace(measured.record, seconds=seconds, loads=load.records, peaks=load.peaks)
        return measured._replace(record=record, load=load, queries=runner.arrays())

    def _idle_cpu(self) -> dict[SideName, float]:
        """Return the CPU seconds that each side takes in a second in which nothing is called."""

        def idle(side: SideName) -> float:
            with self._pair.running(side) as predictor:
                return predictor.idle(_IDLE_SECONDS) / _IDLE_SECONDS

        with ThreadPoolExecutor(len(SIDES)) as pool:
            return dict(zip(SIDES, pool.map(idle, SIDES), strict=True))

    def _draw_order(self) -> list[SideName]:
        return self._rng.sample(SIDES, 2)

    def _joules_per_input(self) -> dict[SideName, float]:
        """Return the energy of an input by side; none where either side doesn't count it."""
        found: dict[SideName, float] = {}
        clocks = self._pair.clocks
        if not all(clocks[side].energy for side in SIDES):
            return found
        seconds = max(_ENERGY_SECONDS, *(clocks[side].energy_seconds for side in SIDES))
        for side in self._draw_order():
            with self._pair.running(side) as predictor:
                run = predictor.run("single_stream", seconds=seconds, least=1, longest=60)
            joules = run.energy.per_input(len(run.latencies) * self._plan.batch_size)
            if joules is None:
                return {}
            found[side] = joules
        return found

    def _turn_with_outputs(self, order: Sequence[SideName]) -> dict[SideName, Turn]:
        """Give both sides a turn of one call on the first batch, whose outputs are kept."""
        turns = {}
        for side in order:
            turns[side] = self._pair.turn(side, TurnPlan(), outputs=True, memory=True)
        return turns

    def _warm_up(self) -> _WarmUp:
        """Run windows of pairs until neither side's median falls, then calls of other shapes."""
        end = time.monotonic() + self._plan.longest_turns / 2
        medians: dict[SideName, list[float]] = {"a": [], "b": []}
        spent = dict.fromkeys(SIDES, 0.0)
        warm_up = _WarmUp(medians, 0, spent)
        for _ in range(_MOST_WINDOWS):
            window = self._warm_up_window(end)
            for side in SIDES:
                medians[side].append(float(np.median(window[side])))
                spent[side] += sum(window[side])
            warm_up = _WarmUp(medians, warm_up.pairs + len(window["a"]), spent)
            if warm_up.steady or time.monotonic() > end:
                break
        self._call_other_shapes(spent)
        return warm_up

    def _call_other_shapes(self, spent: dict[SideName, float]) -> None:
        """Make a call of each shape that the windows lack: for a new one frameworks compile.

        Its seconds are added to what each side has ``spent``.
        """
        end = time.monotonic() + self._plan.longest_turns / 2
        places: dict[object, int] = {}
        for place in range(len(self._pair.order)):
            arrays = self._pair.batch_at(place).values()
            places.setdefault(tuple(array.shape for array in arrays), place)
        for place in list(places.values())[1:]:
            for side in self._draw_order():
                spent[side] += self._time_call(side, place)
            if time.monotonic() > end:
                break

    def _warm_up_window(self, end: float) -> dict[SideName, list[float]]:
        """Run a window of single calls, one pair at least; return their seconds by side."""
        window: dict[SideName, list[float]] = {"a": [], "b": []}
        enough = time.monotonic() + _WINDOW_SECONDS
        for pair in range(1, WINDOW_PAIRS + 1):
            for side in self._draw_order():
                window[side].append(self._time_call(side))
            now = time.monotonic()
            if now > end or (now > enough and pair >= WINDOW_PAIRS // 2):
                break
        return window

    def _time_call(self, side: SideName, place: int = 0) -> float:
        turn = self._pair.turn(side, TurnPlan(), place)
        return float(durations(turn)[0])

    def _hold_calling_threads(self, warm_up: _WarmUp) -> int | None:
        """Hold both sides' calling threads to one of the cores; return it, or None if not held.

        Cores differ in speed, and a thread that is not held finds another core in each turn. A
        side that gets much slower by it starts threads for each call, which are held with the
        calling thread. Then both sides are released again.
        """
        if not self._cores:
            return None
        if len(self._cores) == 1:
            return self._cores[0]
        core = self._rng.choice(list(self._cores))
        self._hold_to([core])
        tries = int(_PROBE_SECONDS / warm_up.slowest)
        tries = max(1, min(WINDOW_PAIRS, tries))
        held = {side: self._median_call(side, tries) for side in SIDES}
        for side in SIDES:
            if held[side] > _MUCH_SLOWER * warm_up.medians[side][-1]:
                self._hold_to(self._cores)
                return None
        return core

    def _median_call(self, side: SideName, tries: int) -> float:
        seconds = [self._time_call(side) for _ in range(tries)]
        return float(np.median(seconds))

    def _hold_to(self, cores: Sequence[int]) -> None:
        for side in SIDES:
            with self._pair.running(side) as predictor:
                predictor.hold(cores)

    def _plan_turns(self, warm_up: _WarmUp) -> tuple[TurnPlan, dict[SideName, float]]:
        """Return the length of turns, and how much slower each side's first call of a turn is.

        Turns take some milliseconds. The calls that fill the caches again, or wake threads, are not
        timed: as many as either side takes until its calls are steady, by the mean of the rounds
        that probed it. Of long calls that can't be found out in time. The calls of the warm-up were
        turns of their own, and may be several times as slow as those that follow others.
        """
        known = self._earlier.turn_plans
        if len(known) == _PLANNED_ROUNDS:
            return known[-1], {}
        slowest = warm_up.slowest
        if slowest > _PROBE_SECONDS / WINDOW_PAIRS:
            return TurnPlan(), {}
        after_others = TurnPlan(skip=_probed_calls(slowest) - 1)
        turns = [self._pair.turn(side, after_others) for side in SIDES]
        slowest = min(slowest, max(float(durations(turn)[0]) for turn in turns))
        probed = {side: self._probe(side, _probed_calls(slowest)) for side in SIDES}
        self._earlier.probes.append(probed)
        known.append(self._plan_by_probes(slowest))
        return known[-1], {side: float(probed[side][0]) for side in SIDES}

    def _plan_by_probes(self, slowest: float) -> TurnPlan:
        skip = 0
        for side in SIDES:
            probes = [of_round[side] for of_round in self._earlier.probes]
            calls = min(map(len, probes))
            mean = np.mean([probe[:calls] for probe in probes], axis=0)
            skip = max(skip, _calls_of_start(mean))
        if slowest >= _TURN_SECONDS:
            return TurnPlan(skip + 1, skip)
        skip = max(LEAST_SKIPPED, skip)
        return TurnPlan(calls_of_turn(self._slowest_call(skip)), skip)

    def _probe(self, side: SideName, calls: int) -> Array:
        """Return the seconds of a turn's calls, as multiples of its second half's.

        Each is the median of several turns, in which a call is compared with others of its
        group.
        """
        turns = [self._pair.turn(side, TurnPlan(calls)) for _ in range(WINDOW_PAIRS // 2)]
        times = [undisturbed(turn, self._pair.clocks) for turn in turns]
        latencies = even_out(times, self._pair.groups)
        medians = np.median(latencies, axis=0)
        return np.asarray(medians / np.median(medians[calls // 2 :]))

    def _mean_call(self, turns: Sequence[Turn]) -> float:
        """Return the seconds of a call of turns: the mean over the batches of their medians."""
        seconds = np.concatenate([durations(turn) for turn in turns])
        cycle = len(self._pair.order)
        places = range(min(cycle, len(seconds)))
        return float(np.mean([np.median(seconds[place::cycle]) for place in places]))

    def _slowest_call(self, skip: int) -> float:
        """Return the seconds of a call of the slower side, in turns that skip the first ones."""
        medians = []
        for side in SIDES:
            turn = self._pair.turn(side, TurnPlan(WINDOW_PAIRS, skip=skip))
            medians.append(float(np.median(durations(turn))))
        return max(medians)

    def _time_again(self, turn_plan: TurnPlan) -> tuple[Turns, list[int]]:
        """Time the batches that earlier rounds showed as slower, by themselves.

        Return the turns by side, of a single call each, and the batch of each pair.
        """
        turns: Turns = {"a": [], "b": []}
        numbers = []
        single = TurnPlan(1, turn_plan.skip)
        cycle = len(self._pair.order)
        for place, number in enumerate(self._pair.watched):
            for _ in range(TURNS_AGAIN):
                for side in self._draw_order():
                    turns[side].append(self._pair.turn(side, single, cycle + place))
                numbers.append(number)
        return turns, numbers

    def _run_turns(self, turn_plan: TurnPlan) -> tuple[Turns, list[SideName], Array]:
        """Run pairs of turns over all batches in turn.

        Return the turns by side, the side that began each pair, and the place of each call in the
        order of batches, as turns x calls.
        """
        turns: Turns = {"a": [], "b": []}
        first_sides: list[SideName] = []
        cycle = len(self._pair.order)
        plan = self._plan
        if plan.covers_batches:
            plan = replace(plan, least_calls=max(plan.least_calls, cycle))
        watch = TurnWatch(plan, turn_plan.count, cycle)
        clocks = self._pair.clocks

        def error() -> float:
            return centre_of(ratios_of(turns, clocks))[1]

        began = time.monotonic()
        while not watch.is_enough(len(first_sides), time.monotonic() - began, error):
            first = len(first_sides) * turn_plan.count % cycle
            order = self._draw_order()
            for side in order:
                turn = self._pair.turn(side, turn_plan, first)
                turns[side].append(turn)
            first_sides.append(order[0])
        self._earlier.changes.append(float(np.median(ratios_of(turns, clocks))))
        calls = np.arange(len(first_sides) * turn_plan.count)
        self._earlier.call_seconds.append((time.monotonic() - began) / len(calls))
        return turns, first_sides, calls.reshape(-1, turn_plan.count) % cycle


def calls_of_turn(seconds: float) -> int:
    """Return how many calls a turn times, of calls that take so many seconds each."""
    return min(_MOST_CALLS, math.ceil(_TURN_SECONDS / seconds))


def _probed_calls(seconds: float) -> int:
    """Return how many calls of a turn are looked at, which take so many seconds each."""
    return min(_PROBED_CALLS, max(2, int(_PROBED_SECONDS / seconds)))


def _seems_to_leak(growths: Sequence[Mapping[SideName, float]]) -> bool:
    """Return whether the candidate's memory grew by more than the baseline's in the first round."""
    return bool(growths) and growths[0]["b"] - growths[0]["a"] >= SUSPECT_GROWTH


def _cpu_seconds(turn: Turn) -> float:
    """Return the CPU seconds of a call: its share of the turn."""
    cpu = turn.times["cpu"]
    spent = float(cpu[-1] - cpu[0])
    return spent / len(turn.times["start"])


def _calls_of_start(probed: Array) -> int:
    """Return how many calls of a turn come before its calls are steady."""
    for count in range(min(_MOST_SKIPPED, len(probed) // 2 + 1)):
        if probed[count] <= _STEADY and is_steady(list(probed[count : count + 2])):
            return count
    return min(_MOST_SKIPPED, len(probed) // 2)


def _times_of(turns: Sequence[Turn], clocks: Clocks) -> dict[str, Array | None]:
    """Return the fields of a side that turns are read by."""
    wait = None
    if clocks.wait:
        wait = np.array([waits(turn) for turn in turns])
    device = None
    if clocks.device:
        device = np.array([turn.times["device"] for turn in turns])
    return {
        "wall": np.array([durations(turn) for turn in turns]),
        "wait": wait,
        "cpu": np.array([_cpu_seconds(turn) for turn in turns]),
        "device": device,
    }


def _measured_side(
    predictor: Predictor, clocks: Clocks, first: Turn, timed: Sequence[Turn], last: Turn
) -> Side:
    """Return the measurements of a side: of its first call, its timed turns and its last call."""
    first_wait = first.times["wait"]
    first_waited = float(first_wait[-1] - first_wait[0])
    first_seconds = clocks.bind_seconds + float(durations(first)[0]) - first_waited
    loaded = predictor.seconds_until_loaded
    times: dict[str, Any] = _times_of(timed, clocks)
    is_peak = predictor.peak_is_since_load and "peak_memory" not in predictor.unmeasured
    if is_peak and last.peak_bytes is not None:
        bytes_above_load(predictor, last.peak_bytes)  # which refuses one in another unit
    return Side(
        **times,
        load_seconds=predictor.load_seconds - predictor.load_waited,
        first_seconds=first_seconds,
        peak_bytes=last.peak_bytes if is_peak else None,
        start_seconds=None if loaded is None else loaded + first_seconds,
        import_bytes=None if predictor.unmeasured else predictor.rss_before,
        device_memory=last.device_memory,
        event_times=last.event_times,
        unmeasured=predictor.unmeasured,
        tokens=TokenTimes.joined([turn.times for turn in timed], clocks.wait),
    )


def _side_record(predictor: Predictor, measured: Side) -> SideRecord:
    return SideRecord(
        pid=predictor.agent.pid,
        versions=predictor.versions,
        python=predictor.python,
        executable=predictor.executable,
        device_used=predictor.device,
        threads_used=predictor.threads,
        device_facts=predictor.device_facts,
        start_seconds=predictor.start_seconds,
        load_seconds=measured.load_seconds,
        first_seconds=measured.first_seconds,
        peak_bytes=measured.peak_bytes,
        import_bytes=measured.import_bytes,
        device_memory=measured.device_memory,
        event_times=measured.event_times,
        interpreter_seconds=predictor.interpreter_seconds,
        import_seconds=predictor.import_seconds,
        unmeasured=predictor.unmeasured or None,
    )
