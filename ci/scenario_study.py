"""How well loads are judged whose truth is known: the tables of docs/methodology.md.

    bash ci/scenario_study [--runs N] [--budget SECONDS]    peaks of simulated queues
    bash ci/scenario_study --server [--runs N] [--queries N]    verdicts on simulated servers
    bash ci/scenario_study --gate [--runs N]    upgrades, whose gate is the ratio of both peaks
    bash ci/scenario_study --real N [--budget SECONDS]    peaks of N searches with real agents

For each queue the first has the share of answers that have the peak inside, the share whose middle
is within the precision asked for, the median precision, and the seconds of load. The last one wants
a machine without other work, and takes the budget for each search at most.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pytest_mlms.measure.load.evidence import Criterion
from pytest_mlms.measure.load.peak import find_peak
from pytest_mlms.measure.load.rate_evidence import Peak, PeakPlan

sys.path.insert(0, str(Path(__file__).parents[1]))  # of the tests' support
from peak_gates import print_table
from scenario_real import print_real_table
from scenario_server import print_server_table

from tests.support.queues import Queue

HEADER = "| model | limit | busy at the peak | inside | within 5 % | precision | load |"
_PRECISION = 0.05
_RESOLUTION = 1.005  # of the true peaks


class _Setting(NamedTuple):
    name: str
    queue: Queue
    limit: float  # in calls
    share: float


_SETTINGS = [
    _Setting("M/D/1", Queue(0.005), 3, 0.9),
    _Setting("M/D/1", Queue(0.005), 10, 0.99),
    _Setting("M/D/1", Queue(0.005), 40, 0.99),
    _Setting("M/D/2", Queue(0.001, 2), 100, 0.99),
    _Setting("M/D/4", Queue(0.005, 4), 3, 0.9),
    _Setting("M/D/4", Queue(0.005, 4), 3, 0.99),
    _Setting("M/D/4", Queue(0.005, 4), 10, 0.9),
    _Setting("M/D/8", Queue(0.005, 8), 1.2, 0.99),
    _Setting("M/G/1, 20 % noise", Queue(0.005, noise=0.2), 10, 0.99),
    _Setting("M/D/4, processes 3 % apart", Queue(0.005, 4, spread=0.03), 3, 0.99),
]


def _search(setting: _Setting, criterion: Criterion, budget: float, seed: int) -> Peak:
    queue = setting.queue
    rng = np.random.default_rng(seed)
    queue.elapsed = 0.0
    plan = PeakPlan(criterion, queue.capacity, queue.service, budget)
    return find_peak(plan, functools.partial(queue.open, criterion, rng))


def _row(setting: _Setting, budget: float, runs: int) -> str:
    criterion = Criterion(setting.limit * setting.queue.service, setting.share, _PRECISION)
    peak = setting.queue.peak(criterion)
    answers = [_search(setting, criterion, budget, seed) for seed in range(runs)]
    inside = 0
    near = 0
    for found in answers:
        inside += found.good <= _RESOLUTION * peak and peak <= _RESOLUTION * found.bad
        is_there = 0 < found.rate < math.inf
        near += is_there and abs(math.log(found.rate / peak)) <= math.log1p(_PRECISION)
    precision = float(np.median([found.precision for found in answers]))
    seconds = float(np.median([found.seconds for found in answers]))
    return (
        f"| {setting.name} | {setting.limit:g} calls, p{100 * setting.share:g} "
        f"| {peak * setting.queue.service / setting.queue.servers:.0%} | {inside / runs:.0%} "
        f"| {near / runs:.0%} | {precision:.1%} | {seconds:,.0f} s |"
    )


def _print_peak_table(runs: int, budget: float) -> None:
    print(HEADER)
    print("|---|---|---|---|---|---|---|")
    for setting in _SETTINGS:
        print(_row(setting, budget, runs), flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60, help="searches, or processes of a server")
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds of load")
    parser.add_argument("--gate", action="store_true", help="upgrades instead of searches")
    parser.add_argument("--server", action="store_true", help="study the verdicts on servers")
    parser.add_argument(
        "--queries", type=int, default=16_000, help="of the longest run of a server"
    )
    parser.add_argument("--real", type=int, default=0, metavar="N", help="searches with agents")
    options = parser.parse_args()
    if options.gate:
        print_table(options.runs)
    elif options.real:
        print_real_table(options.real, options.budget)
    elif options.server:
        print_server_table(options.runs, options.queries)
    else:
        _print_peak_table(options.runs, options.budget)


if __name__ == "__main__":
    main()
