"""Items of a run as a lock has them, and what stays of a lock that is renewed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.keep.lockfile.from_results import items_of_run, renewed
from pytest_mlms.keep.lockfile.lock import Lock, LockedItem
from tests.support.locks import ACCURACY, MACHINE, PERFORMANCE, line_of, lock_of, slower

FOLDER = Path("/project")


def packages_of(*packages: str) -> list[str]:
    return list(lock_of(line_of(packages=packages)).stacks["here"].packages)


def test_an_item_of_accuracy_has_its_files_and_its_answers() -> None:
    found = items_of_run([line_of(ACCURACY)], FOLDER).measured[ACCURACY]
    assert found.item == LockedItem(
        stack="here",
        manifest="digits-cnn",
        framework="onnxruntime",
        device="cpu",
        model={"graph": "1" * 16},
        dataset="2" * 16,
        predictions="3" * 16,
        right=594,
        inputs=600,
    )
    assert not found.timings


def test_a_task_without_right_answers_has_its_quantities() -> None:
    answers = {"sha256": None, "inputs": 5, "right": None, "quantity": ""}
    estimates = {"mae": {"value": 0.123456}, "r2": {"value": None}}
    line = line_of(ACCURACY, predictions=answers, estimates=estimates)
    item = items_of_run([line], FOLDER).measured[ACCURACY].item
    assert item.accuracy == {"mae": 0.1235}
    assert (item.predictions, item.right, item.inputs) == (None, None, None)


def test_an_item_of_performance_has_timings_of_its_class_of_machines() -> None:
    found = items_of_run([line_of(PERFORMANCE)], FOLDER).measured[PERFORMANCE]
    assert found.machine == "Fast CPU, 2 cores, 16 GiB"
    assert set(found.timings) == {"latency_p50", "throughput"}
    unknown = {"latency_p50": {"value": 1.0, "low": 0.0, "high": None, "unit": "s"}}
    line = line_of(PERFORMANCE, estimates=unknown)
    assert items_of_run([line], FOLDER).measured[PERFORMANCE].timings == {}


def test_a_traced_item_has_its_layers() -> None:
    line = line_of("m.yaml::test_trace[x]", trace={"layers_sha256": "4" * 64})
    assert items_of_run([line], FOLDER).measured["m.yaml::test_trace[x]"].item.layers == "4" * 16


@pytest.mark.parametrize("verdict", ["FAILED", "ERROR", "INVALID"])
def test_items_that_are_not_fine_are_refused(verdict: str) -> None:
    run = items_of_run([line_of(ACCURACY, verdict=verdict), line_of(PERFORMANCE)], FOLDER)
    assert list(run.written()) == [PERFORMANCE]
    assert run.refused() == {ACCURACY: verdict}
    assert (ACCURACY in run.written(force=True)) == (verdict == "FAILED")


def test_skipped_items_and_upgrades_are_left_out() -> None:
    upgrade = line_of("m.yaml::test_upgrade[a-vs-b]")
    run = items_of_run([line_of(verdict="SKIPPED"), upgrade], FOLDER)
    assert (run.measured, run.unmeasured, run.upgrades) == ({}, {}, 1)


def test_an_item_without_packages_is_refused_with_the_reason() -> None:
    line = line_of(launch={"lock": [], "lacking": "python gave no answer"})
    assert items_of_run([line], FOLDER).refused() == {ACCURACY: "python gave no answer"}
    assert items_of_run([line_of(packages=())], FOLDER).refused() == {
        ACCURACY: "no packages in the results"
    }


def test_the_last_line_of_an_item_counts() -> None:
    lines = [line_of(verdict="ERROR"), {"type": "end"}, line_of()]
    assert items_of_run(lines, FOLDER).refused() == {}


def test_an_item_whose_tear_down_failed_is_not_locked() -> None:
    failed = {"type": "teardown", "nodeid": ACCURACY, "verdict": "ERROR", "message": "no"}
    assert items_of_run([line_of(), failed], FOLDER).refused() == {ACCURACY: "ERROR"}


def test_an_item_that_was_interrupted_is_not_locked() -> None:
    run = items_of_run([line_of(outcome="interrupted")], FOLDER)
    assert run.refused(force=True) == {ACCURACY: "interrupted"}


def test_no_path_of_the_host_is_in_a_lock() -> None:
    assert packages_of(
        "a @ file:///project/wheels/a-1.0-py3-none-any.whl#sha256=12",
        "b @ file:///elsewhere/b-2.0-py3-none-any.whl",
        "c==3.0 # file:///elsewhere/c-3.0.tar.gz",
        "mine==0.1 # editable file:///project",
        "onnxruntime==1.0 # editable file:///src",
        "pytest-mlms==0.1.0",
        "z==1.0 # https://example.invalid/z.whl",
    ) == [
        "a==1.0 # file:wheels/a-1.0-py3-none-any.whl",
        "b==2.0 # file:b-2.0-py3-none-any.whl",
        "c==3.0 # file:c-3.0.tar.gz",
        "onnxruntime==1.0 # editable folder",
        "z==1.0 # https://example.invalid/z.whl",
    ]


def test_other_machines_have_other_classes() -> None:
    line = line_of(PERFORMANCE, machine={**MACHINE, "virtual_machine": True})
    assert items_of_run([line], FOLDER).measured[PERFORMANCE].machine.endswith("virtual")


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
