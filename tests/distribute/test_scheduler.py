"""Which worker gets which item, without workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

from pytest_mlms.distribute.retries import full_disk
from pytest_mlms.distribute.scheduler import FleetScheduler
from pytest_mlms.distribute.workers import WorkerState
from tests.host.test_matching import host, needs


class Node:
    """A worker as xdist has it.

    ``got`` are the items that it was sent, ``asked`` those that it shall give back.
    """

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.got: list[int] = []
        self.asked: list[Sequence[int]] = []

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.got += indices[::2]  # behind each is the pause

    def send_steal(self, indices: Sequence[int]) -> None:
        self.asked.append(indices)

    def shutdown(self) -> None:
        self.shutting_down = True


def schedule(
    hosts: Sequence[str], items: int, seconds: Mapping[str, float] | None = None
) -> tuple[FleetScheduler, list[Node], list[str]]:
    """Return a scheduler that has begun ``items`` items, with a worker on each of ``hosts``, and
    what it lost.

    ``seconds`` is what items took in earlier runs.
    """
    nodes, lost = [Node(f"gw{number}") for number in range(len(hosts))], list[str]()
    table = [needs(exclusive=False)]
    seats = {
        node: WorkerState(node, True, host=host(name), table=table, places=[0] * items)
        for node, name in zip(nodes, hosts, strict=True)
    }
    scheduler = FleetScheduler(None, seats, seconds or {}, False, lost, str, lambda: False)
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
    scheduler = FleetScheduler(
        None, {node: WorkerState(node, True)}, {}, False, lost, str, lambda: False
    )
    scheduler.add_node(node)
    scheduler.add_node_collection(node, ["a"])
    assert lost == ["gw0 is left out: it did not say what it has"]
    assert node.shutting_down
    assert not scheduler.collection_is_completed


def test_only_items_that_are_known_to_be_quick_are_sent_together() -> None:
    seconds = {str(number): 0.3 for number in range(4)} | {
        str(number): 0.03 for number in range(4, 40)
    }
    _, (one, other), _ = schedule(["a", "a"], 40, seconds)
    assert [one.got, other.got] == [[0], [1]]
    _, (one, other), _ = schedule(["a", "a"], 36, {str(number): 0.03 for number in range(36)})
    assert [one.got, other.got] == [[0, 1, 2], [3, 4, 5]]
    _, (one, other), _ = schedule(["a", "a"], 36)
    assert [one.got, other.got] == [[0], [1]]


def test_an_idle_worker_is_given_what_waits_behind_another_s_item() -> None:
    scheduler, (one, other), _ = schedule(
        ["a", "a"], 16, {str(number): 0.001 for number in range(16)}
    )
    assert [one.got, other.got] == [[0, 1, 2, 3], [4, 5, 6]]
    while len(other.got) > (done := scheduler._seats[other].done):
        scheduler.mark_test_complete(other, other.got[done], 0.001)
    assert sorted([*one.got, *other.got]) == list(range(16))
    assert one.asked == [[2, 3]]
    scheduler.remove_pending_tests_from_node(one, [2, 3])
    assert other.got[-1] == 2
    assert one.asked == [[2, 3]]  # there is work again
    scheduler.mark_test_complete(other, 2, 0.001)
    scheduler.mark_test_complete(other, 3, 0.001)
    assert one.asked[1:] == [[1]]
    scheduler.remove_pending_tests_from_node(one, [])  # it had begun it
    assert one.asked[1:] == [[1]]


def test_an_item_spoiled_by_a_full_disk_runs_on_another_host_once() -> None:
    scheduler, (one, neighbour, other), lost = schedule(["a", "a", "b"], 4)
    seat = scheduler._seats[one]
    assert scheduler.repeat_elsewhere(seat, 0, "No space left on device")
    scheduler.mark_test_complete(one, 0)
    assert one.got == [0]  # its host takes nothing that another could run
    assert lost[0].startswith(
        "a (gw0) had a full disk in 0, which is run again elsewhere: No space"
    )
    scheduler.mark_test_complete(neighbour, 1)
    scheduler.mark_test_complete(other, 2)
    assert other.got == [2, 0]
    assert not scheduler.repeat_elsewhere(scheduler._seats[other], 0, "No space left on device")
    assert scheduler.items
    assert scheduler.items.again[0]["attempt"] == 2
    scheduler.mark_test_complete(other, 0)
    assert other.got == [2, 0, 3]
    scheduler.mark_test_complete(other, 3)
    assert scheduler.tests_finished


def test_what_a_result_says_of_a_full_disk_is_found() -> None:
    assert full_disk(
        {"message": "a.yaml:3: x:\n  No space left on device in /cache; make room"}
    ) == ("No space left on device in /cache; make room")
    assert full_disk(
        {"artifacts_lost": {"a": "it was damaged", "b": "[Errno 122] Disk quota exceeded: 'b'"}}
    )
    assert not full_disk({"message": None, "artifacts_lost": {"a": "Permission denied"}})
