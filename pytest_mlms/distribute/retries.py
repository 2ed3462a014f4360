"""Reports of items whose host has a full disk, and that another host runs again."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any

import pytest

from pytest_mlms.distribute.scheduler import FleetScheduler
from pytest_mlms.distribute.workers import WorkerState

__all__ = ["ReportFilter", "find_full_disk"]

_FULL_DISK = [os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT)]


class ReportFilter:
    """Holds back the reports of items that are run again on another host.

    The report of a set-up waits until another report of its item decides.
    """

    def __init__(self, scheduler: FleetScheduler) -> None:
        self._scheduler = scheduler
        self._held: dict[WorkerState, pytest.TestReport] = {}

    def pass_on(self, worker: WorkerState, report: pytest.TestReport) -> list[pytest.TestReport]:
        """Return the reports that are to go on, now that ``report`` has come from ``worker``."""
        index = getattr(report, "item_index", None)
        if index is None or not self._scheduler.items.is_of_manifest(index):
            return [report]
        if report.when == "setup" and report.passed:
            self._held[worker] = report
            return []
        held = self._held.pop(worker, None)
        if report.when != "teardown":
            self._retry_if_spoiled(worker, index, report)
        if worker.retry and worker.retry.item == index:
            return []
        return [held, report] if held else [report]

    def _retry_if_spoiled(self, worker: WorkerState, index: int, report: pytest.TestReport) -> None:
        full_disk = find_full_disk(getattr(report, "mlms", {}))
        # the files of a worker on this host are on the controller's disk
        is_spoiled = worker.connection.receiver is not None or report.failed
        if full_disk and is_spoiled:
            self._scheduler.retry_elsewhere(worker, index, full_disk)


def find_full_disk(result: Mapping[str, Any]) -> str:
    """Return the line of a result that says that a disk is full, "" where there is none."""
    texts = [result.get("message") or ""]
    texts += result.get("artifacts_lost", {}).values()
    for text in texts:
        for line in text.splitlines():
            if any(full in line for full in _FULL_DISK):
                return str(line.strip())
    return ""
