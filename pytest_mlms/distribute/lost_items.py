"""Items of workers that were lost: which run again, and the error reports of those given up."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from pytest_mlms.distribute.notices import Notices
from pytest_mlms.distribute.queue import ItemTable, Retry
from pytest_mlms.distribute.workers import WorkerState
from pytest_mlms.provide.host.matching import OF_HOSTS, Needs
from pytest_mlms.show.report.outcome import without_traceback
from pytest_mlms.show.report.reproduce import command_for


class AbandonedItem(NamedTuple):
    """An item that no worker is left for."""

    item: int
    reason: str


def recover_items(worker: WorkerState, items: ItemTable, notices: Notices) -> str | None:
    """Let the items of a lost worker wait again; return the id of the one that is lost for good.

    The item that it ran is run again on another host, once. A second loss makes it an error.
    """
    running = worker.assigned.running
    is_of_manifest = running in worker.assigned.locks
    waiting = []
    for index in worker.assigned.order:
        if index != running and index in worker.assigned.locks:
            waiting.append(index)
    worker.assigned.clear()
    items.put_back(waiting)
    if running is None or not is_of_manifest:
        return None
    return _recover_running(running, worker, items, notices)


def _recover_running(
    index: int, worker: WorkerState, items: ItemTable, notices: Notices
) -> str | None:
    if index in items.with_result:  # only its tear-down is lost
        items.unfinished -= 1
        return None
    if index in items.retries:
        items.unfinished -= 1
        return items.ids[index]
    cause = f"{worker.name} was lost while it ran"
    items.retry_elsewhere(index, worker.host_name, cause)
    nodeid = items.ids[index]
    notices.show(f"{cause} {nodeid}, which is run again elsewhere")
    return None


def abandon_items(items: ItemTable, reason: str) -> list[AbandonedItem]:
    """Take all waiting items out of their queues, count them as done, and return them."""
    abandoned = []
    for queue in items.queues:
        for index in queue.waiting:
            abandoned.append(AbandonedItem(index, reason))
        queue.waiting.clear()
    items.unfinished -= len(abandoned)
    return abandoned


class LostItem(NamedTuple):
    """An item of a manifest that has no result, and the reason."""

    nodeid: str
    needs: Needs
    retry: Retry | None
    reason: str

    @classmethod
    def of(cls, items: ItemTable, index: int, reason: str) -> LostItem:
        """Return the item of this index."""
        return cls(items.ids[index], items.needs(index), items.retries.get(index), reason)

    @property
    def path(self) -> str:
        """The file of the item, as its node id has it."""
        return self.nodeid.partition("::")[0]

    @property
    def header(self) -> str:
        """The name of the model, and the test with the case."""
        _, _, name = self.nodeid.partition("::")
        return f"{self._model}: {name.replace('::', '.')}"

    @property
    def text(self) -> str:
        """The reason behind the model and the case."""
        return f"{self._model} {self._identity['case']}: {self.reason}"

    @property
    def _model(self) -> str:
        name: str = self._identity["manifest"]["name"]
        return name

    @property
    def _identity(self) -> dict[str, Any]:
        """The fields that tell which case the item evaluates."""
        fields: dict[str, Any] = {}
        for key, value in self.needs.items():
            if key not in OF_HOSTS:
                fields[key] = value
        return fields

    def as_line(self, phase: str | None) -> dict[str, Any]:
        """Return the item's line of the results."""
        line: dict[str, Any] = {"nodeid": self.nodeid}
        line.update(self._identity)
        line.update(
            verdict="ERROR",
            outcome="failed",
            phase=phase,
            message=self.text,
            worker=None,
        )
        if self.retry:
            line.update(self.retry._asdict())
        return line


def report_of(
    abandoned: AbandonedItem, items: ItemTable, config: pytest.Config
) -> pytest.TestReport:
    """Return the report of an item that did not run, because no worker is left for it."""
    item = LostItem.of(items, abandoned.item, f"not run: {abandoned.reason}")
    location = (item.path, None, item.path)
    report = pytest.TestReport(item.nodeid, location, {}, "failed", None, "setup")
    as_error(report, item, config)
    return report


def as_error(report: pytest.TestReport, item: LostItem, config: pytest.Config) -> None:
    """Turn a report into an item's error, shown as other failures, with its line of results."""
    command = command_for(item.nodeid, config.rootpath / item.path, config)
    report.location = (item.path, None, item.header)
    report.longrepr = without_traceback(f"{item.text}\nreproduce: {command}")
    report.mlms = item.as_line(report.when)  # type: ignore[attr-defined]
