"""Nesting of intervals, and means of groups."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_mlms.measure.trace.intervals import Intervals, find_containers, grouped, trimmed_mean

Interval = tuple[int, int]

pairs = st.tuples(st.integers(0, 30), st.integers(0, 12))
intervals = st.lists(pairs.map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=25)


def columns(rows: list[Interval]) -> Intervals:
    start = np.array([start for start, _ in rows], "i8")
    end = np.array([end for _, end in rows], "i8")
    return Intervals(start, end)


def contains(outer: Interval, inner: Interval) -> bool:
    return outer[0] <= inner[0] and outer[1] >= inner[1]


def cross(one: Interval, other: Interval) -> bool:
    return not contains(one, other) and not contains(other, one)


@given(intervals, intervals)
@settings(max_examples=400, deadline=None)
def test_containers_are_those_of_the_definition(
    outer: list[Interval], inner: list[Interval]
) -> None:
    found = find_containers(columns(outer), columns(inner))
    for index, ambiguous, interval in zip(found.index, found.ambiguous, inner, strict=True):
        around = [candidate for candidate in outer if contains(candidate, interval)]
        if not around:
            assert index == -1
            continue
        chosen = outer[index]
        assert chosen in around
        assert chosen[0] == max(start for start, _ in around)
        assert ambiguous == any(cross(chosen, other) for other in around)


def test_the_smallest_of_nested_intervals_is_found() -> None:
    outer = columns([(0, 100), (10, 90), (20, 80)])
    inner = columns([(30, 40), (15, 85), (5, 95)])
    found = find_containers(outer, inner)
    assert found.index.tolist() == [2, 1, 0]
    assert not found.ambiguous.any()


def test_an_interval_inside_of_two_that_cross_is_ambiguous() -> None:
    outer = columns([(0, 10), (5, 15)])
    inner = columns([(6, 8), (11, 12)])
    found = find_containers(outer, inner)
    assert found.index.tolist() == [1, 1]
    assert found.ambiguous.tolist() == [True, False]


def test_nothing_contains_anything_where_there_are_no_intervals() -> None:
    nothing = columns([])
    found = find_containers(nothing, columns([(6, 8)]))
    assert found.index.tolist() == [-1]
    assert found.ambiguous.tolist() == [False]


def test_groups_have_the_order_of_their_first_values() -> None:
    groups = grouped(["b", "a", "b"], np.array([1, 2, 3]))
    assert list(groups) == ["b", "a"]
    assert groups["b"].tolist() == [1, 3]


def test_a_trimmed_mean_leaves_out_both_ends() -> None:
    assert trimmed_mean(np.array([1000, 2, 3, 4, -1000])) == 3
    assert trimmed_mean(np.array([5])) == 5


def test_the_trimmed_mean_of_nothing_is_not_a_number() -> None:
    assert math.isnan(trimmed_mean(np.array([])))
