"""The search for the fewest nodes that still show a failure: a function of a test of nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pytest_mlms.explain.bisect.delta_debugging import reduce_changes
from pytest_mlms.explain.bisect.search import Outcome

Nodes = tuple[int, ...]
"""Numbers of nodes, in ascending order."""


class Graph(Protocol):
    """Nodes by their numbers, and those beside each of them."""

    @property
    def all(self) -> Nodes:
        """The numbers of all nodes."""

    def neighbours(self, number: int, forwards: bool) -> Iterator[int]:
        """Yield the nodes behind a node, or those before it."""


class Judged(NamedTuple):
    """The outcome of a model of some nodes, BAD where it shows the failure, and the reason."""

    outcome: Outcome
    reason: str = ""


NodeTest = Callable[[Nodes], Judged]
"""Runs a model of some nodes on both sides."""


class Step(NamedTuple):
    """A model that was run: how many nodes it had, and whether it showed the failure."""

    nodes: int
    shown: bool
    reason: str
    seconds: float


class Enough(Exception):
    """The budget is used up; raised by a test."""


class Found(NamedTuple):
    """The fewest nodes that show the failure; none where no model that was run shows it.

    Without any one of them it isn't shown, where ``minimal``. ``complete`` is False where the
    search was stopped.
    """

    nodes: Nodes
    minimal: bool
    complete: bool


@dataclass
class Progress:
    """Models that were run so far, and the fewest nodes that showed the failure.

    ``tell`` is called with each step. ``deadline`` is a time of time.monotonic.
    """

    test: NodeTest
    tell: Callable[[Step], None]
    deadline: float
    steps: list[Step] = field(default_factory=list)
    smallest: Nodes | None = None
    _judged: dict[Nodes, Outcome] = field(default_factory=dict)

    def outcome(self, nodes: Collection[int]) -> Outcome:
        """Run a model of some nodes, once; raises Enough where there is no time left."""
        key = tuple(sorted(nodes))
        if key not in self._judged:
            self._judged[key] = self._run(key)
        return self._judged[key]

    def shows(self, nodes: Collection[int]) -> bool:
        """Return whether a model of some nodes shows the failure."""
        return self.outcome(nodes) is Outcome.BAD

    def _run(self, nodes: Nodes) -> Outcome:
        began = time.monotonic()
        if began >= self.deadline:
            raise Enough
        judged = self.test(nodes)
        shown = judged.outcome is Outcome.BAD
        if shown and (self.smallest is None or len(nodes) < len(self.smallest)):
            self.smallest = nodes
        step = Step(len(nodes), shown, judged.reason, time.monotonic() - began)
        self.steps.append(step)
        self.tell(step)
        return judged.outcome


def smallest_nodes(graph: Graph, starts: Sequence[int], progress: Progress) -> Found:
    """Return the fewest nodes that show the failure.

    Each of ``starts`` is tried alone, the likeliest first. Then the nodes around the first are
    added, those before it and then those on both sides, over distances that double, until they show
    the failure or are all nodes. Delta debugging takes out of these what isn't needed. Ctrl-C ends
    the search with what was found; without anything it is raised.
    """
    try:
        return _search(graph, starts, progress)
    except Enough:
        pass
    except KeyboardInterrupt:
        if progress.smallest is None:
            raise
    return Found(progress.smallest or (), minimal=False, complete=False)


def _search(graph: Graph, starts: Sequence[int], progress: Progress) -> Found:
    for nodes in _candidates(graph, starts):
        if progress.shows(nodes):
            return _without_the_rest(nodes, progress)
    return Found((), minimal=False, complete=True)


def _without_the_rest(nodes: Nodes, progress: Progress) -> Found:
    """Return the fewest of some nodes that show the failure together."""
    if len(nodes) == 1:
        return Found(nodes, minimal=True, complete=True)

    def test(places: Sequence[int]) -> Outcome:
        return progress.outcome([nodes[place] for place in places])

    reduction = reduce_changes(len(nodes), test)
    smallest = tuple(nodes[place] for place in reduction.changes)
    return Found(smallest, reduction.minimal, complete=True)


def _candidates(graph: Graph, starts: Sequence[int]) -> Iterator[Nodes]:
    """Yield sets of nodes to try, the smaller ones first, and all nodes last."""
    for start in starts:
        yield (start,)
    distance = 1
    while starts and distance < len(graph.all):
        before = nodes_within(graph, starts[0], distance, (False,))
        around = nodes_within(graph, starts[0], distance, (False, True))
        yield before
        yield around
        distance *= 2
    yield graph.all


def nodes_within(graph: Graph, start: int, distance: int, ways: Sequence[bool]) -> Nodes:
    """Return a node and those within a distance before it (False) or behind it (True)."""
    found = {start}
    for forwards in ways:
        edge = {start}
        for _ in range(distance):
            nearby: set[int] = set()
            for number in edge:
                nearby.update(graph.neighbours(number, forwards))
            edge = nearby - found
            found |= edge
    return tuple(sorted(found))
