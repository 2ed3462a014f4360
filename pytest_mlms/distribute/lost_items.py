"""Error reports of items that no worker could finish."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from pytest_mlms.distribute.queue import ItemTable, Retry
from pytest_mlms.distribute.recovery import AbandonedItem
from pytest_mlms.provide.host.requirements import OF_HOSTS, Needs
from pytest_mlms.show.report.outcome import without_traceback
from pytest_mlms.show.report.reproduce import command_for


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
    """Make a report that of an item's error, as other failures are shown, with its line."""
    command = command_for(item.nodeid, config.rootpath / item.path, config)
    report.location = (item.path, None, item.header)
    report.longrepr = without_traceback(f"{item.text}\nreproduce: {command}")
    report.mlms = item.as_line(report.when)  # type: ignore[attr-defined]
