"""Study the search of ``mlms advise`` on synthetic candidates of known truth, beside an oracle.

    bash ci/advise_study [--problems 200] [--first 0] [--enough 6]

It prints the table of docs/advise.md. The whole takes half a minute.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Limit, Place
from pytest_mlms.decide.advice import evidence, search

KINDS = ("alike", "unlike", "drifting", "outliers", "two states")
HEADER = "| kind | problems | right | breaks a limit | sure | processes | oracle's | ratio |"
_QUANTITIES = ("throughput", "latency_p99", "peak_memory")
_CRASHES = 0.05
_OUTLIERS = 0.05  # of processes, by so much as a logarithm
_OUTLIER = 0.3
_STATE = 0.08


@dataclass(frozen=True)
class Problem:
    """Candidates with their true means and spreads of logarithms, as candidates x quantities."""

    kind: str
    seed: int
    means: NDArray[Any]
    spreads: NDArray[Any]
    crashing: NDArray[Any]
    goal: search.Goal
    rounds: NDArray[Any]
    """What each round adds to all candidates, as rounds x quantities."""

    def process(self, number: int, turn: int) -> search.Process:
        """Return one process; the same for the same round. Raises MlmsError for one that dies."""
        if self.crashing[number]:
            raise MlmsError("the agent died")
        random = np.random.default_rng([self.seed, number, turn])
        noise = random.normal(size=len(_QUANTITIES)) * self.spreads[number]
        if self.kind == "outliers" and random.random() < _OUTLIERS:
            noise += np.array([-1, 1, 0]) * _OUTLIER
        if self.kind == "two states" and number % 3 == 0:
            noise += np.array([-1, 1, 0]) * (_STATE if random.random() < 0.5 else -_STATE)
        values = np.exp(self.means[number] + noise + self.rounds[turn])
        return search.Process(dict(zip(_QUANTITIES, values.tolist(), strict=True)), 1.0)

    @property
    def true_spreads(self) -> NDArray[Any]:
        """The spreads of processes with what else disturbs these."""
        added = np.zeros_like(self.spreads)
        if self.kind == "outliers":
            added[:, :2] = _OUTLIER**2 * _OUTLIERS * (1 - _OUTLIERS)
        if self.kind == "two states":
            added[::3, :2] = _STATE**2
        return np.asarray(np.sqrt(self.spreads**2 + added))

    @property
    def rooms(self) -> NDArray[Any]:
        """The least room of each candidate to its limits, as a logarithm; negative outside."""
        room = np.full(len(self.means), math.inf)
        for limit in self.goal.limits:
            found = math.log(limit.value) - self.means[:, _QUANTITIES.index(limit.quantity)]
            room = np.minimum(room, found)
        return np.where(self.crashing, -math.inf, room)

    @property
    def best(self) -> float:
        """The throughput of the best that is within its limits by the tolerance, as a logarithm."""
        fits = self.rooms > math.log1p(self.goal.tolerance)
        return float(self.means[fits, 0].max()) if fits.any() else -math.inf

    def is_right(self, answer: int | None) -> bool:
        """Return whether an answer is within the limits, and the best but for the tolerance."""
        if answer is None:
            return self.best == -math.inf
        is_good = self.means[answer, 0] >= self.best - math.log1p(self.goal.tolerance)
        return bool(is_good and self.rooms[answer] >= 0)


def problem(seed: int) -> Problem:
    """Return a problem: models x batch sizes x threads, as far apart as real ones are."""
    random = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    models, sizes, threads = (int(random.integers(1, most)) for most in (4, 5, 4))
    grid = [(m, s, t) for m in range(models) for s in range(sizes) for t in range(threads)]
    speeds = random.normal(0, 0.5, models)
    gains = np.cumsum(np.abs(random.normal(0, 0.3, sizes)))
    scaling = np.cumsum(np.abs(random.normal(0, 0.3, threads)))
    memory = random.normal(18, 0.5, models)
    means = np.array(
        [
            (
                7 + speeds[m] + gains[s] + scaling[t] + random.normal(0, 0.05),
                -7 - speeds[m] - gains[s] - scaling[t] + s * math.log(2) + random.normal(0, 0.1),
                memory[m] + 0.1 * s + 0.02 * t,
            )
            for m, s, t in grid
        ]
    )
    spread = np.array([0.02, 0.04, 0.005])
    unlike = 0.7 if kind == "unlike" else 0.2
    spreads = spread * np.exp(random.normal(0, unlike, (len(grid), 1)))
    drift = 0.05 if kind == "drifting" else 0.01
    rounds = random.normal(0, drift, (max(search.LOOKS) + 1, 1)) * np.array([-1, 1, 0])
    limits = []
    for quantity, share in (("latency_p99", 0.6), ("peak_memory", 0.8)):
        at = float(np.quantile(means[:, _QUANTITIES.index(quantity)], random.uniform(share, 1)))
        limits.append(Limit(quantity, math.exp(at + random.normal(0, 0.1)), Place(Path("--"), 1)))
    goal = search.Goal("throughput", -1, limits)
    crashing = random.random(len(grid)) < _CRASHES
    return Problem(kind, seed, means, spreads, crashing, goal, rounds)


@dataclass
class Counted:
    """An answer to a problem, and the processes that it took."""

    advice: search.Advice
    processes: int


def answer(asked: Problem) -> Counted:
    """Search the best of a problem's candidates."""
    turns: Counter[int] = Counter()

    def measure(number: int) -> search.Process:
        turns[number] += 1
        return asked.process(number, turns[number])

    advice = search.search(len(asked.means), asked.goal, measure)
    return Counted(advice, sum(turns.values()))


def oracle(asked: Problem) -> Counted:
    """Do the same with the true variances.

    It needs no processes to learn these: it looks after the first one already, by the normal
    distribution, and without the factor that fewer than six processes need.
    """
    true_spreads = asked.true_spreads

    def known(columns: Any) -> evidence.Fitted:
        first = next((value for column in columns for value in column.values()), 0.0)
        quantity = int(np.argmin([abs(first - mean) for mean in asked.means.mean(axis=0)]))
        true = [evidence.Spread(float(v) ** 2, math.inf) for v in true_spreads[:, quantity]]
        rounds = float(np.std(asked.rounds[:, quantity])) ** 2
        return evidence.Fitted(true, evidence.Spread(rounds, math.inf))

    def exact(values: Sequence[float], parts: Any, risk: float) -> evidence.Range:
        mean = fmean(values)
        variance = sum(part.variance for part in parts) / len(values)
        half = NormalDist().inv_cdf(1 - risk) * math.sqrt(variance)
        return evidence.Range(mean, mean - half, mean + half)

    with (
        mock.patch.object(search, "fit_spreads", known),
        mock.patch.object(evidence, "_range", exact),
        mock.patch.object(search, "LOOKS", (1, *search.LOOKS)),
        mock.patch.object(search, "ENOUGH", 1),
    ):
        return answer(asked)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="seed of the first problem")
    parser.add_argument(
        "--enough", type=int, default=6, help="processes that need no room to a limit"
    )
    options = parser.parse_args()
    with mock.patch.object(search, "ENOUGH", options.enough):
        rows = list(_rows(range(options.first, options.first + options.problems)))
    print(HEADER)
    print("|---|---|---|---|---|---|---|---|")
    for kind in (*KINDS, "all"):
        chosen = [row for row in rows if kind in (row[0], "all")]
        sums = [sum(column) for column in list(zip(*chosen, strict=True))[1:]]
        right, broken, sure, ours, known = sums
        count = len(chosen)
        print(
            f"| {kind} | {count} | {100 * right / count:.1f} % | {broken} | {sure} "
            f"| {ours} | {known} | {ours / known:.2f} |"
        )


def _rows(seeds: range) -> Iterator[tuple[str, bool, bool, bool, int, int]]:
    for seed in seeds:
        asked = problem(seed)
        found, known = answer(asked), oracle(asked)
        best = found.advice.best
        broken = best is not None and bool(asked.rooms[best] < 0)
        right = asked.is_right(best)
        yield asked.kind, right, broken, found.advice.is_sure, found.processes, known.processes


if __name__ == "__main__":
    main()
