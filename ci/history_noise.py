"""Series for the study of changes: simulated noise, and series that were recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["DRIFT", "NIGHTS", "NOISES", "Values", "read_recorded", "recording", "with_drift"]

Values = NDArray[np.float64]
Generator = np.random.Generator

NIGHTS = 365
DRIFT = 0.10  # a year
RECORDED = Path(__file__).with_name("history_recorded.json")


def _white(rng: Generator, count: int) -> Values:
    return rng.normal(0, 0.02, count)


def _outliers(rng: Generator, count: int) -> Values:
    disturbed = rng.random(count) < 0.06
    return _white(rng, count) + np.where(disturbed, rng.uniform(0.1, 0.5, count), 0)


def _heavy_tails(rng: Generator, count: int) -> Values:
    return 0.012 * rng.standard_t(2.5, count)


def _autoregressive(rng: Generator, count: int) -> Values:
    shocks = rng.normal(0, 0.02 * 0.8, count)
    values = np.zeros(count)
    values[0] = rng.normal(0, 0.02)
    for index in range(1, count):
        values[index] = 0.6 * values[index - 1] + shocks[index]
    return values


def _bimodal(rng: Generator, count: int) -> Values:
    return rng.normal(0, 0.005, count) + 0.06 * (rng.random(count) < 0.3)


def _weekday(rng: Generator, count: int) -> Values:
    days = (np.arange(count) + rng.integers(7)) % 7
    return rng.normal(0, 0.01, count) + 0.03 * (days >= 5)


@dataclass(frozen=True)
class Noise:
    """A kind of noise: its description, and a function that returns logarithms."""

    description: str
    logarithms: Callable[[Generator, int], Values]


NOISES = {
    "white": Noise("Normal, sd 2 %.", _white),
    "outliers": Noise("Normal, sd 2 %, and 6 % of runs slower by 10 to 50 %.", _outliers),
    "heavy tails": Noise("Student's t with 2.5 degrees of freedom, times 1.2 %.", _heavy_tails),
    "AR(1) 0.6": Noise("Normal, sd 2 %, with a correlation of neighbours of 0.6.", _autoregressive),
    "bimodal": Noise("Three of ten runs slower by 6 %, and sd 0.5 %.", _bimodal),
    "weekday": Noise("Weekends slower by 3 %, and sd 1 %.", _weekday),
}
"""Kinds of noise by name."""


def with_drift(rng: Generator, count: int) -> Values:
    """Return logarithms that rise by 10 % in a year, with noise of 1 %."""
    return rng.normal(0, 0.01, count) + DRIFT * np.arange(count) / NIGHTS


def read_recorded() -> dict[str, Values]:
    """Return the logarithms of the recorded series by their names."""
    recorded = json.loads(RECORDED.read_text())
    return {name: np.log(values) for name, values in recorded["series"].items()}


def recording() -> str:
    """Return how the recorded series were recorded."""
    about: str = json.loads(RECORDED.read_text())["about"]
    return about
