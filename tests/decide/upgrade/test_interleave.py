"""Interleaved measurement, tested with hand-written fakes of agents; test_run has real ones."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.errors import AgentError
from pytest_mlms.decide.upgrade.agents import AgentPair
from pytest_mlms.decide.upgrade.crash import Exits
from pytest_mlms.decide.upgrade.interleave import MeasuredRound, run_interleaved
from pytest_mlms.decide.upgrade.interleave_plan import InterleavePlan
from pytest_mlms.decide.upgrade.round_estimate import RoundSpan
from pytest_mlms.decide.upgrade.rounds import Outputs, SideName
from pytest_mlms.measure.agent.channel import Energy
from pytest_mlms.measure.agent.predictor import Clocks, Predictor, Turn
from pytest_mlms.measure.evaluate.timed_inputs import Mix, TimedBatches
from pytest_mlms.warning_types import MlmsKilled
from tests.support.fake_agents import FakePair, FakePredictor

PLAN = InterleavePlan(seconds=0.0, budget=3600, seed=7, cores=(0, 1, 2), threads=1, batch_size=2)
BATCHES = [{"x": np.zeros(2)}, {"x": np.ones(2)}]
THREE_SHAPES = TimedBatches(
    [{"x": np.zeros(size)} for size in (1, 1, 2, 3)],
    elements=4 * [()],
    groups=[0, 0, 1, 1],
    mix=Mix(("1", "2 to 3"), (0.5, 0.5)),
    cycle=[0, 2, 1, 3],
)


def batches_for(predictor: Predictor) -> Sequence[Outputs]:
    return BATCHES


@dataclass(frozen=True)
class Opened:
    """A pair that was opened: the order and the cores that were drawn for it."""

    order: Sequence[SideName]
    cores: Sequence[int]


class Run:
    """An interleaved run of fakes that ends after ``rounds`` rounds."""

    def __init__(self, fakes: FakePair, rounds: int = 1, in_container: bool = False) -> None:
        self.fakes = fakes
        self.rounds = rounds
        self.in_container = in_container
        self.opened: list[Opened] = []
        self.measured: list[MeasuredRound] = []

    @contextlib.contextmanager
    def open_pair(self, order: Sequence[SideName], cores: Sequence[int]) -> Iterator[AgentPair]:
        self.opened.append(Opened(order, cores))
        yield self.fakes.pair(self.in_container)

    def after_round(self, index: int, measured: MeasuredRound, pair: AgentPair) -> bool:
        assert index == len(self.measured)
        self.measured.append(measured)
        return len(self.measured) == self.rounds

    def run(
        self, plan: InterleavePlan = PLAN, is_for_guards: Callable[[], bool] = lambda: False
    ) -> MeasuredRound:
        """Run all rounds; return the first."""
        run_interleaved(
            plan, self.open_pair, batches_for, self.after_round, is_for_guards=is_for_guards
        )
        return self.measured[0]


def test_rounds_are_run_until_they_are_enough() -> None:
    run = Run(FakePair(), rounds=3)
    run.run()
    assert len(run.opened) == 3


def test_the_first_inference_includes_what_the_framework_does_before_it() -> None:
    fakes = FakePair()
    fakes.a.clocks = fakes.a.clocks._replace(bind_seconds=1.5)
    measured = Run(fakes).run().raw
    assert measured.a.first_seconds == pytest.approx(1.5 + measured.b.first_seconds)


def test_there_are_at_most_twelve_rounds() -> None:
    run = Run(FakePair(), rounds=100)
    run.run()
    assert len(run.opened) == 12


def test_no_round_is_begun_that_would_exceed_the_budget() -> None:
    run = Run(FakePair(), rounds=100)
    run.run(replace(PLAN, budget=0.0))
    assert len(run.opened) == 1


@pytest.mark.parametrize(("for_guards", "expected"), [(True, 8), (False, 1)])
def test_a_guard_that_looks_worse_has_the_rounds_to_fail_whatever_the_budget(
    for_guards: bool, expected: int
) -> None:
    run = Run(FakePair(), rounds=100)
    run.run(replace(PLAN, budget=0.0, rounds=RoundSpan(1, 12)), lambda: for_guards)
    assert len(run.opened) == expected


class RunOfExits(Run):
    """A run whose candidate fails at its exit as told, and never after that."""

    def __init__(self, fails: Sequence[bool], rounds: int) -> None:
        super().__init__(FakePair(), rounds)
        self.exits = Exits()
        self.fails = iter(fails)

    @contextlib.contextmanager
    def open_pair(self, order: Sequence[SideName], cores: Sequence[int]) -> Iterator[AgentPair]:
        with super().open_pair(order, cores) as pair:
            pair.exits = self.exits
            yield pair
        self.exits.counts.add(a=False, b=next(self.fails, False))


@pytest.mark.parametrize(
    ("fails", "opened"),
    [
        ([], 6),
        ([True, *5 * [False]], 7),  # one of seven may be chance
        ([True, True, *4 * [False]], 13),
        (19 * [False, True], 40),
    ],
)
def test_a_candidate_that_seems_to_fail_at_its_exit_has_further_ones(
    fails: Sequence[bool], opened: int
) -> None:
    run = RunOfExits(fails, rounds=6)
    run.run()
    assert len(run.opened) == opened
    assert len(run.measured) == 6


def test_the_budget_ends_further_exits_once_there_are_seven() -> None:
    run = RunOfExits([True, *100 * [True]], rounds=1)
    run.run(replace(PLAN, budget=0.0))
    assert len(run.opened) == 7


def test_one_exit_that_fails_leaves_no_slow_model_open() -> None:
    """It was INCONCLUSIVE where the budget ended further exits at six: one is a sixth of them."""
    run = RunOfExits([True], rounds=1)
    run.run(replace(PLAN, budget=0.0))
    told = run.exits.open_comparison()
    assert told is not None
    assert not told.gate


def test_a_candidate_that_is_killed_in_a_further_process_is_started_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was REGRESSED: the kernel or a person may kill any process, as in a round."""
    run = RunOfExits([True, *12 * [False]], rounds=1)
    bound = run.fakes.b.bind

    def be_killed(*args: Any) -> Any:
        if run.exits.only_end:
            monkeypatch.undo()
            error = AgentError("killed by SIGKILL")
            error.killed, error.side = True, "b"
            raise error
        return bound(*args)

    monkeypatch.setattr(run.fakes.b, "bind", be_killed)
    with pytest.warns(MlmsKilled):
        run.run()
    assert run.exits.counts.exits == 7
    assert len(run.opened) == 8


def test_each_side_is_started_first_in_one_of_two_rounds() -> None:
    for seed in range(4):
        run = Run(FakePair(), rounds=6)
        run.run(replace(PLAN, seed=seed))
        first = [opened.order[0] for opened in run.opened]
        assert [{*first[index : index + 2]} for index in (0, 2, 4)] == 3 * [{"a", "b"}]


def test_a_seed_draws_the_same_order_of_everything() -> None:
    assert drawn_with(seed=7) == drawn_with(seed=7)
    assert drawn_with(seed=7) != drawn_with(seed=8)


def drawn_with(seed: int) -> tuple[list[Opened], list[list[SideName]]]:
    """Return all that is drawn in a run: orders and cores, and the first side of each pair."""
    run = Run(FakePair(), rounds=2)
    run.run(replace(PLAN, seed=seed))
    first_sides = [list(measured.first_sides) for measured in run.measured]
    return run.opened, first_sides


@pytest.mark.parametrize(
    ("cores", "threads", "count"),
    [((0, 1, 2), 2, 2), ((0, 1), 5, 2), ((3, 4), None, 2), ((), 1, 0)],
)
def test_as_many_cores_are_drawn_as_a_side_has_threads(
    cores: tuple[int, ...], threads: int | None, count: int
) -> None:
    plan = replace(PLAN, cores=cores, threads=threads)
    drawn = plan.draw_cores(random.Random(1))
    assert len(drawn) == count
    assert drawn == sorted(drawn)
    assert set(drawn) <= set(cores)


@pytest.mark.parametrize(
    ("pairs", "calls", "spent", "enough"),
    [
        (29, 1, 2.0, False),  # too few calls, and time is left
        (30, 1, 2.0, True),
        (15, 2, 2.0, True),
        (11, 50, 2.0, False),  # too few pairs
        (12, 50, 2.0, True),
        (30, 1, 0.5, False),  # the seconds of a round are not over
        (2, 1, 30.0, False),
        (3, 1, 30.0, True),  # a slow model has fewer pairs
    ],
)
def test_a_round_ends_with_enough_pairs_or_at_its_longest(
    pairs: int, calls: int, spent: float, enough: bool
) -> None:
    plan = replace(PLAN, seconds=1.0, budget=160.0)
    assert plan.longest_turns == 10
    assert plan.is_measured(pairs, calls, spent) is enough


@pytest.fixture
def no_least_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let turns end at once, as those of fakes take no time."""
    monkeypatch.setattr("pytest_mlms.decide.upgrade.interleave_plan.LEAST_SECONDS", 0.0)


@pytest.mark.usefixtures("no_least_time")
def test_turns_end_once_their_error_is_small() -> None:
    plan = replace(PLAN, seconds=600, precision=0.003)
    assert Run(FakePair()).run(plan).record.pairs == 8
    assert Run(FakePair(0.01, 0.01)).run(plan).record.pairs == 8


@pytest.mark.usefixtures("no_least_time")
def test_turns_do_not_end_before_each_batch_was_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = {"x": np.zeros(1)}
    monkeypatch.setattr(f"{__name__}.batches_for", lambda predictor: 39 * [batch])
    plan = replace(PLAN, seconds=600, precision=0.003)
    record = Run(FakePair()).run(plan).record
    assert (record.pairs, record.calls) == (20, 2)


@pytest.mark.parametrize("covers_batches", [False, True])
def test_a_round_times_each_batch_where_groups_of_inputs_are_a_gate(
    monkeypatch: pytest.MonkeyPatch, covers_batches: bool
) -> None:
    batch = {"x": np.zeros(1)}
    monkeypatch.setattr(f"{__name__}.batches_for", lambda predictor: 39 * [batch])
    plan = replace(PLAN, covers_batches=covers_batches)
    assert Run(FakePair()).run(plan).record.pairs == (20 if covers_batches else 15)


@pytest.mark.parametrize(
    ("changes", "seconds", "precision"),
    [
        ((), 0.5, 0.003),
        ((0.0, 0.3), 0.5, 0.003),
        ((0.0, 0.001, -0.001), 0.5, 0.003),
        ((0.0, 0.03, -0.03), 0.5, 0.01),
        (6 * (0.0,), 1.0, 0.003),
    ],
)
def test_a_round_is_as_long_as_what_differs_between_rounds_takes(
    changes: tuple[float, ...], seconds: float, precision: float
) -> None:
    plan = replace(PLAN, seconds=1.0, precision=0.003).for_round(changes)
    assert plan.seconds == seconds
    assert plan.precision == pytest.approx(precision)
    in_full = replace(PLAN, seconds=1.0)
    assert in_full.for_round(changes) == in_full


def test_further_rounds_for_guards_are_in_full() -> None:
    plan = replace(PLAN, seconds=1.0, precision=0.003)
    assert plan.for_round(5 * (0.0,), for_guards=True) == plan.for_round(5 * (0.0,))
    assert plan.for_round(6 * (0.0,), for_guards=True) == replace(
        plan, precision=0.0, least_calls=59
    )


@pytest.mark.parametrize(
    ("slow_calls", "are_more"),
    [([(0, 1)], False), ([(0, 1), (0, 1)], True), ([(2, 2), (0, 2)], False), ([(2, 5)], True)],
)
def test_rounds_have_the_calls_of_p95_once_b_has_more_slow_calls(
    slow_calls: list[tuple[int, int]], are_more: bool
) -> None:
    plan = replace(PLAN, seconds=1.0, precision=0.003)
    found = plan.for_round(2 * (0.0,), slow_calls=slow_calls)
    in_full = replace(plan, seconds=0.5, precision=0.0, least_calls=59)
    assert found == (in_full if are_more else replace(plan, seconds=0.5))


@pytest.mark.parametrize(
    ("call_seconds", "calls"),
    [([0.06], 59), ([0.07], 30), ([0.06, 0.5, 0.06], 59)],  # one of the rounds was disturbed
)
def test_rounds_are_no_longer_for_slow_calls_or_guards_than_these_take(
    call_seconds: list[float], calls: int
) -> None:
    plan = replace(PLAN, seconds=1.0, precision=0.003, budget=60.0)
    found = plan.for_round((0.0,), slow_calls=[(0, 2)], call_seconds=call_seconds)
    assert found.least_calls == calls
    for_guards = plan.for_round(6 * (0.0,), for_guards=True, call_seconds=call_seconds)
    assert for_guards == replace(plan, precision=0.0, least_calls=calls)


def test_both_sides_have_the_same_number_of_turns() -> None:
    fakes = FakePair()
    measured = Run(fakes).run()
    assert measured.record.pairs == 15
    for side in measured.raw:
        assert side.wall.shape == (15, 2)
    assert len(fakes.a.turns) == len(fakes.b.turns)


def test_each_side_leads_about_half_of_the_pairs() -> None:
    leads = Run(FakePair(0.01, 0.01)).run().first_sides  # turns of single calls
    assert 10 < list(leads).count("a") < 20


def test_turns_go_through_the_batches() -> None:
    fakes = FakePair()
    measured = Run(fakes).run()
    assert measured.inputs is not None
    assert measured.inputs.numbers[:2].tolist() == [[0, 1], [0, 1]]
    assert {first for count, _, first in fakes.b.turns if count == 2} == {0}


def test_calls_of_a_millisecond_are_grouped_into_turns_of_two_milliseconds() -> None:
    record = Run(FakePair(0.001, 0.0005)).run().record
    assert (record.calls, record.skipped) == (2, 1)


def test_a_turn_has_at_most_two_hundred_calls() -> None:
    record = Run(FakePair(1e-7, 1e-7)).run().record
    assert (record.calls, record.skipped) == (200, 1)


def test_longer_calls_are_turns_of_their_own() -> None:
    record = Run(FakePair(0.01, 0.01)).run().record
    assert (record.calls, record.skipped) == (1, 0)


def test_a_call_that_fills_the_caches_is_not_timed() -> None:
    fakes = FakePair(0.01, 0.01)
    fakes.a.first_factor = fakes.b.first_factor = 1.5
    record = Run(fakes).run().record
    assert (record.calls, record.skipped) == (2, 1)


@pytest.mark.parametrize(
    ("seconds", "calls", "skipped"), [(1e-4, 20, 6), (1.4e-3, 2, 6), (1.9e-3, 6, 5), (3e-3, 4, 3)]
)
def test_calls_count_once_they_are_as_fast_as_later_ones_however_slow_a_turns_first_one_is(
    seconds: float, calls: int, skipped: int
) -> None:
    """The factors are those of a network of 47 MB: its calls at 1.9 and 1.33 were judged."""
    fakes = FakePair(seconds, seconds)
    fakes.a.start = fakes.b.start = (2.7, 1.9, 1.33, 1.11, 1.06, 1.03)
    record = Run(fakes).run().record
    assert (record.calls, record.skipped) == (calls, skipped)


class InTurn(Run):
    """Rounds whose A has these seconds of a call, and these factors of a turn's first, in turn."""

    def __init__(self, *of_rounds: tuple[float, float]) -> None:
        super().__init__(FakePair(0.01, 0.01), len(of_rounds))
        self.of_rounds = of_rounds
        self.turns_before = 0  # the last round

    @contextlib.contextmanager
    def open_pair(self, order: Sequence[SideName], cores: Sequence[int]) -> Iterator[AgentPair]:
        self.fakes.a.seconds, self.fakes.a.first_factor = self.of_rounds[len(self.measured)]
        self.turns_before = len(self.fakes.b.turns)
        with super().open_pair(order, cores) as pair:
            yield pair

    @property
    def skipped(self) -> list[int]:
        return [measured.record.skipped for measured in self.measured]


@pytest.mark.parametrize(
    ("factors", "skipped"),
    [((1.03, 1.0, 1.03), [1, 0, 0]), ((1.06, 1.01, 1.06), [1, 1, 1]), ((1.0, 1.06), [0, 1])],
)
def test_the_start_of_turns_is_the_mean_of_the_rounds_that_probed_it(
    factors: Sequence[float], skipped: list[int]
) -> None:
    run = InTurn(*((0.01, factor) for factor in factors))
    run.run()
    assert run.skipped == skipped


def test_a_round_of_calls_too_long_to_probe_tells_later_ones_nothing() -> None:
    run = InTurn((0.2, 1.5), (0.01, 1.5), (0.01, 1.5), (0.01, 1.0))
    run.run()
    assert run.skipped == [0, 1, 1, 1]


def test_a_call_of_each_other_shape_comes_before_the_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{__name__}.batches_for", lambda predictor: THREE_SHAPES)
    run = InTurn(*[(0.01, 1.0)] * 3)
    run.run()
    firsts = [first for _, _, first in run.fakes.b.turns[run.turns_before :]]
    assert firsts.index(1) < firsts.index(3) < firsts.index(2)


class Compiling(FakePredictor):
    """A predictor whose first call from each place of the order takes 2 s more."""

    def turn(self, count: int, skip: int = 0, first: int = 0, **options: Any) -> Turn:
        is_new = all(first != place for _, _, place in self.turns)
        turn = super().turn(count, skip, first, **options)
        return turn._replace(times={**turn.times, "end": turn.times["end"] + 2 * is_new})


def test_the_warm_up_time_has_the_calls_of_each_other_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{__name__}.batches_for", lambda predictor: THREE_SHAPES)
    fakes = FakePair(0.01, 0.01)
    fakes.b = Compiling(102, 0.01)
    of_a, of_b = (side.warm_up_seconds for side in Run(fakes).run().raw)
    assert of_a is not None
    assert of_b == pytest.approx(of_a + 2 * 2)  # two shapes beside that of the first call


def test_a_call_so_long_that_the_caches_do_not_matter_is_timed_at_once() -> None:
    fakes = FakePair(0.2, 0.2)
    fakes.a.first_factor = fakes.b.first_factor = 1.5
    record = Run(fakes).run().record
    assert (record.calls, record.skipped) == (1, 0)


def test_the_warm_up_ends_once_neither_side_gets_faster() -> None:
    record = Run(FakePair()).run().record
    assert record.steady
    assert 0 < record.warmup_pairs <= 48


def test_the_warm_up_is_cut_short_where_the_budget_is_small() -> None:
    record = Run(FakePair()).run(replace(PLAN, budget=0.0)).record
    assert not record.steady
    assert record.warmup_pairs == 1


def test_a_single_core_needs_no_holding() -> None:
    fakes = FakePair()
    record = Run(fakes).run().record
    assert record.calling_core == record.cores[0]
    assert fakes.a.held == []


TWO_CORES = replace(PLAN, cores=(4, 5), threads=2)


def test_calling_threads_are_held_to_the_same_core() -> None:
    fakes = FakePair()
    record = Run(fakes).run(TWO_CORES).record
    assert record.calling_core in (4, 5)
    assert fakes.a.held == fakes.b.held == [[record.calling_core]]


def test_a_side_that_gets_much_slower_when_it_is_held_is_released() -> None:
    fakes = FakePair()
    fakes.b.held_factor = 2.0
    record = Run(fakes).run(TWO_CORES).record
    assert record.calling_core is None
    for fake in fakes.both:
        assert fake.held[-1] == [4, 5]


def test_a_system_without_cores_to_choose_holds_nothing() -> None:
    fakes = FakePair()
    record = Run(fakes).run(replace(PLAN, cores=())).record
    assert record.calling_core is None
    assert fakes.a.held == []


def test_the_record_has_the_facts_of_both_processes() -> None:
    record = Run(FakePair()).run().record
    assert record.sides["a"].pid == 101
    assert record.sides["b"].pid == 102
    assert record.sides["a"].versions == {"fake": "1.0"}
    assert record.sides["a"].load_seconds == pytest.approx(0.2)
    assert record.sides["a"].peak_bytes == 1 << 20
    assert record.turns_exclusive


def test_sides_that_are_not_stopped_are_recorded_as_such() -> None:
    record = Run(FakePair(), in_container=True).run().record
    assert not record.turns_exclusive


def test_the_measured_times_are_those_of_the_turns() -> None:
    measured = Run(FakePair(0.001, 0.003)).run()
    assert measured.raw.a.wall == pytest.approx(0.001)
    assert measured.raw.b.wall == pytest.approx(0.003)
    assert measured.raw.b.cpu == pytest.approx(0.003)
    assert measured.raw.b.first_seconds == pytest.approx(0.003)
    assert measured.raw.a.device is None


def test_clocks_that_the_agent_does_not_have_are_none() -> None:
    fakes = FakePair()
    fakes.a.clocks = Clocks(wait=False, device=True, stoppable=True)
    fakes.a.peak_is_since_load = False
    side = Run(fakes).run().raw.a
    assert side.wait is None
    assert side.device == pytest.approx(0.0005)
    assert side.peak_bytes is None


def test_a_peak_in_another_unit_than_what_was_held_before_is_an_error() -> None:
    """Both sides had a page, and were equal."""
    fakes = FakePair()
    fakes.a.rss_before = 1 << 30
    with pytest.raises(AgentError, match="both are to be bytes"):
        Run(fakes).run()


def test_the_arrays_of_a_round_have_the_names_of_both_sides() -> None:
    measured = Run(FakePair()).run()
    arrays = measured.arrays()
    sides = {"wall_a", "wall_b", "wait_a", "wait_b", "cpu_a", "cpu_b"}
    assert set(arrays) == {*sides, "b_first", "batch", "group"}
    assert arrays["b_first"].dtype == bool


def test_the_outputs_are_those_of_the_last_calls() -> None:
    outputs = Run(FakePair()).run().outputs
    assert set(outputs) == {"a", "b"}
    assert outputs["b"]["y"] == pytest.approx(1)


def test_energy_of_an_input_is_there_where_both_sides_count_it() -> None:
    fakes = FakePair()
    for side, joules in zip(fakes.both, (1.0, 3.0), strict=True):
        side.clocks = side.clocks._replace(energy=True)
        side.energy = Energy({"package-0": joules}, {}, "")
    found = Run(fakes).run().raw
    assert found.a.joules == 0.05
    assert found.b.joules == pytest.approx(0.15)
    fakes.b.energy = Energy({}, {}, "the counter package-0 went backwards")
    found = Run(fakes).run().raw
    assert (found.a.joules, found.b.joules) == (None, None)


def test_energy_is_shared_by_the_inputs_of_calls_whatever_their_first_axis_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fakes = FakePair()
    for side in fakes.both:
        side.clocks = side.clocks._replace(energy=True)
        side.energy = Energy({"package-0": 1.0}, {}, "")
    whole = Run(fakes).run().raw
    batch = {"threshold": np.float32(0.5), "x": np.zeros((3, 8), np.float32)}
    monkeypatch.setattr(f"{__name__}.batches_for", lambda predictor: [batch])
    found = Run(fakes).run(replace(PLAN, batch_size=8)).raw
    assert whole.a.joules is not None
    assert found.a.joules == pytest.approx(whole.a.joules / 4)


def test_energy_is_that_of_a_run_as_long_as_the_slower_counter_needs() -> None:
    fakes = FakePair()
    for side, seconds in zip(fakes.both, (0.1, 1.2), strict=True):
        side.clocks = side.clocks._replace(energy=True, energy_seconds=seconds)
        side.energy = Energy({"gpu energy": 1.0}, {}, "")
    Run(fakes).run()
    assert fakes.a.seconds_run == fakes.b.seconds_run == [1.2]


@pytest.mark.usefixtures("no_least_time")
def test_a_leak_of_slow_calls_shows_in_the_first_round_and_is_watched_from_then_on() -> None:
    plan = replace(PLAN, seconds=600, precision=0.003)
    fakes = FakePair(0.01, 0.01)
    fakes.b.leak = 2000
    run = Run(fakes, rounds=2)
    run.run(plan)
    assert [measured.record.pairs for measured in run.measured] == [8, 8]
    assert [measured.raw.b.growth for measured in run.measured] == [2000, 2000]


def test_a_side_that_leaks_is_watched_and_a_clean_one_is_not() -> None:
    fakes = FakePair()
    fakes.b.leak = 2000
    found = Run(fakes).run().raw
    assert (found.a.growth, found.b.growth) == (0, 2000)
    assert fakes.b.calls > 2000
    clean = FakePair()
    Run(clean).run()
    assert clean.b.calls < 2000


def test_a_round_in_which_the_candidate_was_killed_tells_later_ones_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fakes = FakePair()
    fakes.b.leak = 2000

    def be_killed(seconds: float) -> float:
        monkeypatch.undo()
        fakes.b.leak = fakes.b.calls = 0
        error = AgentError("killed by SIGKILL")
        error.killed = True
        raise error

    monkeypatch.setattr(fakes.b, "idle", be_killed)
    run = Run(fakes, rounds=2)
    with pytest.warns(MlmsKilled):
        run.run()
    assert fakes.b.calls < 2000  # it was watched for no leak


def test_a_round_is_measured_again_as_if_the_candidate_had_not_been_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the killed one said of late calls stood: the item had none in any round."""

    def facts(run: Run) -> list[tuple[bool, bool]]:
        run.run()
        return [
            (each.raw.b.all_times is not None, bool(each.record.starts)) for each in run.measured
        ]

    expected = facts(Run(FakePair(1e-4, 1e-4), rounds=3))
    fakes = FakePair(1e-4, 1e-4)

    def be_killed(seconds: float) -> float:
        monkeypatch.undo()
        error = AgentError("killed by SIGKILL")
        error.killed = True
        raise error

    monkeypatch.setattr(fakes.b, "idle", be_killed)
    with pytest.warns(MlmsKilled):
        assert facts(Run(fakes, rounds=3)) == expected
    assert expected == [(True, True), (False, True), (False, False)]
