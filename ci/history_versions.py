"""Nights on which a version changed, after few others: what is found at once, and wrongly.

The rule is written for many nights at once; a test holds it equal to that of the history.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.special
from history_noise import Values
from numpy.typing import NDArray

from pytest_mlms.keep.history.shifts import Sensitivity
from pytest_mlms.keep.history.significance import ALARM_RISK, NAMED_RISK

__all__ = [
    "BEFORE",
    "KINDS",
    "NOISES",
    "STEP",
    "Nights",
    "Told",
    "VersionCell",
    "measure",
    "nights",
    "tell",
]

BEFORE = 10  # nights
SERIES = 12
STEP = 0.08
NOISES = (0.003, 0.008, 0.015, 0.03)
_LEAST = 0.03  # of the latency
_STEADY = 50  # nights after which a correlation is that of all nights


@dataclass(frozen=True)
class Nights:
    """A kind of histories.

    Attributes:
        name: Its name.
        series: The series of a night.
        stepped: Those of them that a step changes.
        alike: The correlation of a night with the one before.
        shared: The share of the variance that all series of a night have in common.
    """

    name: str
    series: int = SERIES
    stepped: int = SERIES
    alike: float = 0.0
    shared: float = 0.0


KINDS = (
    Nights("one series", series=1, stepped=1),
    Nights("12, all change"),
    Nights("12, one changes", stepped=1),
    Nights("12, half of the variance shared", shared=0.5),
    Nights("12, all of the variance shared", shared=1.0),
    Nights("12, nights correlated by 0.3", alike=0.3),
    Nights("12, half shared and correlated by 0.3", alike=0.3, shared=0.5),
)


@dataclass(frozen=True)
class Told:
    """How many series of each night are alarms, and how many these or only named."""

    alarms: NDArray[np.int64]
    named: NDArray[np.int64]


@dataclass(frozen=True)
class VersionCell:
    """What is said of nights with a version: shares of nights, and of their changed series.

    ``found`` and ``named`` are those of a step, ``false`` and ``false_named`` of none, with the
    standard error of ``false``.
    """

    kind: str
    noise: float
    nights: int
    found: float
    named: float
    series: float
    false: float
    error: float
    false_named: float


def nights(kind: Nights, noise: float, step: float, times: int, rng: np.random.Generator) -> Values:
    """Return logarithms by history, series and night: some nights, and one with another version."""
    count = BEFORE + 1 + (_STEADY if kind.alike else 0)
    own = rng.normal(0, np.sqrt(1 - kind.shared), (times, kind.series, count))
    values = own + rng.normal(0, np.sqrt(kind.shared), (times, 1, count))
    for night in range(1, count):
        fresh = np.sqrt(1 - kind.alike**2) * values[..., night]
        values[..., night] = kind.alike * values[..., night - 1] + fresh
    values = noise * values[..., -BEFORE - 1 :]
    values[:, : kind.stepped, -1] += np.log1p(step)
    return np.asarray(values)


def tell(values: Values) -> Told:
    """Return what the rule says of the last night; values are by history, series and night."""
    before, last = values[..., :-1], values[..., -1]
    deviation = np.maximum(before.std(axis=-1, ddof=1), Sensitivity(_LEAST).noise)
    change = last - before.mean(axis=-1)
    error = deviation * np.sqrt(1 + 1 / BEFORE)
    p_values = 2 * scipy.special.stdtr(BEFORE - 1, -np.abs(change) / error)

    residuals = before - np.median(before, axis=-1, keepdims=True)
    off = last - np.median(before, axis=-1)
    same_side = np.sign(off)[..., None] * residuals
    is_equalled = (same_side > np.abs(off)[..., None] / 2).any(axis=-1)
    may_alarm = (np.abs(off) > _LEAST) & ~is_equalled
    alarms = _accepted(np.where(may_alarm, p_values, 1), ALARM_RISK)
    named = _accepted(np.where(np.abs(change) > _LEAST, p_values, 1), NAMED_RISK)
    return Told(alarms, np.maximum(alarms, named))


def _accepted(p_values: Values, level: float) -> NDArray[np.int64]:
    """Return how many p-values of each night count by Benjamini and Hochberg's rule."""
    tests = p_values.shape[-1]
    ranks = np.arange(1, tests + 1)
    is_small = np.sort(p_values, axis=-1) <= level * ranks / tests
    return np.asarray((is_small * ranks).max(axis=-1))


def measure(kind: Nights, noise: float, count: int, seed: int) -> VersionCell:
    """Return what is said of this many nights with a step, and of as many without one."""
    rng = np.random.default_rng(seed)
    with_step = tell(nights(kind, noise, STEP, count, rng))
    without = tell(nights(kind, noise, 0.0, count, rng))
    false = float(np.mean(without.alarms > 0))
    return VersionCell(
        kind=kind.name,
        noise=noise,
        nights=count,
        found=float(np.mean(with_step.alarms > 0)),
        named=float(np.mean(with_step.named > 0)),
        series=float(np.mean(with_step.alarms)) / kind.stepped,
        false=false,
        error=float(np.sqrt(false * (1 - false) / count)),
        false_named=float(np.mean(without.named > 0)),
    )
