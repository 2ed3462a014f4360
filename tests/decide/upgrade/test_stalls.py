"""The decision on stalls, on counts whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.decide.upgrade.decision import is_decided
from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.round_estimate import LEAST_ROUNDS, MOST_ROUNDS
from pytest_mlms.decide.upgrade.stalls import compare_stalls


def stalls(counts: Iterable[tuple[int, int]], calls: int = 600) -> list[Mapping[str, Figure]]:
    """Return rounds in which so many calls of A and B stalled."""
    return [
        {"stalls": Figure(a / calls, b / calls, math.log((b + 0.5) / (a + 0.5)), 0.0, calls)}
        for a, b in counts
    ]


def gate_on(rounds: list[Mapping[str, Figure]]) -> Comparison:
    compared = compare_stalls(rounds, tolerance=0.5)
    assert compared is not None
    return compared


def decided(random: np.random.Generator, times: float, spread: float) -> Verdict:
    """Return the verdict of a gate whose B stalls so many ``times`` as often as A.

    Processes stall as often as a gamma distribution of deviation ``spread`` says.
    """
    rounds: list[Mapping[str, Figure]] = []
    verdict = Verdict.INCONCLUSIVE
    while verdict is Verdict.INCONCLUSIVE and len(rounds) < MOST_ROUNDS:
        rate = random.gamma(spread**-2, spread**2, size=2) if spread else np.ones(2)
        a, b = random.poisson(12 * rate * (1, times))
        rounds += stalls([(int(a), int(b))])
        if len(rounds) >= LEAST_ROUNDS:
            verdict = gate_on(rounds).verdict
    return verdict


@pytest.mark.parametrize("spread", [0.0, 0.7])
def test_a_gate_on_stalls_passes_at_its_tolerance_as_rarely_as_is_declared(spread: float) -> None:
    random = np.random.default_rng(5)
    found = [decided(random, 1.5, spread) for _ in range(300)]
    assert found.count(Verdict.PASSED) <= 300 * 0.05 + 8
    assert found.count(Verdict.REGRESSED) <= 300 * 0.01 + 4


def test_a_gate_on_stalls_passes_where_both_sides_stall_alike_and_often() -> None:
    passed = gate_on(stalls([(30, 30), (28, 33), (33, 28), (31, 29), (29, 31), (30, 30)]))
    assert passed.verdict is Verdict.PASSED
    assert passed.high < 1.5


def test_rounds_that_contradict_each_other_pass_no_gate_on_stalls() -> None:
    found = gate_on(stalls([(90, 5), (5, 30), (5, 30), (5, 30), (90, 5), (5, 30)]))
    assert found.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("rounds", "calls", "expected"),
    [
        (6, 600, Verdict.PASSED),
        (6, 30, Verdict.INCONCLUSIVE),  # one call in a hundred may stall and be in none
        (5, 600, Verdict.INCONCLUSIVE),
    ],
)
def test_a_candidate_that_never_stalls_passes_after_the_calls_and_rounds_that_show_it(
    rounds: int, calls: int, expected: Verdict
) -> None:
    assert gate_on(stalls(rounds * [(0, 0)], calls)).verdict is expected


def test_a_gate_on_stalls_that_is_open_needs_further_rounds() -> None:
    open_gate = gate_on(stalls(6 * [(3, 3)]))
    assert open_gate.verdict is Verdict.INCONCLUSIVE
    assert not is_decided([open_gate], 6)


def test_stalls_of_b_alone_that_are_not_yet_shown_need_further_rounds() -> None:
    suspect = compare_stalls(stalls([*4 * [(0, 1)], (0, 2), (0, 2)]))
    assert suspect is not None
    assert not suspect.gate
    assert math.isinf(suspect.high)
    assert not is_decided([suspect], 6)
