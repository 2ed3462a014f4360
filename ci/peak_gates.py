"""How often an upgrade's comparison of peaks is right, on simulated queues.

``bash ci/scenario_study --gate`` prints the table: the part of scenario_study.py that decides.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pytest_mlms.core.records import Verdict
from pytest_mlms.decide.upgrade.decision import compare_rounds, is_decided, verdict_of
from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.interleave_plan import InterleavePlan
from pytest_mlms.decide.upgrade.round_estimate import MOST_ROUNDS
from pytest_mlms.decide.upgrade.rounds import SIDES, SideName

sys.path.insert(0, str(Path(__file__).parents[1]))  # of the tests' support
from tests.support.queue_pair import QueuePair, peak_plan
from tests.support.queues import Queue

__all__ = ["HEADER", "print_table"]

_BUDGET = 400.0  # seconds, of load alone
_SLOWER = 1 / 0.85
_GATE = ("peak_rate",)
HEADER = (
    "| model | limit | alike: PASSED, REGRESSED | 15 % less: PASSED, REGRESSED "
    "| rounds | runs a round | scatter | load |\n|---|---|---|---|---|---|---|---|"
)


class _Setting(NamedTuple):
    name: str
    queue: Queue
    limit: float  # in calls
    share: float


_SETTINGS = [
    _Setting("M/D/1", Queue(0.005), 3, 0.9),
    _Setting("M/D/1", Queue(0.005), 10, 0.99),
    _Setting("M/D/4", Queue(0.005, 4), 3, 0.99),
    _Setting("M/G/1, 20 % noise", Queue(0.005, noise=0.2), 10, 0.99),
    _Setting("M/G/1, 20 % noise", Queue(0.005, noise=0.2), 3, 0.9),
    _Setting("M/D/1, processes 3 % apart", Queue(0.005, spread=0.03), 10, 0.99),
    _Setting("M/D/1, processes 5 % apart", Queue(0.005, spread=0.05), 10, 0.99),
]


class _Upgrade(NamedTuple):
    verdict: Verdict
    figures: list[Figure]
    runs: int
    seconds: float


def _upgrade(setting: _Setting, slower: float, seed: int) -> _Upgrade:
    """Run rounds until the gate is decided or the budget is spent."""
    rng = np.random.default_rng(seed)
    candidate = replace(setting.queue, service=slower * setting.queue.service)
    sides: dict[SideName, Queue] = {"a": setting.queue, "b": candidate}
    peak = peak_plan(setting.limit * setting.queue.service, setting.share, _BUDGET)
    strategy = InterleavePlan(0.0, _BUDGET, seed=0).under_load(peak).load_strategy()
    assert strategy is not None, "there is a load"
    rounds: list[dict[str, Figure]] = []
    seconds = 0.0
    runs = 0
    for count in range(1, MOST_ROUNDS + 1):
        pair = QueuePair(sides, rng)
        measured = strategy.run(
            pair.runner(), SIDES[:: rng.choice([1, -1])], int(rng.integers(1 << 31))
        )
        rounds.append(dict(measured.figures))
        seconds += pair.seconds
        runs += len(measured.runs)
        comparisons = compare_rounds(rounds, {}, _GATE)
        if is_decided(comparisons, count) or seconds * (count + 1) / count > _BUDGET:
            break
    figures = [figures["peak_rate"] for figures in rounds]
    return _Upgrade(verdict_of(comparisons), figures, runs, seconds)


def _shares(found: list[_Upgrade]) -> str:
    counts = Counter(upgrade.verdict for upgrade in found)
    shown = (Verdict.PASSED, Verdict.REGRESSED)
    return ", ".join(f"{counts[verdict] / len(found):.1%}" for verdict in shown)


def _rows(runs: int) -> Iterator[str]:
    for setting in _SETTINGS:
        alike = [_upgrade(setting, 1.0, seed) for seed in range(runs)]
        slower = [_upgrade(setting, _SLOWER, seed) for seed in range(runs)]
        figures = list(itertools.chain.from_iterable(upgrade.figures for upgrade in alike))
        scatter = float(np.std([figure.value for figure in figures]))
        rounds = float(np.mean([len(upgrade.figures) for upgrade in alike]))
        loads = sum(upgrade.runs for upgrade in alike) / len(figures)
        seconds = float(np.mean([upgrade.seconds for upgrade in alike]))
        yield (
            f"| {setting.name} | {setting.limit:g} calls, p{100 * setting.share:g} "
            f"| {_shares(alike)} | {_shares(slower)} "
            f"| {rounds:.1f} | {loads:.1f} | {scatter:.1%} | {seconds:.0f} s |"
        )


def print_table(runs: int) -> None:
    """Print a row for each queue, from so many upgrades of either kind."""
    print(HEADER)
    for row in _rows(runs):
        print(row, flush=True)
