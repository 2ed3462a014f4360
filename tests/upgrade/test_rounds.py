"""Raw measurements of a round, and the clocks that they can be read by."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_mlms.upgrade.rounds import CLOCKS, Round, available_clocks, call_waits
from tests.support.upgrades import CALLS, PAIRS, random_side

RNG = np.random.default_rng(8)
PLAIN = random_side(RNG)
WITH_EVENTS = random_side(RNG, device=np.full((PAIRS, CALLS), 1e-4))
WITHOUT_WAITS = random_side(RNG, wait=None)


def test_the_first_clock_that_both_sides_have_is_the_least_disturbed() -> None:
    assert available_clocks(Round(WITH_EVENTS, WITH_EVENTS)) == list(CLOCKS)
    assert available_clocks(Round(WITH_EVENTS, PLAIN))[0] == "adj"
    assert available_clocks(Round(PLAIN, WITHOUT_WAITS)) == ["cpu", "wall"]


def test_each_clock_gives_the_times_of_the_calls() -> None:
    waited = random_side(RNG, wait=np.full((PAIRS, CALLS), 1e-4))
    assert waited.times("adj") == pytest.approx(waited.wall - 1e-4)
    assert (waited.times("wall") == waited.wall).all()
    assert waited.times("cpu").shape == (PAIRS, 1)
    assert (WITH_EVENTS.times("device") == 1e-4).all()


def test_arrays_that_were_not_measured_are_left_out() -> None:
    assert set(WITHOUT_WAITS.arrays()) == {"wall", "cpu"}
    assert set(WITH_EVENTS.arrays()) == {"wall", "wait", "cpu", "device"}


START = np.array([0.0, 1.0, 2.0, 3.0])
END = np.array([0.1, 1.5, 2.1, 3.1])
AT = np.array([0.0, 3.0, 4.0])


def test_a_wait_belongs_to_the_longest_call_between_two_readings() -> None:
    counter = np.array([5.0, 5.4, 5.4])
    assert call_waits(START, END, counter, AT) == pytest.approx([0, 0.4, 0, 0])


def test_a_wait_that_is_longer_than_every_call_belongs_to_none() -> None:
    counter = np.array([5.0, 5.4, 5.9])
    assert call_waits(START, END, counter, AT) == pytest.approx([0, 0.4, 0, 0])
