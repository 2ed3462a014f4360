"""Pages of a portal over the runs of a million points, and many clients at once, on loopback."""

from __future__ import annotations

import http.client
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
from bench_history_show import MODELS, NIGHTS, fill
from bench_row import ROOT, Row

sys.path.insert(0, str(ROOT))  # of the tests' support

from tests.support.histories import ITEM, run_name, write_run
from tests.support.portals import Portal, serving

REPEATS = 100
CLIENTS = 50
SECONDS = 60
SETTLED = 0.5  # of that time, after which the caches of all threads are full
PAGES = {
    "a series": "/series/{0}",
    "the list of series": "/series?offset={0}",
    "the list of runs": "/runs?offset={0}",
    "a run": "/runs/{1}",
    "an item": "/runs/{1}/items/{0}",
    "the list of models": "/models",
    "a model": "/models/model-{0}",
    "the list of hosts": "/hosts",
    "a host": "/hosts/host-{2}",
    "the list of stacks": "/stacks",
    "a stack": "/stacks/stack-{3}",
}
"""Pages by the number of what they show, a run, a host and a stack.

A client asks for each series, run or item once: what the last answer was made of doesn't help.
"""

HOSTS = 8
STACKS = 4
UPGRADED = 20  # nights after which the framework has another version


def measure_portal() -> Iterator[Row]:
    """Yield the 95th percentiles of pages in seconds, and what many clients cost."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        history = folder / "history.sqlite"
        count = fill(str(history))
        for number in range(NIGHTS):
            _write_night(folder / "results", number)
        with serving(folder / "results", f"--history={history}", token=None) as portal:
            for name, page in PAGES.items():
                title = f"portal: {name}, {count:,} points, p95 in seconds"
                yield Row(title, _percentile(portal, page), 0.1)
            yield from _crowd(portal)


def _write_night(results: Path, number: int) -> None:
    """Write a run of all models on one of the hosts and stacks."""
    machine = {**ITEM["machine"], "host": f"host-{number % HOSTS}"}
    stack = {**ITEM["stack"], "name": f"stack-{number % STACKS}"}
    versions = {**ITEM["versions"], ITEM["framework"]: f"1.{number // UPGRADED}"}
    write_run(results, number, items=MODELS, machine=machine, stack=stack, versions=versions)


def _path(page: str, number: int) -> str:
    """Return the address of a page that shows another series, run or item for each number."""
    shown = 1 + number % (MODELS - 1)
    return page.format(shown, run_name(shown), number % HOSTS, number % STACKS)


def _percentile(portal: Portal, page: str) -> float:
    """Return the 95th percentile of the seconds of a page, for one client."""
    connection = http.client.HTTPConnection(*portal.address)
    seconds = [_seconds(connection, _path(page, number)) for number in range(REPEATS + 1)]
    connection.close()
    return statistics.quantiles(seconds[1:], n=20)[-1]


def _seconds(connection: http.client.HTTPConnection, path: str) -> float:
    began = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path}: status {answer.status}")
    return time.perf_counter() - began


def _crowd(portal: Portal) -> Iterator[Row]:
    """Yield the errors of many clients at once, and the growth of the portal's memory."""
    process = psutil.Process(portal.process.pid)
    ends = time.monotonic() + SECONDS
    errors: list[Exception] = []
    sizes = []
    with ThreadPoolExecutor(CLIENTS) as pool:
        for number in range(CLIENTS):
            pool.submit(_ask_until, portal, ends, number, errors)
        time.sleep(SETTLED * SECONDS)
        sizes.append(process.memory_info().rss)
        time.sleep(max(0.0, ends - time.monotonic() - 1))
        sizes.append(process.memory_info().rss)
    yield Row(f"portal: errors of {CLIENTS} clients in {SECONDS} s", len(errors), 0)
    growth = (sizes[1] - sizes[0]) / 1e6
    yield Row("portal: growth of its memory meanwhile in MB", growth, 20)


def _ask_until(portal: Portal, ends: float, number: int, errors: list[Exception]) -> None:
    """Ask for pages in turns until a time; note what went wrong."""
    pages = list(PAGES.values())
    connection = http.client.HTTPConnection(*portal.address, timeout=SECONDS)
    while time.monotonic() < ends:
        try:
            _seconds(connection, _path(pages[number % len(pages)], number))
        except (OSError, http.client.HTTPException, RuntimeError) as error:
            errors.append(error)
            connection.close()
        number += 1
    connection.close()
