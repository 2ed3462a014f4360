"""Reports of items whose host has a full disk."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_mlms.distribute.retries import ReportFilter, find_full_disk
from tests.distribute.test_scheduler import Run, begin

FULL = {"message": "No space left on device", "artifacts_lost": {}}


def report(when: Any, outcome: Any = "passed", **fields: Any) -> pytest.TestReport:
    made = pytest.TestReport("0", ("", None, ""), {}, outcome, None, when)
    made.__dict__.update({"item_index": 0, **fields})
    return made


@pytest.fixture
def run() -> Run:
    return begin(["a", "b"], items=2)


def test_the_report_of_a_set_up_waits_for_the_one_that_decides(run: Run) -> None:
    reports = ReportFilter(run.scheduler)
    (worker, _) = run.workers
    setup = report("setup")
    call = report("call", mlms={"message": None})
    assert reports.pass_on(worker, setup) == []
    assert reports.pass_on(worker, call) == [setup, call]
    teardown = report("teardown")
    assert reports.pass_on(worker, teardown) == [teardown]


def test_no_report_of_an_item_that_is_run_again_goes_on(run: Run) -> None:
    reports = ReportFilter(run.scheduler)
    (worker, _) = run.workers
    setup = report("setup")
    call = report("call", "failed", mlms=FULL)
    teardown = report("teardown")
    for of_item in (setup, call, teardown):
        assert reports.pass_on(worker, of_item) == []
    assert worker.retry is not None


def test_an_item_that_passed_on_the_controller_s_host_is_not_run_again(run: Run) -> None:
    reports = ReportFilter(run.scheduler)
    (worker, _) = run.workers
    call = report("call", "passed", mlms=FULL)
    assert reports.pass_on(worker, call) == [call]
    assert worker.retry is None


def test_other_reports_go_on_at_once(run: Run) -> None:
    reports = ReportFilter(run.scheduler)
    of_xdist = report("setup")
    del of_xdist.__dict__["item_index"]
    assert reports.pass_on(run.workers[0], of_xdist) == [of_xdist]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (
            {"message": "a.yaml:3: x:\n  No space left on device in /cache; make room"},
            "No space left on device in /cache; make room",
        ),
        (
            {"artifacts_lost": {"a": "damaged", "b": "[Errno 122] Disk quota exceeded: 'b'"}},
            "[Errno 122] Disk quota exceeded: 'b'",
        ),
        ({"message": None, "artifacts_lost": {"a": "Permission denied"}}, ""),
    ],
)
def test_the_line_of_a_result_about_a_full_disk_is_found(
    result: dict[str, Any], expected: str
) -> None:
    assert find_full_disk(result) == expected
