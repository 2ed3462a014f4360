"""Nights on which a version changed, after few others: what is found at once, and wrongly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from history_noise import Values

from pytest_mlms.keep.history.blocks import Blocks
from pytest_mlms.keep.history.shifts import Sensitivity
from pytest_mlms.keep.history.significance import (
    ALARM_RISK,
    NAMED_RISK,
    Window,
    accepted_p_value,
    first_beyond,
    predict,
)

__all__ = [
    "BEFORE",
    "KINDS",
    "NOISES",
    "STEP",
    "Night",
    "Nights",
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
class Night:
    """The series of a night that are alarms, and those that are these or only named."""

    alarms: int
    named: int


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


def nights(kind: Nights, noise: float, step: float, rng: np.random.Generator) -> Values:
    """Return the logarithms of some nights and one with another version, a row for each series."""
    count = BEFORE + 1 + (_STEADY if kind.alike else 0)
    own = rng.normal(0, np.sqrt(1 - kind.shared), (kind.series, count))
    shocks = own + rng.normal(0, np.sqrt(kind.shared), count)
    values = shocks.copy()
    for night in range(1, count):
        fresh = np.sqrt(1 - kind.alike**2) * shocks[:, night]
        values[:, night] = kind.alike * values[:, night - 1] + fresh
    values = noise * values[:, -BEFORE - 1 :]
    values[: kind.stepped, -1] += np.log1p(step)
    return np.asarray(values)


def tell(values: Values) -> Night:
    """Return what the rule says of the last night of series, a row each."""
    sensitivity = Sensitivity(_LEAST)
    far = [row for row in values if abs(row[-1] - row[:-1].mean()) > _LEAST]
    risks = []
    found = []
    for row in far:
        blocks = Blocks(row, [0])
        p_value = predict(blocks, BEFORE, 1, sensitivity.noise).p_value
        risks.append(p_value)
        if p_value <= ALARM_RISK:
            level = float(blocks.medians[BEFORE])
            window = Window(BEFORE, 1, BEFORE, level, float(row[-1]) - level)
            if abs(window.change) > _LEAST and first_beyond([window], blocks):
                found.append(p_value)
    alarm = accepted_p_value(found, len(values), ALARM_RISK)
    alarms = sum(risk <= alarm for risk in found)
    name = accepted_p_value(risks, len(values), NAMED_RISK, alarms)
    return Night(alarms, max(alarms, sum(risk <= name for risk in risks)))


def measure(kind: Nights, noise: float, count: int, stepped: int, seed: int) -> VersionCell:
    """Return what is said of this many nights without a step, and of some with one."""
    rng = np.random.default_rng(seed)
    with_step = [tell(nights(kind, noise, STEP, rng)) for _ in range(stepped)]
    without = [tell(nights(kind, noise, 0.0, rng)) for _ in range(count)]
    false = float(np.mean([night.alarms > 0 for night in without]))
    return VersionCell(
        kind=kind.name,
        noise=noise,
        nights=count,
        found=float(np.mean([night.alarms > 0 for night in with_step])),
        named=float(np.mean([night.named > 0 for night in with_step])),
        series=float(np.mean([night.alarms for night in with_step])) / kind.stepped,
        false=false,
        error=float(np.sqrt(false * (1 - false) / count)),
        false_named=float(np.mean([night.named > 0 for night in without])),
    )
