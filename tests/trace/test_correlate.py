"""Every span finds who caused it: trees are rebuilt exactly, and nothing is counted twice."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_mlms.trace import LEVELS
from pytest_mlms.trace.correlate import ancestors, find_parents, sums_by
from pytest_mlms.trace.intervals import find_containers
from pytest_mlms.trace.spans import Spans

Row = tuple[int, int, int, int, int, int]  # level, start, end, track, correlation, parent


@st.composite
def trees(draw: st.DrawFn) -> list[Row]:
    """Random runs on up to three threads.

    Models of layers of library calls, each of which may start a kernel.
    """
    seed = random.Random(draw(st.integers(0, 10**9)))
    rows: list[Row] = []
    for thread in range(seed.randint(1, 3)):
        clock = seed.randint(0, 5)
        for _ in range(seed.randint(1, 4)):
            clock = grow(rows, seed, 1, clock, thread, -1) + seed.randint(0, 3)
    for row in [index for index, row in enumerate(rows) if row[0] == 3]:
        if seed.random() < 0.7:
            level, start, end, track, _, parent = rows[row]
            rows[row] = (level, start, end, track, len(rows), parent)
            begin = end + seed.randint(-1, 50)  # on the device, whenever
            rows.append((4, begin, begin + seed.randint(1, 9), 3, len(rows), row))
    return rows


def grow(
    rows: list[Row], seed: random.Random, level: int, clock: int, thread: int, parent: int
) -> int:
    """Add a span and what is inside of it; return its end."""
    mine = len(rows)
    rows.append((level, 0, 0, thread, 0, parent))
    start, clock = clock, clock + seed.randint(1, 3)
    if level < 3:
        for _ in range(seed.randint(0, 4)):
            clock = grow(rows, seed, level + 1, clock, thread, mine) + seed.randint(1, 3)
    end = clock + seed.randint(1, 3)
    rows[mine] = (level, start, end, thread, 0, parent)
    return end


def spans_of(rows: list[Row], order: list[int]) -> Spans:
    level, start, end, track, correlation, _ = (
        np.array(column)[order] for column in zip(*rows, strict=True)
    )
    return Spans.of(
        level=level, name=0, start=start, end=end, track=track, run=0, correlation=correlation
    )


DEVICE = np.array([False, False, False, True])


@given(trees(), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_a_random_tree_is_rebuilt_exactly_whatever_the_order(
    rows: list[Row], shuffle: random.Random
) -> None:
    order = list(range(len(rows)))
    shuffle.shuffle(order)
    place = {row: index for index, row in enumerate(order)}
    found = find_parents(spans_of(rows, order), DEVICE)
    assert found.index.tolist() == [place.get(rows[row][5], -1) for row in order]
    assert not found.ambiguous.any()


@given(trees(), st.integers(-100, 100))
@settings(max_examples=100, deadline=None)
def test_a_number_finds_the_layer_of_a_call_though_its_clock_is_another(
    rows: list[Row], shift: int
) -> None:
    spans = spans_of(rows, list(range(len(rows))))
    parent = np.array([row[5] for row in rows])
    called = spans.at("library") & (parent >= 0)
    spans.external[spans.at("layer")] = 7 + np.flatnonzero(spans.at("layer"))
    spans.external[called] = spans.external[parent[called]]
    spans.start[called] += shift
    spans.end[called] += shift
    found = find_parents(spans, DEVICE)
    assert found.index[called].tolist() == parent[called].tolist()
    assert not found.ambiguous[called].any()


def test_a_number_that_no_layer_has_leaves_a_call_to_its_time() -> None:
    two = spans(
        ("model", 0, 20, 0, 0),
        ("layer", 2, 8, 0, 0),
        ("library", 3, 5, 0, 0),
        ("library", 10, 12, 0, 0),
    )
    two.external[:] = [0, 5, 9, 9]
    assert find_parents(two).index.tolist() == [-1, 0, 1, 0]
    two.run[:] = two.track[:] = [0, 1, 0, 0]
    two.external[:] = [0, 5, 5, 5]
    assert find_parents(two).index.tolist()[2:] == [0, 0], "a layer of another run"


@given(trees())
@settings(max_examples=100, deadline=None)
def test_every_kernel_is_counted_once_and_the_sums_match(rows: list[Row]) -> None:
    spans = spans_of(rows, list(range(len(rows))))
    parent = find_parents(spans, DEVICE).index
    kernels = spans.at("kernel")
    for level in ("library", "layer", "model"):
        owner = ancestors(spans, parent, level)
        assert (owner[kernels] >= 0).all()
        sums = sums_by(owner[kernels], spans.duration[kernels], len(spans))
        assert sums.sum() == spans.duration[kernels].sum()
        assert not sums[~spans.at(level)].any()


intervals = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=25)


def columns(pairs: list[tuple[int, int]]) -> tuple[Any, Any]:
    start = np.array([first for first, _ in pairs], "i8")
    return start, start + np.array([length for _, length in pairs], "i8")


@given(intervals, intervals)
@settings(max_examples=400, deadline=None)
def test_containers_are_as_the_definition_says(
    outer: list[tuple[int, int]], inner: list[tuple[int, int]]
) -> None:
    start, end = columns(outer)
    begins, ends = columns(inner)
    answer = find_containers(start, end, begins, ends)
    found, doubt = answer.index, answer.ambiguous
    for place, unsure, begin, close in zip(
        found.tolist(), doubt.tolist(), begins.tolist(), ends.tolist(), strict=True
    ):
        around = [i for i in range(len(outer)) if start[i] <= begin and end[i] >= close]
        if not around:
            assert place == -1
            continue
        assert place in around
        assert start[place] == max(start[i] for i in around)
        crossed = [i for i in around if not (start[i] <= start[place] and end[i] >= end[place])]
        crossed = [i for i in crossed if not (start[i] >= start[place] and end[i] <= end[place])]
        assert unsure == bool(crossed)
        if not crossed:
            assert end[place] - start[place] == min(end[i] - start[i] for i in around)


def spans(*rows: tuple[str, int, int, int, int]) -> Spans:
    level, start, end, track, correlation = zip(*rows, strict=True)
    numbers = [LEVELS.index(name) for name in level]
    return Spans.of(
        level=numbers, name=0, start=start, end=end, track=track, run=0, correlation=correlation
    )


def test_a_driver_call_inside_a_runtime_call_is_the_launch() -> None:
    found = find_parents(
        spans(("library", 0, 9, 0, 5), ("library", 2, 8, 0, 5), ("kernel", 20, 30, 1, 5)),
        np.array([False, True]),
    )
    assert found.index.tolist() == [-1, -1, 1]


def test_a_kernel_on_a_device_without_a_launch_has_no_parent() -> None:
    found = find_parents(
        spans(("layer", 0, 100, 0, 0), ("kernel", 20, 30, 1, 7)), np.array([False, True])
    )
    assert found.index.tolist() == [-1, -1]


def test_a_span_on_another_thread_is_no_parent() -> None:
    assert find_parents(
        spans(("layer", 0, 100, 0, 0), ("library", 20, 30, 1, 0))
    ).index.tolist() == [-1, -1]


def test_a_level_that_was_not_on_is_passed_over() -> None:
    assert find_parents(
        spans(("model", 0, 100, 0, 0), ("library", 20, 30, 0, 0))
    ).index.tolist() == [-1, 0]


def test_layers_that_cross_leave_a_call_inside_of_both_in_doubt() -> None:
    found = find_parents(
        spans(("layer", 0, 10, 0, 0), ("layer", 5, 15, 0, 0), ("library", 6, 8, 0, 0))
    )
    assert found.ambiguous.tolist() == [False, False, True]


def test_the_same_correlation_id_in_another_run_is_another_launch() -> None:
    twice = Spans.of(
        level=[3, 3, 4],
        name=0,
        start=[0, 10, 30],
        end=[1, 11, 31],
        track=[0, 0, 1],
        run=[0, 1, 1],
        correlation=5,
    )
    assert find_parents(twice, np.array([False, True])).index.tolist() == [-1, -1, 1]


def test_nothing_has_no_parents() -> None:
    assert find_parents(Spans.join([])).index.tolist() == []
