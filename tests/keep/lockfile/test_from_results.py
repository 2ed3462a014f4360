"""Items of a run as a lock has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.keep.lockfile.from_results import items_of_run
from pytest_mlms.keep.lockfile.lock import LockedItem
from tests.support.locks import ACCURACY, MACHINE, PERFORMANCE, line_of, lock_of

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
