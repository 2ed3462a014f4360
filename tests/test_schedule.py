"""Which worker gets which item, without workers."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from test_fit import host, needs

from pytest_mlms.distribute.schedule import FleetScheduler
from pytest_mlms.distribute.seats import Seat


class Node:
    """A worker as xdist has it; ``got`` are the items that it was sent."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.got: list[int] = []

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.got += indices[:-1]  # the last is the pause

    def shutdown(self) -> None:
        self.shutting_down = True


def schedule(hosts: Sequence[str], items: int) -> tuple[FleetScheduler, list[Node], list[str]]:
    """Return a scheduler that has begun ``items`` items, with a worker on each of ``hosts``, and what it lost."""
    nodes, lost = [Node(f"gw{number}") for number in range(len(hosts))], list[str]()
    table = [needs(exclusive=False)]
    seats = {
        node: Seat(node, True, host=host(name), table=table, places=[0] * items)
        for node, name in zip(nodes, hosts, strict=True)
    }
    scheduler = FleetScheduler(None, seats, {}, False, lost, str, lambda: False)
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, [str(number) for number in range(items)])
    scheduler.schedule()
    return scheduler, nodes, lost


def test_an_item_that_a_host_lost_goes_to_another_as_its_neighbours_may_be_dying_too() -> None:
    scheduler, (one, neighbour, other), _ = schedule(["a", "a", "b"], 4)
    assert [node.got for node in (one, neighbour, other)] == [[0], [1], [2]]
    assert scheduler.remove_node(one) is None
    scheduler.mark_test_complete(neighbour, 1)
    assert neighbour.got == [1, 3]
    scheduler.mark_test_complete(other, 2)
    assert other.got == [2, 0]


def test_an_item_stays_on_the_host_that_lost_it_where_there_is_no_other() -> None:
    scheduler, (one, neighbour, other), _ = schedule(["a", "a", "b"], 3)
    scheduler.remove_node(one)
    scheduler.mark_test_complete(neighbour, 1)
    assert neighbour.got == [1]
    scheduler.mark_test_complete(other, 2)
    assert other.got == [2, 0]
    assert scheduler.remove_node(other) == "0"  # for the second time

    scheduler, (one, neighbour), _ = schedule(["a", "a"], 2)
    scheduler.remove_node(one)
    scheduler.mark_test_complete(neighbour, 1)
    assert neighbour.got == [1, 0]


def test_a_worker_that_does_not_say_what_it_has_is_given_up() -> None:
    node, lost = Node("gw0"), list[str]()
    scheduler = FleetScheduler(None, {node: Seat(node, True)}, {}, False, lost, str, lambda: False)
    scheduler.add_node(node)
    scheduler.add_node_collection(node, ["a"])
    assert lost == ["gw0 is left out: it did not say what it has"]
    assert node.shutting_down
    assert not scheduler.collection_is_completed
