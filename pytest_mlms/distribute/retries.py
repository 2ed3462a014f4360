"""Which reports of items count.

Not those of an item that a host's full disk spoiled, and that another host can run.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any

import pytest

from pytest_mlms.distribute.scheduler import FleetScheduler
from pytest_mlms.distribute.workers import WorkerState

__all__ = ["counted", "full_disk"]

_FULL = [os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT)]


def counted(
    report: pytest.TestReport, seat: WorkerState, scheduler: FleetScheduler
) -> list[pytest.TestReport]:
    """Return the reports that are to go on now.

    That of a set-up waits for the report that decides.
    """
    index, items = getattr(report, "item_index", None), scheduler.items
    if items is None or index is None or not items.is_ours(index):
        return [report]
    if report.when == "setup" and report.passed:
        seat.held = [report]
        return []
    held, seat.held = seat.held, []
    if report.when != "teardown" and (why := full_disk(getattr(report, "mlms", {}))):
        spoiled = (
            seat.remote or report.failed
        )  # files of a worker here are on the controller's disk
        if spoiled and scheduler.repeat_elsewhere(seat, index, why):
            return []
    return [] if seat.repeats and seat.repeats[0] == index else [*held, report]


def full_disk(result: Mapping[str, Any]) -> str:
    """Return what a result says of a full disk, in a line; "" where it doesn't."""
    texts = [result.get("message") or "", *result.get("artifacts_lost", {}).values()]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return next((line for line in lines if any(full in line for full in _FULL)), "")
