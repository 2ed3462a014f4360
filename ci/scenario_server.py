"""How often the verdict on a server is wrong near the limit, on simulated queues (M/D/1)."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import numpy as np

from pytest_mlms.core.records import Verdict
from pytest_mlms.measure.load.evidence import (
    Criterion,
    RunVerdict,
    hold_back,
    is_settled,
    judge_run,
)
from tests.support.queues import Queue, poisson

HEADER = "| busy | limit / p99 | by LoadGen's rule: PASSED, FAILED | here: PASSED, FAILED | load |"

_SERVICE = 0.005  # seconds of a call
_SHARE = 0.99
_PRECISION = 0.05
_FIRST_LIMITS = 100  # times the limit that a first run lasts
_BUSY = (0.5, 0.7, 0.8, 0.9)
_RATIOS = (0.8, 1.0, 1.25, 1.5)  # of the limit to the true percentile
_TRIALS = 4_000_000  # queries that the true percentile is found from
_VERDICTS = (Verdict.PASSED, Verdict.FAILED)


class Ending(NamedTuple):
    """The verdict by LoadGen's rule alone, the verdict of an item, and the seconds of all runs."""

    loadgen: Verdict
    item: Verdict
    seconds: float


def print_server_table(processes: int, queries: int) -> None:
    """Print a row for each share of time that the model is busy, and each limit."""
    print(HEADER)
    print("|---|---|---|---|---|")
    for busy in _BUSY:
        rate = busy / _SERVICE
        percentile = true_percentile(rate)
        for ratio in _RATIOS:
            criterion = Criterion(ratio * percentile, _SHARE, _PRECISION)
            rng = np.random.default_rng(5)
            endings = [run_process(rate, criterion, queries, rng) for _ in range(processes)]
            seconds = float(np.median([ending.seconds for ending in endings]))
            alone = _shares([ending.loadgen for ending in endings])
            item = _shares([ending.item for ending in endings])
            print(f"| {busy:.0%} | {ratio:g} | {alone} | {item} | {seconds:,.0f} s |", flush=True)


def true_percentile(rate: float) -> float:
    """Return the p99 of the latencies at a rate, in seconds."""
    rng = np.random.default_rng(1)
    latencies = Queue(_SERVICE).latencies(poisson(rate, _TRIALS, rng), rng)
    return float(np.percentile(latencies, 100 * _SHARE))


def run_process(rate: float, criterion: Criterion, most: int, rng: np.random.Generator) -> Ending:
    """Judge a process as an item does: by runs of twice the length each, of ``most`` queries."""
    queue = Queue(_SERVICE)
    arrivals = poisson(rate, most, rng)
    queries = min(most, math.ceil(_FIRST_LIMITS * criterion.limit * rate))
    seconds = 0.0
    while True:
        latencies = np.asarray(queue.latencies(arrivals[:queries], rng) * 1e9, np.int64)
        seconds += float(arrivals[queries - 1])
        verdict = judge_run(latencies, np.zeros(1, np.int64), round(criterion.limit * 1e9), _SHARE)
        if is_settled(verdict, latencies, rate, criterion):
            return Ending(verdict.verdict, verdict.verdict, seconds)
        if 2 * queries > most:
            held = _held_back(verdict, latencies, rate, criterion)
            return Ending(verdict.verdict, held, seconds)
        queries *= 2


def _held_back(
    verdict: RunVerdict, latencies: np.ndarray, rate: float, criterion: Criterion
) -> Verdict:
    if verdict.verdict is Verdict.INCONCLUSIVE:
        return verdict.verdict
    return hold_back(verdict, latencies, rate, criterion).verdict


def _shares(verdicts: list[Verdict]) -> str:
    counts = Counter(verdicts)
    return ", ".join(f"{100 * counts[verdict] / len(verdicts):.1f} %" for verdict in _VERDICTS)
