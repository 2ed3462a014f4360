"""Times of tokens, against their definitions one call after the other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.token_times import TokenTimes

Calls = list[list[float]]
STEPS = st.floats(0.001, 10)
CALLS = st.lists(st.lists(STEPS, min_size=1, max_size=6), min_size=1, max_size=6)


def times_of(calls: Calls, wait: float = 0.0) -> dict[str, Any]:
    """Return raw times of calls by their steps; call number n begins at 100 n seconds."""
    at = [100 * number + np.cumsum(steps) for number, steps in enumerate(calls)]
    waits = [wait * np.arange(1, len(steps) + 1) for steps in calls]
    return {
        "start": 100.0 * np.arange(len(calls)),
        "tokens": np.array([len(steps) for steps in calls], float),
        "token": np.concatenate(at) + np.concatenate(waits),
        "token_wait": np.concatenate(waits),
    }


@given(CALLS, st.sampled_from([0.0, 0.5]))
def test_they_are_those_of_each_call_by_itself(calls: Calls, wait: float) -> None:
    found = TokenTimes.of(times_of(calls, wait), less_wait=True)
    assert found is not None
    np.testing.assert_allclose(found.first, [steps[0] for steps in calls], atol=1e-9)
    each = [float(np.mean(steps[1:])) if len(steps) > 1 else math.nan for steps in calls]
    np.testing.assert_allclose(found.each, each, atol=1e-9)
    gaps = [step for steps in calls for step in steps[1:]]
    np.testing.assert_allclose(found.gaps, gaps, atol=1e-9)
    assert found.count == sum(map(len, calls))


def test_a_wait_for_a_core_is_left_out_where_that_is_asked_for() -> None:
    times = times_of([[1, 2, 2]], wait=0.5)
    with_wait = TokenTimes.of(times)
    assert with_wait is not None
    assert (with_wait.usual_first, with_wait.usual_each) == pytest.approx((1.5, 2.5))


def test_answers_of_one_token_have_no_time_for_further_ones() -> None:
    found = TokenTimes.of(times_of([[1.0], [2.0]]))
    assert found is not None
    assert found.usual_first == 1.5
    assert math.isnan(found.usual_each)
    assert math.isnan(found.gap_percentile(99))


def test_a_query_that_was_not_served_counts_with_the_time_until_the_end() -> None:
    times = times_of([[1.0, 2.0], [3.0]])
    times["start"] = np.array([0.0, 50.0, 100.0])
    times["token"] = np.array([1.0, 2.0, 103.0])
    times["tokens"] = np.array([2.0, 0.0, 1.0])
    times["end"] = np.array([2.0, 150.0, 103.0])
    found = TokenTimes.of(times)
    assert found is not None
    assert sorted(found.first) == [1.0, 3.0, 100.0]
    assert found.usual_each == (1.0 + 100.0) / 2
    assert sorted(found.gaps) == [1.0, 100.0]
    assert (found.count, found.answers) == (3, 2)
    assert TokenTimes.of({**times, "tokens": np.zeros(3)}) is None


def test_several_turns_are_as_one_run() -> None:
    whole = TokenTimes.of(times_of([[1.0, 2.0], [3.0, 4.0, 5.0]]))
    first, second = times_of([[1.0, 2.0]]), times_of([[3.0, 4.0, 5.0]])
    joined = TokenTimes.joined([first, second], less_wait=False)
    assert whole is not None
    assert joined is not None
    np.testing.assert_allclose(joined.first, whole.first)
    np.testing.assert_allclose(joined.gaps, whole.gaps)


def test_a_model_that_generates_nothing_has_none() -> None:
    assert TokenTimes.of({"start": np.zeros(1)}) is None
    assert TokenTimes.joined([{"start": np.zeros(1)}], less_wait=True) is None
