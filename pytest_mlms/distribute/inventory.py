"""The hosts of a run and what they offer, as a table: --mlms-fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from pytest_mlms.core.units import format_quantity
from pytest_mlms.distribute.workers import WorkerState
from pytest_mlms.provide.host.capabilities import Capabilities
from pytest_mlms.session import SESSION
from pytest_mlms.show.report.table import format_table

__all__ = ["InventoryScheduler", "show_this_host", "write_workers"]

_COLUMNS = [
    "host",
    "workers",
    "device",
    "kind",
    "uuid",
    "memory",
    "driver",
    "frameworks",
    "other",
]
_NARROWEST = 80  # columns


class InventoryScheduler:
    """A scheduler for xdist that runs nothing and waits for the announcement of every worker."""

    has_pending = False

    def __init__(self, expects_workers: Callable[[], bool]) -> None:
        self._expects_workers = expects_workers
        self._nodes: list[Any] = []

    @property
    def nodes(self) -> list[Any]:
        """The workers that live."""
        return list(self._nodes)

    @property
    def collection_is_completed(self) -> bool:
        """False, because nothing is to be scheduled."""
        return False

    @property
    def tests_finished(self) -> bool:
        """True if every worker has announced itself and ended."""
        return not self._expects_workers()

    def add_node(self, node: Any) -> None:
        """Add a worker that has started."""
        self._nodes.append(node)

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """Ignore what a worker has collected."""

    def remove_node(self, node: Any) -> None:
        """Forget a worker that is gone."""
        self._nodes.remove(node)


class _AnnouncedHost(NamedTuple):
    """A worker, or "-" without xdist, and the capabilities of its host."""

    worker: str
    host: Capabilities


def show_this_host(config: pytest.Config) -> None:
    """Write the table of this host, where there are no workers."""
    terminal = config.pluginmanager.getplugin("terminalreporter")
    if terminal:
        this_host = _AnnouncedHost("-", config.stash[SESSION].capabilities(config))
        _write_table(terminal, [this_host])


def write_workers(terminal: pytest.TerminalReporter, workers: Iterable[WorkerState]) -> None:
    """Write the table of the workers' hosts."""
    announced = []
    for worker in workers:
        if worker.announcement:
            host = _AnnouncedHost(worker.id, worker.capabilities)
            announced.append(host)
    _write_table(terminal, announced)


def _write_table(terminal: pytest.TerminalReporter, announced: Sequence[_AnnouncedHost]) -> None:
    """Write a row for each device of each host, with the workers that it is for."""
    workers_of: dict[str, list[str]] = {}
    offers: dict[str, Capabilities] = {}
    for worker, host in announced:
        offer = repr((host["host"], host["devices"]))  # CUDA_VISIBLE_DEVICES may be a worker's own
        offers[offer] = host
        workers_of.setdefault(offer, []).append(worker)
    rows = []
    for offer, host in offers.items():
        rows += _rows(host, workers_of[offer])
    count = len({host["host"] for host in offers.values()})
    noun = "host" if count == 1 else "hosts"
    terminal.write_sep("-", f"mlms: the fleet, {count} {noun}")
    width = max(terminal._tw.fullwidth, _NARROWEST)
    header, *lines = format_table(_COLUMNS, rows, width, left=len(_COLUMNS))
    for line in header:
        terminal.write_line(line, bold=True)
    for folded in lines:
        for line in folded:
            terminal.write_line(line)


def _rows(host: Capabilities, workers: Iterable[str]) -> list[list[str]]:
    """Return the rows of a host, the first of which has what is not of a single device."""
    rows = []
    name = host["host"]
    worker_names = " ".join(workers)
    frameworks = _versions(host["frameworks"])
    other = _other(host)
    for device in host["devices"]:
        cells = _device_cells(device, host)
        rows.append([name, worker_names, *cells, frameworks, other])
        name = worker_names = frameworks = other = ""
    return rows


def _device_cells(device: Mapping[str, Any], host: Capabilities) -> list[str]:
    kind = device["kind"]
    if device["name"] == "cpu":
        kind = f"{kind}, {host['cores']} cores"
    memory = "-"
    if device["memory"]:
        memory = format_quantity(device["memory"], "B")
    uuid = device.get("uuid", "-")
    driver = device.get("driver", "-")
    return [device["name"], kind, uuid, memory, driver]


def _versions(frameworks: Mapping[str, str]) -> str:
    words = []
    for name, version in frameworks.items():
        words.append(name)
        if version:
            words.append(version)
    return " ".join(words)


def _other(host: Capabilities) -> str:
    engines_and_labels = list(host["engines"])
    for label, value in host["labels"].items():
        engines_and_labels.append(f"{label}={value}")
    parts = [
        _prefixed("python", host["interpreters"]),
        " ".join(engines_and_labels),
        _prefixed("stacks", host["stacks"]),
    ]
    return "; ".join(part for part in parts if part)


def _prefixed(prefix: str, words: Sequence[str]) -> str:
    """Return the words behind a prefix, "" where there are none."""
    if not words:
        return ""
    return " ".join([prefix, *words])
