"""Error reports of items that no worker could finish."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_mlms.distribute.queue import ItemTable
from pytest_mlms.distribute.recovery import AbandonedItem
from pytest_mlms.host.requirements import OF_HOSTS

__all__ = ["as_error", "report_of"]


def report_of(abandoned: AbandonedItem, items: ItemTable) -> pytest.TestReport:
    """Return the report of an item that did not run, because no worker is left for it."""
    nodeid = items.ids[abandoned.item]
    path = nodeid.partition("::")[0]
    report = pytest.TestReport(nodeid, (path, None, path), {}, "failed", None, "setup")
    as_error(report, items, abandoned.item, f"not run: {abandoned.reason}")
    return report


def as_error(report: pytest.TestReport, items: ItemTable, index: int, message: str) -> None:
    """Give a report the message, and a line in the results that says the same."""
    result: dict[str, Any] = {"nodeid": items.ids[index]}
    for key, value in items.needs(index).items():
        if key not in OF_HOSTS:
            result[key] = value
    result.update(
        verdict="ERROR",
        outcome="failed",
        phase=report.when,
        message=message,
        worker=None,
    )
    retry = items.retries.get(index)
    if retry:
        result.update(retry._asdict())
    report.longrepr = message
    report.mlms = result  # type: ignore[attr-defined]
