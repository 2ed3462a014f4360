from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_mlms.measure.load.evidence import Criterion, Outcome
from pytest_mlms.measure.load.peak import find_peak
from pytest_mlms.measure.load.rate_evidence import PROCESSES, Drive, Load, Peak, PeakPlan, Probe
from tests.support.queues import Queue

SHARE = 0.99
PLENTY = 1e9  # seconds


def plan(start: float = 100.0, **changed: float) -> PeakPlan:
    """Return a plan whose limit takes hardly any queue to break."""
    precision = changed.pop("precision", 0.05)
    limit = changed.pop("limit", 0.001)
    criterion = Criterion(limit, SHARE, precision)
    budget = changed.pop("budget", PLENTY)
    return PeakPlan(criterion, start=start, fastest=0.0, budget=budget, **changed)


class Machine:
    """A machine whose share of late queries is a function of the rate alone."""

    def __init__(self, late: Callable[[float], float], untrusted_from: float = math.inf) -> None:
        self.late = late
        self.untrusted_from = untrusted_from
        self.opened = 0
        self.rates: list[float] = []
        self._rng = np.random.default_rng(0)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Drive]:
        self.opened += 1
        yield self.drive

    def drive(self, rate: float, queries: int) -> Load:
        self.rates.append(rate)
        over = self._rng.random(queries) < self.late(rate)
        untrusted = "late" if rate >= self.untrusted_from else ""
        return Load(over, queries / rate, untrusted)


def capacity(most: float) -> Machine:
    """Return a machine that is in time up to a rate, and never beyond."""
    return Machine(lambda rate: float(rate > most))


@given(st.floats(0.1, 1e5), st.floats(0.02, 50), st.sampled_from([0.01, 0.05, 0.2]))
@settings(max_examples=40, deadline=None)
def test_the_answer_has_the_peak_inside_and_is_as_precise_as_asked_for(
    most: float, start_share: float, precision: float
) -> None:
    machine = capacity(most)
    found = find_peak(plan(start=start_share * most, precision=precision), machine)
    assert found.good <= most <= found.bad
    assert found.precision <= precision * 1.05
    assert found.confirmed
    assert not found.exceptions
    assert not found.reason


def test_each_end_is_shown_by_three_fresh_processes() -> None:
    machine = capacity(77.0)
    found = find_peak(plan(), machine)
    assert machine.opened == 1 + PROCESSES
    by_rate = {tried.rate: tried for tried in found.rates}
    for rate in (found.good, found.bad):
        assert by_rate[rate].processes >= PROCESSES


def test_the_number_of_runs_grows_with_the_logarithm_of_the_distance() -> None:
    machine = capacity(1.0)
    find_peak(plan(start=1000.0), machine)
    assert len(machine.rates) < 50


def test_a_limit_below_the_fastest_call_is_said_without_load() -> None:
    machine = capacity(100.0)
    asked = PeakPlan(Criterion(0.004, SHARE, 0.05), start=100.0, fastest=0.005, budget=60.0)
    found = find_peak(asked, machine)
    assert not machine.opened
    assert found.good == 0
    assert found.reason == (
        "the limit of 4 ms is below the fastest call (5 ms); no rate can meet it: raise the limit"
    )


def test_no_rate_may_meet_the_limit() -> None:
    found = find_peak(plan(), Machine(lambda rate: 0.5))
    assert found.good == 0
    assert found.rate == 0
    assert "was shown to meet the limit" in found.reason


def test_every_rate_may_meet_the_limit() -> None:
    found = find_peak(plan(limit=1e-9), Machine(lambda rate: 0.0))
    assert found.good == 1e6
    assert math.isinf(found.bad)
    assert "was shown to break the limit" in found.reason


def test_a_late_load_generator_is_not_taken_for_a_slow_model() -> None:
    machine = Machine(lambda rate: float(rate > 300), untrusted_from=200)
    found = find_peak(plan(), machine)
    assert 180 <= found.good < 200
    assert math.isinf(found.bad)
    assert "the load generator was late at" in found.reason


def test_load_that_was_late_once_is_repeated() -> None:
    machine = capacity(100.0)
    kept: list[Probe] = []
    late = iter(["late"])

    @contextlib.contextmanager
    def open_process() -> Iterator[Drive]:
        def drive(rate: float, queries: int) -> Load:
            load = machine.drive(rate, queries)
            return Load(load.over, load.seconds, next(late, ""))

        yield drive

    found = find_peak(plan(), open_process, kept.append)
    assert found.good <= 100 <= found.bad
    assert kept[0].outcome is Outcome.UNTRUSTED
    assert kept[1].rate == kept[0].rate


def test_outcomes_that_are_not_monotone_are_reported() -> None:
    machine = Machine(lambda rate: float(rate > 800 or 80 < rate < 150))
    found = find_peak(plan(start=100.0), machine)
    assert found.good <= 800 <= found.bad
    assert 100.0 in found.exceptions


def test_a_state_of_one_process_does_not_become_the_answer() -> None:
    machine = capacity(100.0)
    capacities = iter([150.0] + [100.0] * 1000)

    @contextlib.contextmanager
    def open_process() -> Iterator[Drive]:
        most = next(capacities)
        machine.late = lambda rate: float(rate > most)
        yield machine.drive

    found = find_peak(plan(), open_process)
    assert found.good <= 100 <= found.bad
    assert found.confirmed


def test_what_was_measured_is_kept_where_the_search_is_interrupted() -> None:
    machine = capacity(100.0)
    kept: list[Probe] = []

    def drive(rate: float, queries: int) -> Load:
        if len(kept) == 4:
            raise KeyboardInterrupt
        return machine.drive(rate, queries)

    @contextlib.contextmanager
    def open_process() -> Iterator[Drive]:
        yield drive

    with pytest.raises(KeyboardInterrupt):
        find_peak(plan(), open_process, kept.append)
    assert [probe.rate for probe in kept] == machine.rates
    assert kept[0].outcome in (Outcome.GOOD, Outcome.UNDECIDED)


def test_a_small_budget_gives_a_wide_answer_and_says_so() -> None:
    machine = Machine(lambda rate: min(1.0, 0.01 * (rate / 100) ** 4))
    found = find_peak(plan(budget=120.0), machine)
    assert found.good < 100 < found.bad
    assert "allow more with --mlms-budget" in found.reason
    assert found.seconds < 150


def study(queue: Queue, criterion: Criterion, budget: float, runs: int) -> list[Peak]:
    """Return the answers of several searches on a queue."""
    answers = []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        queue.elapsed = 0.0
        asked = PeakPlan(criterion, queue.capacity, queue.service, budget)
        open_process = functools.partial(queue.open, criterion, rng)
        answers.append(find_peak(asked, open_process))
    return answers


@pytest.mark.parametrize(
    ("queue", "limit", "share"),
    [
        (Queue(0.005, servers=4), 0.015, 0.9),
        (Queue(0.005, servers=4), 0.015, 0.99),
        (Queue(0.001, servers=2), 0.1, 0.99),
    ],
    ids=["short-queue-p90", "short-queue-p99", "long-queue"],
)
@pytest.mark.slow
def test_the_peak_of_a_queue_is_within_the_precision_in_19_of_20_runs(
    queue: Queue, limit: float, share: float
) -> None:
    criterion = Criterion(limit, share, 0.05)
    peak = queue.peak(criterion)
    answers = study(queue, criterion, 3600.0, runs=40)
    near = [abs(math.log(found.rate / peak)) <= math.log(1.06) for found in answers]
    inside = [found.good <= 1.005 * peak and peak <= 1.005 * found.bad for found in answers]
    assert sum(near) >= 38
    assert sum(inside) >= 38


@pytest.mark.slow
def test_a_machine_that_is_slow_for_a_while_is_found_fast_again() -> None:
    def slow(elapsed: float) -> float:
        return 1.5 if 5 < elapsed < 15 else 1.0

    queue = Queue(0.005, servers=4, slow=slow)
    criterion = Criterion(0.015, 0.9, 0.05)
    peak = queue.peak(criterion)
    answers = study(queue, criterion, 3600.0, runs=20)
    assert sum(found.good <= 1.01 * peak for found in answers) >= 19
    assert sum(found.good >= 0.6 * peak for found in answers) >= 19


@pytest.mark.parametrize(("first", "second"), [(77.0, 300.0), (300.0, 77.0)])
def test_of_two_limits_the_one_that_is_broken_at_a_lower_rate_has_the_peak(
    first: float, second: float
) -> None:
    machine = capacity(first)
    other = capacity(second)

    @contextlib.contextmanager
    def opened() -> Iterator[Drive]:
        def drive(rate: float, queries: int) -> Load:
            load = machine.drive(rate, queries)
            return Load(load.over, load.seconds, "", [other.drive(rate, queries).over])

        yield drive

    found = find_peak(plan(), opened)
    assert found.good <= 77 <= found.bad
    assert found.confirmed


def test_a_limit_that_few_queries_tell_anything_of_shows_no_rate_to_be_good() -> None:
    @contextlib.contextmanager
    def opened() -> Iterator[Drive]:
        yield lambda rate, queries: Load(
            np.zeros(queries, bool), queries / rate, "", [np.zeros(1, bool)]
        )

    found = find_peak(plan(budget=2000.0), opened)
    assert found.good == 0
    assert "was shown to meet the limit" in found.reason
