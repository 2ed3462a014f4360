"""What the hosts of a run offer, as a table: --mlms-fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from pytest_mlms.distribute.workers import WorkerState
from pytest_mlms.host.capabilities import Capabilities, gather
from pytest_mlms.report.table import format_table
from pytest_mlms.units import format_quantity

__all__ = ["Inventory", "show_this_host", "write_fleet"]

_COLUMNS = ["host", "workers", "device", "kind", "uuid", "memory", "driver", "frameworks", "other"]


class Inventory:
    """A scheduler that waits for every worker and runs nothing: the table is what is wanted."""

    has_pending = False

    def __init__(self, coming: Callable[[], bool]) -> None:
        self._coming = coming
        self._nodes: list[Any] = []

    @property
    def nodes(self) -> list[Any]:
        """The workers that live."""
        return list(self._nodes)

    @property
    def collection_is_completed(self) -> bool:
        """Never: nothing is to be scheduled."""
        return False

    @property
    def tests_finished(self) -> bool:
        """Whether every worker has said what it has."""
        return not self._coming()

    def add_node(self, node: Any) -> None:
        """A worker has started."""
        self._nodes.append(node)

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """A worker has said what it has."""

    def remove_node(self, node: Any) -> None:
        """A worker is gone."""
        self._nodes.remove(node)


def show_this_host(config: pytest.Config) -> None:
    """Write the table where there are no workers."""
    terminal = config.pluginmanager.getplugin("terminalreporter")
    if terminal:
        write_fleet(terminal, [("-", gather(config))])


def write_seats(terminal: pytest.TerminalReporter, seats: Iterable[WorkerState]) -> None:
    """Write the table of the workers' hosts."""
    write_fleet(terminal, [(seat.node.gateway.id, seat.host) for seat in seats if seat.host])


def write_fleet(
    terminal: pytest.TerminalReporter, workers: Sequence[tuple[str, Capabilities]]
) -> None:
    """Write a row for each device of each host, with the workers that it has."""
    hosts = {host["host"]: host for _, host in workers}
    rows: list[list[str]] = []
    for name, host in hosts.items():
        of_host = " ".join(worker for worker, its in workers if its["host"] == name)
        rows += _rows(name, of_host, host)
    terminal.write_sep("-", f"mlms: the fleet, {len(hosts)} host{'s' * (len(hosts) != 1)}")
    header, *lines = format_table(
        _COLUMNS, rows, max(terminal._tw.fullwidth, 80), left=len(_COLUMNS)
    )
    for line in header:
        terminal.write_line(line, bold=True)
    for folded in lines:
        for line in folded:
            terminal.write_line(line)


def _rows(name: str, workers: str, host: Mapping[str, Any]) -> Iterable[list[str]]:
    for number, device in enumerate(host["devices"]):
        memory = format_quantity(device["memory"], "B") if device["memory"] else "-"
        kind = (
            f"{device['kind']}, {host['cores']} cores"
            if device["name"] == "cpu"
            else device["kind"]
        )
        first = number == 0
        yield [
            *([name, workers] if first else ["", ""]),
            *(device["name"], kind, device.get("uuid", "-"), memory, device.get("driver", "-")),
            " ".join(
                f"{framework} {version}".strip()
                for framework, version in host["frameworks"].items()
            )
            if first
            else "",
            _other(host) if first else "",
        ]


def _other(host: Mapping[str, Any]) -> str:
    labels = [f"{label}={value}" for label, value in host["labels"].items()]
    parts = {
        "python": host["interpreters"],
        "": [*host["engines"], *labels],
        "stacks": host["stacks"],
    }
    return "; ".join(
        f"{what} {' '.join(values)}".strip() for what, values in parts.items() if values
    )
