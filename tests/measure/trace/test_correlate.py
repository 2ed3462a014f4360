"""Parents of spans: trees are rebuilt exactly, and no kernel is counted twice."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_mlms.measure.trace.correlate import (
    Intervals,
    ancestors,
    find_containers,
    find_parents,
    grouped,
    sums_by,
    trimmed_mean,
)
from pytest_mlms.measure.trace.spans import Spans
from tests.support.traces import spans_of

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


LIBRARY = 3
KERNEL = 4
DEVICE_TRACK = 3
DEVICES = np.array([False, False, False, True])


@dataclass(frozen=True)
class Node:
    """A span of a tree; ``parent`` is an index into the tree, or -1."""

    level: int
    start: int
    end: int
    track: int
    parent: int
    correlation: int = 0


class Tree:
    """A random tree: models of layers of library calls, some of which start a kernel."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.nodes: list[Node] = []
        for thread in range(self.random.randint(1, 3)):
            self._grow_thread(thread)
        self._start_kernels()

    def spans(self, order: list[int] | None = None) -> Spans:
        """Return the spans, in another order of the nodes if one is given."""
        nodes = self.nodes if order is None else [self.nodes[index] for index in order]
        return Spans.of(
            level=[node.level for node in nodes],
            name=0,
            start=[node.start for node in nodes],
            end=[node.end for node in nodes],
            track=[node.track for node in nodes],
            run=0,
            correlation=[node.correlation for node in nodes],
        )

    def parents(self) -> list[int]:
        return [node.parent for node in self.nodes]

    def _grow_thread(self, thread: int) -> None:
        clock = self.random.randint(0, 5)
        for _ in range(self.random.randint(1, 4)):
            clock = self._grow(1, clock, thread, -1)
            clock += self.random.randint(0, 3)

    def _grow(self, level: int, start: int, thread: int, parent: int) -> int:
        """Add a span and the spans inside of it; return its end."""
        index = len(self.nodes)
        node = Node(level, start, start, thread, parent)
        self.nodes.append(node)
        clock = start + self.random.randint(1, 3)
        if level < LIBRARY:
            for _ in range(self.random.randint(0, 4)):
                clock = self._grow(level + 1, clock, thread, index)
                clock += self.random.randint(1, 3)
        end = clock + self.random.randint(1, 3)
        self.nodes[index] = replace(node, end=end)
        return end

    def _start_kernels(self) -> None:
        """Let most library calls start a kernel, which may run at any time after it."""
        for index, node in enumerate(list(self.nodes)):
            if node.level != LIBRARY or self.random.random() > 0.7:
                continue
            correlation = index + 1
            self.nodes[index] = replace(node, correlation=correlation)
            start = node.end + self.random.randint(-1, 50)
            end = start + self.random.randint(1, 9)
            self.nodes.append(Node(KERNEL, start, end, DEVICE_TRACK, index, correlation))


trees = st.integers(0, 10**9).map(Tree)


@given(trees, st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_a_random_tree_is_rebuilt_exactly_in_any_order(tree: Tree, shuffle: random.Random) -> None:
    order = list(range(len(tree.nodes)))
    shuffle.shuffle(order)
    place = {node: index for index, node in enumerate(order)}
    found = find_parents(tree.spans(order), DEVICES)
    expected = [place.get(tree.nodes[node].parent, -1) for node in order]
    assert found.index.tolist() == expected
    assert not found.ambiguous.any()


@given(trees, st.integers(-100, 100))
@settings(max_examples=100, deadline=None)
def test_an_external_id_finds_the_layer_of_a_call_whatever_its_times(
    tree: Tree, shift: int
) -> None:
    spans = tree.spans()
    parents = np.array(tree.parents())
    layers = spans.at("layer")
    calls = spans.at("library") & (parents >= 0)
    spans.external[layers] = 7 + np.flatnonzero(layers)
    spans.external[calls] = spans.external[parents[calls]]
    spans.start[calls] += shift
    spans.end[calls] += shift
    found = find_parents(spans, DEVICES)
    assert found.index[calls].tolist() == parents[calls].tolist()
    assert not found.ambiguous[calls].any()


@given(trees)
@settings(max_examples=100, deadline=None)
def test_every_kernel_is_counted_once_and_the_sums_match(tree: Tree) -> None:
    spans = tree.spans()
    parents = find_parents(spans, DEVICES).index
    kernels = spans.at("kernel")
    durations = spans.duration[kernels]
    for level in ("library", "layer", "model"):
        owner = ancestors(spans, parents, level)[kernels]
        assert (owner >= 0).all()
        sums = sums_by(owner, durations, len(spans))
        assert sums.sum() == durations.sum()
        assert not sums[~spans.at(level)].any()


def test_an_external_id_that_no_layer_has_leaves_a_call_to_its_times() -> None:
    spans = spans_of(
        ("model", 0, 20, 0, 0),
        ("layer", 2, 8, 0, 0),
        ("library", 3, 5, 0, 0),
        ("library", 10, 12, 0, 0),
    )
    spans.external[:] = [0, 5, 9, 9]
    assert find_parents(spans).index.tolist() == [-1, 0, 1, 0]


def test_an_external_id_of_another_run_does_not_count() -> None:
    spans = spans_of(
        ("model", 0, 20, 0, 0),
        ("layer", 2, 8, 1, 0),
        ("library", 3, 5, 0, 0),
    )
    spans.external[:] = [0, 5, 5]
    spans.run[:] = [0, 1, 0]
    assert find_parents(spans).index[2] == 0


def test_a_driver_call_inside_of_a_runtime_call_is_the_launch() -> None:
    spans = spans_of(
        ("library", 0, 9, 0, 5),
        ("library", 2, 8, 0, 5),
        ("kernel", 20, 30, 1, 5),
    )
    found = find_parents(spans, np.array([False, True]))
    assert found.index.tolist() == [-1, -1, 1]


def test_a_kernel_on_a_device_without_a_launch_has_no_parent() -> None:
    spans = spans_of(("layer", 0, 100, 0, 0), ("kernel", 20, 30, 1, 7))
    found = find_parents(spans, np.array([False, True]))
    assert found.index.tolist() == [-1, -1]


def test_a_span_on_another_thread_is_no_parent() -> None:
    spans = spans_of(("layer", 0, 100, 0, 0), ("library", 20, 30, 1, 0))
    assert find_parents(spans).index.tolist() == [-1, -1]


def test_a_level_without_spans_is_skipped() -> None:
    spans = spans_of(("model", 0, 100, 0, 0), ("library", 20, 30, 0, 0))
    assert find_parents(spans).index.tolist() == [-1, 0]


def test_a_call_inside_of_two_layers_that_cross_is_ambiguous() -> None:
    spans = spans_of(
        ("layer", 0, 10, 0, 0),
        ("layer", 5, 15, 0, 0),
        ("library", 6, 8, 0, 0),
    )
    found = find_parents(spans)
    assert found.ambiguous.tolist() == [False, False, True]


def test_the_same_correlation_id_in_another_run_is_another_launch() -> None:
    spans = spans_of(
        ("library", 0, 1, 0, 5),
        ("library", 10, 11, 0, 5),
        ("kernel", 30, 31, 1, 5),
    )
    spans.run[:] = [0, 1, 1]
    found = find_parents(spans, np.array([False, True]))
    assert found.index.tolist() == [-1, -1, 1]


def test_no_spans_have_no_parents() -> None:
    assert find_parents(Spans.join([])).index.tolist() == []
