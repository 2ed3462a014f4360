"""Made-up measurements and records of upgrades."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_mlms.core.records import Comparison
from pytest_mlms.decide.upgrade.decision import compare_rounds
from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.result import UpgradeResult
from pytest_mlms.decide.upgrade.round_record import RoundRecord, SideRecord
from pytest_mlms.decide.upgrade.rounds import Side
from pytest_mlms.decide.upgrade.setting import UpgradeSetting

SCATTER = (2, -2, 1, -1, 0, 1, -1, 0)
PAIRS = 60
CALLS = 3

SIDE_RECORD = SideRecord(
    pid=101,
    versions={"labour": "1.0"},
    python="3.11.7",
    executable="/usr/bin/python3",
    device_used="cpu",
    threads_used=1,
    start_seconds=0.5,
    load_seconds=0.2,
    first_seconds=0.01,
    peak_bytes=1 << 27,
)

ROUND_RECORD = RoundRecord(
    started_first="b",
    cores=[0],
    pairs=40,
    calls=1,
    skipped=0,
    calling_core=0,
    warmup_pairs=16,
    steady=True,
    turns_exclusive=True,
    seconds=1.5,
    sides={"a": SIDE_RECORD, "b": replace(SIDE_RECORD, pid=102)},
)


def random_side(rng: np.random.Generator, factor: float = 1.0, **fields: Any) -> Side:
    """Return a side whose calls take ``factor`` milliseconds, give or take 1 %."""
    noise = np.exp(rng.normal(0, 0.01, (PAIRS, CALLS)))
    wall = 0.001 * factor * noise
    side = Side(
        wall=wall,
        wait=np.zeros(wall.shape),
        cpu=wall.mean(axis=1),
        device=None,
        load_seconds=2 * factor,
        first_seconds=0.01,
        peak_bytes=1 << 27,
    )
    return replace(side, **fields)


def changed(value: float, error: float = 0.002, calls: int = 400, a: float = 0.001) -> Figure:
    """Return a figure of ``a`` (1 ms) on side A and exp(``value``) times that on side B."""
    return Figure(a, a * math.exp(value), value, error, calls)


def latencies(*values: float, error: float = 0.002) -> list[dict[str, Figure]]:
    """Return the figures of a round for each change of latency."""
    return [{"latency": changed(value, error)} for value in values]


def alike(value: float, error: float = 0.002) -> list[dict[str, Figure]]:
    """Return the figures of as many rounds as a decision needs, whose mean is ``value``."""
    return latencies(*[value + 0.002 * scatter for scatter in SCATTER], error=error)


def find(comparisons: Sequence[Comparison], quantity: str) -> Comparison:
    """Return the comparison of a quantity."""
    (found,) = [compared for compared in comparisons if compared.quantity == quantity]
    return found


def setting(**fields: Any) -> UpgradeSetting:
    """Return the setting of an upgrade from "old" to "new"."""
    made = UpgradeSetting(
        a="old",
        b="new",
        budget=60,
        threads=(None, None),
        place="m.yaml:44",
        tolerance_given=False,
        machine={},
        cpu_shares={},
    )
    return replace(made, **fields)


def result_of(
    figures: list[dict[str, Figure]], gates: Sequence[str] = ("latency",), **fields: Any
) -> UpgradeResult:
    """Return the result of rounds that have these figures."""
    made = UpgradeResult(
        rounds=[ROUND_RECORD] * len(figures),
        complete=True,
        clock="adj",
        comparisons=compare_rounds(figures, {}, gates),
    )
    return replace(made, **fields)
