"""The rule of changes, on made series."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytest_mlms.keep.history.change_points import TOO_FEW, estimate_shift, find_shifts, sight_of
from pytest_mlms.keep.history.shifts import Sensitivity, Shift

Values = NDArray[np.float64]

TIMED = Sensitivity(0.02)
COMPUTED = Sensitivity(0.01, exact=True)

seeds = st.integers(0, 2**32 - 1)


def noise(seed: int, count: int, deviation: float = 0.02) -> Values:
    return np.random.default_rng(seed).normal(0, deviation, count)


def with_step(seed: int, step: float, at: int = 50, count: int = 100) -> Values:
    values = noise(seed, count)
    values[at:] += step
    return values


@pytest.mark.parametrize("step", [0.1, -0.1])
def test_a_step_is_one_shift_near_its_place(step: float) -> None:
    [shift] = find_shifts(with_step(1, step), TIMED)
    assert abs(shift.first - 50) <= 1
    assert 52 <= shift.found <= 60
    assert shift.kind == "step"
    assert shift.change == pytest.approx(step, abs=0.02)


def test_a_step_is_found_after_three_runs_where_much_is_known() -> None:
    [shift] = find_shifts(with_step(1, 0.2, at=90), TIMED)
    assert (shift.first, shift.found) == (90, 92)


def test_a_shift_is_not_reported_again_for_a_year() -> None:
    assert len(find_shifts(with_step(2, 0.1, count=415), TIMED)) == 1


@given(seed=seeds, kind=st.sampled_from(["white", "outliers", "bimodal"]))
def test_noise_has_at_most_a_rare_shift(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 0.02, 200)
    if kind == "outliers":
        values += np.where(rng.random(200) < 0.06, rng.uniform(0.1, 0.5, 200), 0)
    if kind == "bimodal":
        values = 0.06 * (rng.random(200) < 0.3) + values / 4
    assert len(find_shifts(values, TIMED)) <= 1


@given(seed=seeds, step=st.sampled_from([0.0, 0.05, 0.1]), factor=st.floats(-20, 20))
def test_units_do_not_matter(seed: int, step: float, factor: float) -> None:
    values = with_step(seed, step)
    moved = find_shifts(values + factor, TIMED)
    assert [(s.first, s.found) for s in moved] == [
        (s.first, s.found) for s in find_shifts(values, TIMED)
    ]


@given(seed=seeds, step=st.sampled_from([0.0, 0.05, 0.1, 0.3]))
def test_gains_are_found_as_losses_are(seed: int, step: float) -> None:
    values = with_step(seed, step)
    losses = [(s.first, s.found, s.change) for s in find_shifts(values, TIMED)]
    gains = [(s.first, s.found, -s.change) for s in find_shifts(-values, TIMED)]
    assert losses == gains


@given(seed=seeds, steps=st.lists(st.floats(-0.3, 0.3), max_size=3), cut=st.integers(1, 119))
def test_a_series_has_the_same_shifts_scanned_at_once_and_night_by_night(
    seed: int, steps: list[float], cut: int
) -> None:
    values = noise(seed, 120)
    for number, step in enumerate(steps):
        values[30 * (number + 1) :] += step
    earlier = find_shifts(values[:cut], TIMED)
    assert find_shifts(values, TIMED, earlier, judged=cut) == find_shifts(values, TIMED)


@given(value=st.floats(-1e6, 1e6), count=st.integers(0, 60), exact=st.booleans())
def test_a_constant_has_no_shift(value: float, count: int, exact: bool) -> None:
    assert find_shifts(np.full(count, value), Sensitivity(0.02, exact)) == []


@given(st.lists(st.sampled_from([0.0, 1e-12, 0.02, 0.05, -30.0, 700.0, 1e6]), max_size=80))
def test_any_finite_values_have_finite_shifts(values: list[float]) -> None:
    for exact in (False, True):
        sensitivity = Sensitivity(0.02, exact)
        for shift in find_shifts(values, sensitivity):
            estimate = estimate_shift(np.array(values), sensitivity, shift, len(values))
            numbers = [shift.old, shift.change, estimate.change, estimate.low, estimate.high]
            assert np.isfinite(numbers).all()
            assert estimate.low <= estimate.change <= estimate.high
            assert 0 < shift.first <= shift.found < len(values)


def test_too_few_points_have_no_shift() -> None:
    values = np.zeros(TOO_FEW - 1)
    values[-3:] = 5.0
    assert find_shifts(values, TIMED) == []


def test_one_outlier_is_no_shift_and_two_are_none() -> None:
    values = noise(3, 60)
    values[[30, 45, 46]] += 1.0
    assert find_shifts(values, TIMED) == []


def test_a_change_that_goes_back_is_undone_and_no_second_shift() -> None:
    values = noise(4, 100)
    values[50:65] += 0.1
    [shift] = find_shifts(values, TIMED)
    assert abs(shift.first - 50) <= 1
    assert shift.undone is not None
    assert abs(shift.undone - 65) <= 1


def test_an_accepted_change_that_goes_back_is_another_shift() -> None:
    values = noise(4, 100)
    values[50:75] += 0.1
    [known] = find_shifts(values[:65], TIMED)
    accepted = Shift(known.first, known.found, known.old, known.change, accepted=True)
    first, second = find_shifts(values, TIMED, [accepted], judged=65)
    assert first == accepted
    assert abs(second.first - 75) <= 1
    assert second.change < -0.08


def test_two_steps_in_a_row_are_two_shifts() -> None:
    values = noise(5, 150)
    values[50:] += 0.1
    values[100:] += 0.1
    assert [round(s.first, -1) for s in find_shifts(values, TIMED)] == [50, 100]


def test_slow_drift_is_found_against_the_begin_of_the_level() -> None:
    values = noise(6, 365, 0.01) + np.arange(365) * 0.12 / 365
    shifts = find_shifts(values, TIMED)
    assert shifts
    assert shifts[0].kind == "drift"
    assert shifts[0].change >= 0.04


def test_a_computed_value_shifts_with_its_first_other_value() -> None:
    values = np.full(20, 0.97)
    values[15:] = 0.95
    [shift] = find_shifts(values, COMPUTED)
    assert (shift.first, shift.found) == (15, 15)
    assert find_shifts(values, TIMED) == [] or find_shifts(values, TIMED)[0].found > 15


def test_a_computed_value_returns_at_once() -> None:
    values = np.full(20, 0.97)
    values[15] = 0.95
    [shift] = find_shifts(values, COMPUTED)
    assert shift.undone == 16


def test_a_step_of_less_than_the_least_change_is_no_shift_however_steady() -> None:
    values = np.full(60, 0.97)
    values[30:] -= 0.009
    assert find_shifts(values, COMPUTED) == []


@given(seed=seeds)
def test_the_interval_of_a_step_has_it(seed: int) -> None:
    values = with_step(seed, 0.2)
    estimate = estimate_shift(values, TIMED, Shift(50, 52, 0.0, 0.2), 100)
    assert estimate.low - 0.02 <= 0.2 <= estimate.high + 0.02


@pytest.mark.parametrize(("before", "points"), [(9, 8), (12, 8), (14, 5), (37, 4), (80, 3)])
def test_a_step_at_a_change_of_software_is_found_at_once_and_another_after_some_runs(
    before: int, points: int
) -> None:
    values = noise(3, before + points, 0.005)
    values[before:] += 0.08
    [shift] = find_shifts(values[: before + 1], TIMED, changed=[before])
    assert (shift.first, shift.found) == (before, before)
    assert find_shifts(values, TIMED, changed=[before])[0] == shift
    assert find_shifts(values[: before + points - 1], TIMED) == []


@given(seed=seeds, changed=st.sets(st.integers(0, 99), max_size=10))
def test_a_change_of_software_alone_is_no_shift_and_the_scan_may_come_in_parts(
    seed: int, changed: set[int]
) -> None:
    places = sorted(changed)
    values = with_step(seed, 0.1, at=60)
    whole = find_shifts(values, TIMED, changed=places)
    earlier = find_shifts(values[:70], TIMED, changed=places)
    assert find_shifts(values, TIMED, earlier, judged=70, changed=places) == whole
    assert find_shifts(np.zeros(100), TIMED, changed=places) == []


def test_a_change_of_software_in_noise_is_rarely_taken_for_a_step() -> None:
    found = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        values = rng.normal(0, 0.02, 60) + np.where(rng.random(60) < 0.06, 0.3, 0)
        found += bool(find_shifts(values, TIMED, changed=[30, 40, 50]))
    assert found <= 12


@pytest.mark.parametrize("before", [12, 20, 30, 60, 90])
def test_a_step_of_the_size_that_can_be_seen_is_seen_four_times_of_five(before: int) -> None:
    found = at_once = 0
    for seed in range(100):
        values = noise(seed, before + 20)
        sight = sight_of(values[:before], TIMED, [])
        stepped = values.copy()
        stepped[before:] += sight.change
        found += bool(find_shifts(stepped[: before + sight.points], TIMED))
        stepped = values.copy()
        stepped[before:] += sight.with_software
        at_once += bool(find_shifts(stepped[: before + 1], TIMED, changed=[before]))
    assert found >= 75
    assert at_once >= 75


def test_the_sight_of_a_series_gets_better_with_its_points() -> None:
    known = [sight_of(noise(1, count), TIMED, []).points for count in (4, 12, 14, 37, 80)]
    assert known == [13, 8, 5, 4, 3]
