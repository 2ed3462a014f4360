"""Reports of items whose host has a full disk, and that another host runs again."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any

import pytest

from pytest_mlms.distribute.scheduler import FleetScheduler
from pytest_mlms.distribute.workers import WorkerState

_FULL_DISK = [
    os.strerror(errno.ENOSPC),
    os.strerror(errno.EDQUOT),
]


class ReportFilter:
    """Holds back the reports of items that are run again on another host.

    The report of a set-up waits until another report of its item decides.
    """

    def __init__(self, scheduler: FleetScheduler) -> None:
        self._scheduler = scheduler
        self._held: dict[WorkerState, pytest.TestReport] = {}

    def pass_on(self, worker: WorkerState, report: pytest.TestReport) -> list[pytest.TestReport]:
        """Return the reports that are to go on, now that ``report`` has come from ``worker``."""
        item = getattr(report, "item_index", None)
        if item is None or not self._scheduler.items.is_of_manifest(item):
            return [report]
        if report.when == "setup" and report.passed:
            self._held[worker] = report
            return []
        held = self._held.pop(worker, None)
        if report.when != "teardown":
            self._retry_if_spoiled(item, worker, report)
        if worker.retry and worker.retry.item == item:
            return []
        if held:
            return [held, report]
        return [report]

    def _retry_if_spoiled(self, item: int, worker: WorkerState, report: pytest.TestReport) -> None:
        """Ask for another attempt where a full disk has spoiled an item."""
        result = getattr(report, "mlms", {})
        full_disk = find_full_disk(result)
        if not full_disk:
            return
        # the files of a worker on this host are on the controller's disk
        is_remote = worker.connection.receiver is not None
        if is_remote or report.failed:
            self._scheduler.retry_elsewhere(worker, item, full_disk)


def find_full_disk(result: Mapping[str, Any]) -> str:
    """Return the line of a result that says that a disk is full, "" where there is none."""
    message = result.get("message") or ""
    lost = result.get("artifacts_lost") or {}
    for text in [message, *lost.values()]:
        for line in text.splitlines():
            if any(full in line for full in _FULL_DISK):
                return str(line.strip())
    return ""
