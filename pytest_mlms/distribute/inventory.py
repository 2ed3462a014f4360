"""The hosts of a run with their capabilities, as a list: --mlms-fleet."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from pytest_mlms.core.text import visible
from pytest_mlms.core.units import format_quantity
from pytest_mlms.distribute.workers import WorkerState
from pytest_mlms.provide.host.capabilities import Capabilities
from pytest_mlms.session import SESSION
from pytest_mlms.show.report.table import KEEP

_WIDTH_OF_NAMES = len("containers")
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
        """Ignore a worker's collection."""

    def remove_node(self, node: Any) -> None:
        """Forget a worker that is gone."""
        self._nodes.remove(node)


class _AnnouncedHost(NamedTuple):
    """A worker, or "" without xdist, and the capabilities of its host."""

    worker: str
    host: Capabilities


def show_this_host(config: pytest.Config) -> None:
    """Write the list of this host, where there are no workers."""
    terminal = config.pluginmanager.getplugin("terminalreporter")
    if terminal:
        this_host = _AnnouncedHost("", config.stash[SESSION].capabilities(config))
        _write_hosts(terminal, [this_host])


def write_workers(terminal: pytest.TerminalReporter, workers: Iterable[WorkerState]) -> None:
    """Write the list of the workers' hosts."""
    announced = []
    for worker in workers:
        if worker.announcement:
            host = _AnnouncedHost(worker.id, worker.capabilities)
            announced.append(host)
    _write_hosts(terminal, announced)


def _write_hosts(terminal: pytest.TerminalReporter, announced: Sequence[_AnnouncedHost]) -> None:
    """Write each host with its devices and what else it has, and the workers that it is for."""
    workers_of: dict[str, list[str]] = {}
    offers: dict[str, Capabilities] = {}
    for worker, host in announced:
        offer = repr((host["host"], host["devices"]))  # CUDA_VISIBLE_DEVICES may be a worker's own
        offers[offer] = host
        workers_of.setdefault(offer, []).append(worker)
    count = len({host["host"] for host in offers.values()})
    noun = "host" if count == 1 else "hosts"
    terminal.write_sep("-", f"mlms: the fleet, {count} {noun}")
    width = max(terminal._tw.fullwidth, _NARROWEST)
    for offer, host in offers.items():
        terminal.write_line(visible(host["host"]), bold=True)
        for name, parts in _facts(host, workers_of[offer]):
            for line in _folded(name, parts, width):
                terminal.write_line(line)


def _folded(name: str, parts: Iterable[str], width: int) -> list[str]:
    """Return the lines of a fact, which is folded between its parts: names stay whole."""
    text = ", ".join(visible(part).replace(" ", KEEP) for part in parts)
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=f"  {visible(name):<{_WIDTH_OF_NAMES}} ",
        subsequent_indent=" " * (_WIDTH_OF_NAMES + 3),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(KEEP, " ") for line in lines]


def _facts(host: Capabilities, workers: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the facts of a host that it has, each with its parts."""
    yield "workers", workers
    for device in host["devices"]:
        yield device["name"], list(_parts_of(device, host))
    yield "frameworks", [" ".join(found).rstrip() for found in host["frameworks"].items()]
    yield "python", host["interpreters"]
    yield "containers", host["engines"]
    yield "labels", [f"{label}={value}" for label, value in host["labels"].items()]
    yield "stacks", host["stacks"]


def _parts_of(device: Mapping[str, Any], host: Capabilities) -> Iterator[str]:
    yield device["kind"]
    if device["name"] == "cpu":
        yield f"{host['cores']} cores"
    if device["memory"]:
        yield format_quantity(device["memory"], "B")
    if "driver" in device:
        yield f"driver {device['driver']}"
    if "uuid" in device:
        yield device["uuid"]
