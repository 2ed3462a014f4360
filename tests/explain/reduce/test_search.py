"""Tests of the search for the fewest nodes, with made-up failures over drawn graphs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.explain.bisect.search import Outcome
from pytest_mlms.explain.reduce.search import (
    Judged,
    Nodes,
    Progress,
    Step,
    nodes_within,
    smallest_nodes,
)


class DrawnGraph:
    """Nodes that read earlier ones."""

    def __init__(self, edges: list[list[int]]) -> None:
        self._edges = edges

    @property
    def all(self) -> Nodes:
        return tuple(range(len(self._edges)))

    def neighbours(self, number: int, forwards: bool) -> Iterator[int]:
        if not forwards:
            yield from self._edges[number]
            return
        for reader, edges in enumerate(self._edges):
            if number in edges:
                yield reader


@st.composite
def graphs(draw: st.DrawFn) -> DrawnGraph:
    edges: list[list[int]] = [[]]
    for number in range(1, draw(st.integers(1, 14))):
        edges.append(draw(st.lists(st.integers(0, number - 1), min_size=1, max_size=3)))
    return DrawnGraph(edges)


def chain(count: int) -> DrawnGraph:
    return DrawnGraph([[]] + [[number] for number in range(count - 1)])


def progress_of(
    shows: Callable[[Nodes], bool], tell: Callable[[Step], None] = lambda step: None
) -> Progress:
    def test(nodes: Nodes) -> Judged:
        return Judged(Outcome.BAD if shows(nodes) else Outcome.GOOD)

    return Progress(test, tell, time.monotonic() + 60)


@given(st.data(), graphs())
def test_nodes_that_are_needed_together_are_what_is_left(
    data: st.DataObject, graph: DrawnGraph
) -> None:
    needed = set(data.draw(st.sets(st.sampled_from(graph.all), min_size=1)))
    starts = data.draw(st.lists(st.sampled_from(graph.all), max_size=2))
    found = smallest_nodes(graph, starts, progress_of(needed.issubset))
    assert found.nodes == tuple(sorted(needed))
    assert found.minimal
    assert found.complete


@given(st.data(), graphs())
def test_what_is_found_shows_it_and_is_minimal_whatever_else_does(
    data: st.DataObject, graph: DrawnGraph
) -> None:
    answers: dict[Nodes, bool] = {}

    def shows(nodes: Nodes) -> bool:
        if nodes not in answers:
            answers[nodes] = nodes == graph.all or data.draw(st.booleans())
        return answers[nodes]

    starts = data.draw(st.lists(st.sampled_from(graph.all), max_size=2))
    progress = progress_of(shows)
    found = smallest_nodes(graph, starts, progress)
    assert answers[found.nodes]
    for index in range(len(found.nodes)):
        rest = found.nodes[:index] + found.nodes[index + 1 :]
        assert not rest or answers[rest] is False
    assert len(progress.steps) == len(answers)


@given(graphs())
def test_nothing_is_found_where_nothing_shows_it(graph: DrawnGraph) -> None:
    found = smallest_nodes(graph, [0], progress_of(lambda nodes: False))
    assert found.nodes == ()
    assert found.complete


def test_a_node_that_shows_it_alone_is_one_step() -> None:
    progress = progress_of(lambda nodes: 40 in nodes)
    found = smallest_nodes(chain(100), [40], progress)
    assert found.nodes == (40,)
    assert len(progress.steps) == 1


def test_nodes_before_the_first_one_are_added_before_those_behind_it() -> None:
    seen: list[Nodes] = []

    def shows(nodes: Nodes) -> bool:
        seen.append(nodes)
        return {40, 37}.issubset(nodes)

    found = smallest_nodes(chain(100), [40], progress_of(shows))
    assert found.nodes == (37, 40)
    assert seen[:4] == [(40,), (39, 40), (39, 40, 41), (38, 39, 40)]
    assert max(map(len, seen)) < 10  # never the whole network


def test_undecided_nodes_are_not_taken_but_leave_it_unproved() -> None:
    def test(nodes: Nodes) -> Judged:
        if {3, 5}.issubset(nodes):
            return Judged(Outcome.BAD)
        return Judged(Outcome.UNDECIDED, "noise")

    progress = Progress(test, lambda step: None, time.monotonic() + 60)
    found = smallest_nodes(chain(8), [], progress)
    assert found.nodes == (3, 5)
    assert not found.minimal


def test_the_smallest_is_kept_where_the_budget_ends() -> None:
    progress = progress_of({3, 60}.issubset)
    progress.tell = lambda step: setattr(
        progress, "deadline", 0.0 if len(progress.steps) == 12 else progress.deadline
    )
    found = smallest_nodes(chain(100), [], progress)
    assert not found.complete
    assert len(progress.steps) == 12
    assert {3, 60}.issubset(found.nodes)
    assert len(found.nodes) < 100


def test_ctrl_c_keeps_the_smallest_that_was_found() -> None:
    calls: list[Nodes] = []

    def shows(nodes: Nodes) -> bool:
        calls.append(nodes)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return {3, 60}.issubset(nodes)

    found = smallest_nodes(chain(100), [], progress_of(shows))
    assert not found.complete
    assert {3, 60}.issubset(found.nodes)


def test_ctrl_c_before_anything_is_found_is_ctrl_c() -> None:
    def shows(nodes: Nodes) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        smallest_nodes(chain(5), [2], progress_of(shows))


@given(st.data(), graphs(), st.integers(0, 4))
def test_nodes_within_a_distance_have_a_path_of_that_length(
    data: st.DataObject, graph: DrawnGraph, distance: int
) -> None:
    start = data.draw(st.sampled_from(graph.all))
    reached = {start}
    for _ in range(distance):
        reached |= {other for number in reached for other in graph.neighbours(number, False)}
    assert set(nodes_within(graph, start, distance, (False,))) == reached
