"""The search for the first bad release: exact on sure judges, and how often it errs on others."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_mlms.core.records import Verdict
from pytest_mlms.decide.upgrade.decision import compare_rounds, is_decided
from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.round_estimate import MOST_ROUNDS
from pytest_mlms.explain.bisect.search import Answer, Outcome, Pair, most_probes, search

TOLERANCE = 0.03
SLOWER = 0.08
COUNTS = st.integers(2, 300)

Judge = Callable[[Pair], Outcome]


class Asked:
    """A judge that notes what it was asked."""

    def __init__(self, judge: Judge) -> None:
        self.pairs: list[Pair] = []
        self._judge = judge

    def __call__(self, pair: Pair) -> Outcome:
        self.pairs.append(pair)
        return self._judge(pair)


def exact(levels: Sequence[float], unknown: Mapping[int, Outcome] | None = None) -> Asked:
    """Return a judge that knows the log of the time of each release."""

    def judge(pair: Pair) -> Outcome:
        if pair.after in (unknown or {}):
            return (unknown or {})[pair.after]
        worse = levels[pair.after] - levels[pair.before]
        return Outcome.BAD if worse > math.log1p(TOLERANCE) else Outcome.GOOD

    return Asked(judge)


def step(count: int, first: int, size: float = SLOWER) -> list[float]:
    return [math.log1p(size) * (number >= first) for number in range(count)]


@st.composite
def steps(draw: st.DrawFn) -> tuple[int, int]:
    count = draw(COUNTS)
    return count, draw(st.integers(1, count - 1))


@given(steps())
@example((2, 1))
def test_a_step_is_found_by_the_logarithm_of_the_releases_and_four_probes(
    case: tuple[int, int],
) -> None:
    count, first = case
    judge = exact(step(count, first))
    answer = search(count, judge, most_probes(count))
    assert answer == Answer("found", first - 1, first, len(judge.pairs), Outcome.BAD)
    assert len(judge.pairs) <= math.log2(count) + 4
    assert judge.pairs[-1] == Pair(first - 1, first, "neighbours", effort=2)


@settings(max_examples=50)
@given(steps(), st.data())
def test_a_release_that_cannot_be_judged_is_never_accused(
    case: tuple[int, int], data: st.DataObject
) -> None:
    count, first = case
    between = st.integers(1, count - 2) if count > 2 else st.nothing()
    kinds = st.sampled_from([Outcome.UNDECIDED, Outcome.UNAVAILABLE])
    unknown = data.draw(st.dictionaries(between, kinds))
    limit = data.draw(st.integers(2, most_probes(count) + 20))
    judge = exact(step(count, first), unknown)
    answer = search(count, judge, limit)
    assert answer.before < first <= answer.after
    assert not {answer.before, answer.after} & unknown.keys()
    assert answer.kind == ("found" if answer.after - answer.before == 1 else "range")
    assert answer.probes <= limit
    left = set(range(answer.before + 1, answer.after)) - unknown.keys()
    if left:
        assert answer.spent
        assert answer.probes == limit
    undecided = [pair for pair in judge.pairs if unknown.get(pair.after) is Outcome.UNDECIDED]
    assert {pair.effort for pair in undecided} <= {1, 2}
    assert len(undecided) == len(set(undecided))
    measured = [pair for pair in judge.pairs if unknown.get(pair.after) is not Outcome.UNAVAILABLE]
    assert len(measured) == answer.probes


@given(st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=40))
def test_only_a_release_that_is_worse_than_the_one_before_it_is_found(levels: list[float]) -> None:
    answer = search(len(levels), exact(levels), most_probes(len(levels)))
    limit = math.log1p(TOLERANCE)
    if answer.kind == "same":
        assert levels[-1] - levels[0] <= limit
    else:
        is_worse = levels[answer.after] - levels[answer.before] > limit
        assert is_worse == (answer.kind in ("found", "range"))


def test_a_drift_has_no_culprit() -> None:
    drift = [number * math.log1p(0.01) for number in range(12)]
    assert search(12, exact(drift), most_probes(12)).kind == "gradual"


def test_a_slow_down_that_is_undone_again_leaves_the_ends_alike() -> None:
    levels = step(12, 4)
    levels[9:] = [0.0] * 3
    judge = exact(levels)
    assert search(12, judge, most_probes(12)).kind == "same"
    assert len(judge.pairs) == 1


def test_the_ends_are_judged_again_with_twice_the_budget() -> None:
    judge = Asked(lambda pair: Outcome.UNDECIDED)
    answer = search(5, judge, most_probes(5))
    assert (answer.kind, answer.judged) == ("same", Outcome.UNDECIDED)
    assert judge.pairs == [Pair(0, 4, "ends", 1), Pair(0, 4, "ends", 2)]


def test_neighbours_that_stay_undecided_are_no_release_found_and_are_not_judged_again() -> None:
    certain = exact(step(8, 5))

    def judge(pair: Pair) -> Outcome:
        return Outcome.UNDECIDED if pair.purpose == "neighbours" else certain(pair)

    asked = Asked(judge)
    answer = search(8, asked, most_probes(8))
    assert (answer.kind, answer.before, answer.after) == ("range", 4, 5)
    assert [pair.purpose for pair in asked.pairs].count("neighbours") == 1


@pytest.mark.parametrize(("count", "probes"), [(2, 5), (12, 7), (16, 8), (36, 9)])
def test_the_most_probes(count: int, probes: int) -> None:
    assert most_probes(count) == probes


def gate(levels: Sequence[float], noise: float, generator: random.Random) -> Judge:
    """Return a judge that decides as the upgrade gate does, on rounds that scatter by ``noise``.

    Some releases are not measured at all now and then, as by a busy machine.
    """

    def judge(pair: Pair) -> Outcome:
        worse = levels[pair.after] - levels[pair.before]
        if pair.purpose == "search" and generator.random() < 0.05:
            return Outcome.UNDECIDED
        rounds: list[dict[str, Figure]] = []
        compared = []
        while len(rounds) < MOST_ROUNDS:
            value = generator.gauss(worse, noise)
            rounds.append({"latency": Figure(1.0, math.exp(value), value, noise / 10, 100)})
            compared = compare_rounds(rounds, {"latency": TOLERANCE})
            if is_decided(compared, len(rounds)):
                break
        (latency,) = compared
        if latency.verdict is Verdict.REGRESSED:
            return Outcome.BAD
        if latency.verdict is not Verdict.INCONCLUSIVE:
            return Outcome.GOOD
        assert latency.low is not None
        is_worse = pair.purpose == "search" and latency.low > 1
        return Outcome.BAD if is_worse else Outcome.UNDECIDED  # as Bisection.search

    return judge


def simulate(make: Callable[[random.Random], list[float]], runs: int, noise: float) -> Counter[str]:
    """Bisect many times; count the kinds of answers, "wrong" for an innocent release."""
    generator = random.Random(5)
    counts: Counter[str] = Counter()
    for _ in range(runs):
        levels = make(generator)
        answer = search(len(levels), gate(levels, noise, generator), most_probes(len(levels)))
        assert answer.probes <= math.log2(len(levels)) + 4
        change = levels[answer.after] - levels[answer.before]
        is_wrong = answer.kind == "found" and change <= math.log1p(TOLERANCE) + 1e-12
        counts["wrong" if is_wrong else answer.kind] += 1
    return counts


def a_step(generator: random.Random) -> list[float]:
    return step(12, generator.randint(1, 11))


def at_the_tolerance(generator: random.Random) -> list[float]:
    """Return a drift whose every step is the tolerance: each neighbour is as hard as can be."""
    return [number * math.log1p(TOLERANCE) for number in range(12)]


def a_drift(generator: random.Random) -> list[float]:
    return [number * math.log1p(0.01) for number in range(12)]


def undone(generator: random.Random) -> list[float]:
    levels = a_step(generator)
    end = generator.randint(1, 11)
    return [level if number < end else 0.0 for number, level in enumerate(levels)]


def a_walk(generator: random.Random) -> list[float]:
    """Return releases that get slower and faster by up to 4 %."""
    levels = [0.0]
    for _ in range(11):
        levels.append(levels[-1] + generator.uniform(-0.04, 0.04))
    return levels


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.002, 0.01])
def test_thousands_of_bisections_err_as_seldom_as_one_judgement(noise: float) -> None:
    runs = 500  # a rate of 3 % exceeds the bound below in 88 % of simulations, and 4 % in 99 %
    found = {}
    for make in (a_step, at_the_tolerance, a_drift, undone, a_walk):
        found[make.__name__] = simulate(make, runs, noise)
    print(found)
    for counts in found.values():
        assert counts["wrong"] <= 0.02 * runs  # 1 %, and its scatter
    assert found["a_step"]["found"] >= 0.95 * runs
    assert found["a_drift"]["gradual"] + found["a_drift"]["range"] >= 0.95 * runs
    assert found["undone"]["same"] >= 0.95 * runs
