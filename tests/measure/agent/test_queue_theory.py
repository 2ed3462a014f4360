"""Waits in the queue of an agent beside those of queueing theory."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import poisson

from pytest_mlms.measure.agent.load import LoadPlan, LoadRun
from tests.support.load_agents import LIBRARY, in_turn, open_server

BLOCKS = 20
"""Blocks of queries whose means are taken as independent."""
QUERIES = 3000
SERVICE = 0.01  # seconds
RATES = {1: 60.0, 3: 200.0}
"""Queries a second by the number of servers."""
ERRORS = 4.5
"""Standard errors that a mean may be from theory: 7 in a million by chance."""


def mean_wait(rate: float, seconds: float, servers: int) -> float:
    """Return the mean wait of M/D/c (Crommelin 1932; Tijms, A First Course, 9.6.2)."""
    offered = rate * seconds
    load = offered / servers
    total = 0.0
    for turn in range(1, 2000):
        counts = poisson(turn * offered)
        term = counts.sf(turn * servers - 1) - counts.sf(turn * servers) / load
        total += term
        if abs(term) < 1e-12:
            break
    return seconds * total


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8])
def test_the_formula_for_one_server_is_the_known_one(load: float) -> None:
    assert mean_wait(load, 1.0, 1) == pytest.approx(load / (2 * (1 - load)), rel=1e-6)


def poisson_arrivals(rate: float, count: int) -> np.ndarray:
    gaps = np.random.default_rng(20).exponential(1 / rate, count)
    return np.asarray(np.cumsum(gaps) * 1e9, np.int64)


def handovers(run: LoadRun, servers: int) -> np.ndarray:
    """Return the seconds from when a query and a server were there for it until each query began."""
    ends = np.concatenate([np.full(servers, run.issued[0]), np.sort(run.done)[:-servers]])
    return np.asarray((np.sort(run.started) - np.maximum(np.sort(run.issued), ends)) * 1e-9)


def check_order(run: LoadRun, servers: int) -> None:
    """Each query begins as soon as it may, the first that came first, and none on a busy server.

    A busy machine delays some: it is judged by the median.
    """
    waited = handovers(run, servers)
    assert waited.min() >= 0
    assert np.median(waited) < 0.01 * SERVICE
    assert np.mean(np.diff(run.started) < 0) < 0.01


def check_waits(run: LoadRun, servers: int) -> None:
    """Compare the mean wait with theory, for the rate and the service that the run had.

    A query keeps its server for its call, and our own lag before it. Where this varies, the wait is
    longer by the square of its relative spread (Pollaczek and Khinchine).
    """
    service = (run.done - run.started + run.issued - run.scheduled) * 1e-9
    waits = run.latencies - service
    spread = service.std() / service.mean()
    expected = mean_wait(RATES[servers], service.mean(), servers) * (1 + spread**2)
    means = [block.mean() for block in np.array_split(waits, BLOCKS)]
    error = np.std(means, ddof=1) / math.sqrt(BLOCKS)
    found = f"{waits.mean()} instead of {expected}, error {error}, spread {spread}"
    assert abs(waits.mean() - expected) < ERRORS * error, found


@pytest.mark.slow
@pytest.mark.parametrize("servers", RATES)
def test_waits_are_those_of_poisson_arrivals_at_servers_of_fixed_time(
    tmp_path: Path, servers: int
) -> None:
    scheduled = poisson_arrivals(RATES[servers], QUERIES)
    plan = LoadPlan(in_turn(QUERIES), 120, scheduled, instances=servers)
    with open_server(tmp_path, seconds=SERVICE) as server:
        run = server.load_run(LIBRARY, plan)
    assert run.complete
    check_order(run, servers)
    check_waits(run, servers)
