"""Locks renewed by runs of other machines, of some items, and by noise."""

from __future__ import annotations

from typing import Any

from pytest_mlms.keep.lockfile.lock import Lock
from pytest_mlms.keep.lockfile.merging import renewed
from tests.support.locks import ACCURACY, MACHINE, PERFORMANCE, line_of, lock_of, slower

OTHER = "other.yaml::test_accuracy[here-cpu]"
NEWER = ["numpy==2.4.6", "onnxruntime==1.32.0"]


def latency_of(lock: Lock) -> str:
    (by_item,) = lock.timings.values()
    return by_item[PERFORMANCE]["latency_p50"]


def performance(factor: float, **fields: Any) -> Any:
    return line_of(PERFORMANCE, estimates=slower(factor), **fields)


def test_noise_leaves_the_timings_and_a_change_renews_them() -> None:
    first = lock_of(performance(1))
    assert lock_of(performance(1.02), old=first) == first
    assert latency_of(lock_of(performance(1.5), old=first)) == "7.50 ms (7.35 ms to 7.65 ms)"


def test_a_much_sharper_timing_takes_the_place_of_a_vague_one() -> None:
    vague = performance(1)
    vague["estimates"]["latency_p50"].update(low=0.0, high=9e-3)
    renewed_by = lock_of(performance(1), old=lock_of(vague))
    assert latency_of(renewed_by) == "5.00 ms (4.90 ms to 5.10 ms)"
    assert lock_of(vague, old=renewed_by) == renewed_by


def test_timings_of_a_former_model_are_dropped() -> None:
    first = lock_of(performance(1))
    first = lock_of(performance(1, machine={**MACHINE, "memory": 2**36}), old=first)
    assert len(first.timings) == 2
    other = performance(1.01, model={"sha256": {"graph": "9" * 64}})
    assert latency_of(lock_of(other, old=first)) == "5.05 ms (4.95 ms to 5.15 ms)"


def test_timings_of_an_item_that_a_merge_removed_are_dropped() -> None:
    before = lock_of(performance(1), line_of(ACCURACY))
    merged = before.model_copy(update={"items": {ACCURACY: before.items[ACCURACY]}})
    assert merged.timings
    assert renewed(merged, {}, [ACCURACY]).timings == {}


def test_timings_of_something_else_that_was_measured_are_dropped() -> None:
    old = lock_of(line_of(PERFORMANCE, definition="0" * 16))
    for definition, is_kept in (("0" * 16, True), ("1" * 16, False)):
        line = line_of(PERFORMANCE, definition=definition, estimates={})
        assert bool(lock_of(line, old=old).timings) is is_kept


def test_timings_of_several_machines_are_side_by_side() -> None:
    first = lock_of(performance(1))
    second = lock_of(performance(3, machine={**MACHINE, "memory": 2**36}), old=first)
    assert len(second.timings) == 2
    assert lock_of(performance(1), old=second) == second


def test_a_software_keeps_its_key_while_an_item_has_it() -> None:
    first = lock_of(line_of(ACCURACY), line_of(OTHER))
    second = lock_of(line_of(OTHER, NEWER), old=first)
    assert second.items[ACCURACY].stack == "here"
    assert second.items[OTHER].stack == "here (2)"
    assert second.stacks["here (2)"].packages == tuple(NEWER)
    assert lock_of(line_of(OTHER, NEWER), old=second) == second
    third = lock_of(line_of(ACCURACY, NEWER), old=second)
    assert third.items[ACCURACY].stack == third.items[OTHER].stack == "here"
    assert list(third.stacks) == ["here"]


def test_items_that_are_not_kept_are_gone_with_their_stack_and_timings() -> None:
    first = lock_of(line_of(ACCURACY), performance(1))
    assert renewed(first, {}, [ACCURACY]) == lock_of(line_of(ACCURACY))
    assert renewed(first, {}, []) == Lock()
