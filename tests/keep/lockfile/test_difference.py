"""Differences of locks, and their text."""

from __future__ import annotations

from pytest_mlms.keep.lockfile.difference import (
    LockDifference,
    difference_lines,
    difference_of,
    timing_lines,
)
from tests.support.locks import ACCURACY, PERFORMANCE, line_of, lock_of, slower

NEWER = ["numpy==2.4.6", "onnxruntime==1.32.0", "protobuf==7.0"]
ITEMS = [f"m{number}.yaml::test_performance[x]" for number in range(40)]


def difference(old: list[object], new: list[object]) -> LockDifference:
    return difference_of(lock_of(*old), lock_of(*new))


def test_equal_locks_have_no_difference() -> None:
    assert difference([line_of()], [line_of()]) == LockDifference()


def test_one_update_of_many_items_is_one_block() -> None:
    found = difference([line_of(item) for item in ITEMS], [line_of(item, NEWER) for item in ITEMS])
    assert list(difference_lines(found)) == [
        "here, 40 items:",
        "  onnxruntime  1.20.1 -> 1.32.0",
        "  protobuf     none -> 7.0",
    ]
    assert found.has_changes


def test_changes_of_python_files_and_answers_are_listed() -> None:
    answers = {"sha256": "8" * 64, "inputs": 600, "right": 590}
    model = {"sha256": {"graph": "9" * 64}}
    found = difference(
        [line_of()], [line_of(python="3.12.1", predictions=answers, model=model, dataset=None)]
    )
    assert list(difference_lines(found)) == [
        f"here, {ACCURACY}:",
        "  Python  3.11.7 -> 3.12.1",
        f"{ACCURACY}:",
        "  model          graph 1111111111111111 -> graph 9999999999999999",
        "  dataset        2222222222222222 -> none",
        "  right answers  594 of 600 -> 590 of 600",
        "  predictions    3333333333333333 -> 8888888888888888",
    ]


def test_an_item_that_measures_something_else_is_listed_where_both_tell_it() -> None:
    old, new = line_of(definition="0" * 16), line_of(definition="1" * 16)
    assert list(difference_lines(difference([old], [new]))) == [
        f"{ACCURACY}:",
        f"  what it measures  {'0' * 16} -> {'1' * 16}",
    ]
    assert difference([line_of()], [new]) == LockDifference()


def test_another_stack_of_an_item_is_listed() -> None:
    found = difference([line_of()], [line_of(stack={"name": "ort"})])
    assert list(difference_lines(found)) == [f"ort, {ACCURACY}:", "  stack  here -> ort"]


def test_answers_that_one_side_does_not_know_are_not_compared() -> None:
    assert difference([line_of(predictions=None)], [line_of()]) == LockDifference()


def test_new_and_missing_items_are_listed_and_are_no_change() -> None:
    found = difference([line_of(ITEMS[0])], [line_of(item) for item in ITEMS[1:6]])
    assert list(difference_lines(found)) == [
        *(f"added: {item}" for item in ITEMS[1:4]),
        "added: 2 more",
        f"removed: {ITEMS[0]}",
    ]
    assert not found.has_changes


def test_a_timing_outside_of_the_noise_is_listed_and_is_no_change() -> None:
    old = [line_of(PERFORMANCE)]
    found = difference(old, [line_of(PERFORMANCE, estimates=slower(2))])
    assert list(timing_lines(found)) == [
        "timings on Fast CPU, 2 cores, 16 GiB (advisory):",
        f"  {PERFORMANCE}",
        "    latency_p50  5.00 ms (4.90 ms to 5.10 ms) -> 10.0 ms (9.80 ms to 10.2 ms)",
    ]
    assert not found.has_changes
    assert difference(old, [line_of(PERFORMANCE, estimates=slower(1.05))]) == LockDifference()
