"""Raw measurements of a round, and the clocks that they can be read by."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_mlms.decide.upgrade.rounds import CLOCKS, Array, Round, available_clocks
from pytest_mlms.measure.evaluate.steadiness import call_waits
from tests.support.upgrades import CALLS, PAIRS, random_side

RNG = np.random.default_rng(8)
TENTH = np.full((PAIRS, CALLS), 1e-4)
PLAIN = random_side(RNG)
WITH_EVENTS = random_side(RNG, device=TENTH)
WITHOUT_WAITS = random_side(RNG, wait=None)


def test_all_clocks_are_available_where_both_sides_have_them() -> None:
    both = Round(WITH_EVENTS, WITH_EVENTS)
    assert available_clocks(both) == list(CLOCKS)


def test_a_clock_that_one_side_lacks_is_not_available() -> None:
    without_events = Round(WITH_EVENTS, PLAIN)
    assert available_clocks(without_events) == ["adj", "cpu", "wall"]
    without_waits = Round(PLAIN, WITHOUT_WAITS)
    assert available_clocks(without_waits) == ["cpu", "wall"]


def test_the_adjusted_clock_leaves_out_the_waits() -> None:
    waited = random_side(RNG, wait=TENTH)
    assert waited.times("adj") == pytest.approx(waited.wall - 1e-4)


def test_the_wall_clock_is_read_as_it_is() -> None:
    assert PLAIN.times("wall") is PLAIN.wall


def test_cpu_time_has_one_value_a_turn() -> None:
    assert PLAIN.times("cpu").shape == (PAIRS, 1)


def test_time_on_the_device_is_that_of_its_events() -> None:
    assert WITH_EVENTS.times("device") is TENTH


def test_arrays_that_were_not_measured_are_left_out() -> None:
    assert set(WITHOUT_WAITS.arrays()) == {"wall", "cpu"}
    assert set(WITH_EVENTS.arrays()) == {"wall", "wait", "cpu", "device"}


def waits_of_four_calls(counter: list[float]) -> Array:
    """Return the waits of calls of which the second is the longest.

    The counter was read before the first call, after the third, and after the last.
    """
    start = np.array([0.0, 1.0, 2.0, 3.0])
    end = np.array([0.1, 1.5, 2.1, 3.1])
    at = np.array([0.0, 3.0, 4.0])
    return call_waits(start, end, np.array(counter), at)


def test_a_wait_belongs_to_the_longest_call_between_two_readings() -> None:
    waits = waits_of_four_calls([5.0, 5.4, 5.4])
    assert waits == pytest.approx([0, 0.4, 0, 0])


def test_a_wait_that_is_longer_than_every_call_belongs_to_none() -> None:
    waits = waits_of_four_calls([5.0, 5.4, 5.9])
    assert waits == pytest.approx([0, 0.4, 0, 0])
