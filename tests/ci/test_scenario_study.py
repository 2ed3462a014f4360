"""Study of the verdicts on servers, by simulated queues that are busy for 90 % of the time."""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np

from pytest_mlms.core.records import Verdict
from pytest_mlms.measure.load.evidence import Criterion
from tests.support.project import ROOT

sys.path.insert(0, str(ROOT / "ci"))

from scenario_server import run_process, true_percentile

RATE = 180.0  # queries a second, of calls of 5 ms
PROCESSES = 60
QUERIES = 16_000


def wrong(ratio: float, verdict: Verdict) -> tuple[int, int]:
    """Return how many processes have a wrong verdict by LoadGen's rule alone, and by ours."""
    criterion = Criterion(ratio * true_percentile(RATE), 0.99, 0.05)
    rng = np.random.default_rng(5)
    endings = [run_process(RATE, criterion, QUERIES, rng) for _ in range(PROCESSES)]
    alone = Counter(ending.loadgen for ending in endings)
    ours = Counter(ending.item for ending in endings)
    return alone[verdict], ours[verdict]


def test_queues_that_are_nearly_full_are_judged_wrongly_less_often_than_by_loadgen() -> None:
    passed, passed_by_ours = wrong(0.8, Verdict.PASSED)
    assert passed >= 0.05 * PROCESSES
    assert passed_by_ours <= passed / 2
    failed, failed_by_ours = wrong(1.25, Verdict.FAILED)
    assert failed > 0
    assert failed_by_ours == 0
