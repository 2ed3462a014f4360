"""Views of what an item measured: estimates with limits, processes, and rounds of an upgrade.

The fields are those of docs/results.md. Where there is no number, there is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pytest_mlms.core.records import Verdict
from pytest_mlms.decide.upgrade.round_record import PeakRecord

__all__ = [
    "EstimateView",
    "LimitView",
    "LoadView",
    "OwnQuantityView",
    "ProcessView",
    "RoundView",
    "SideView",
    "SkippedView",
    "TermsView",
]


@dataclass(frozen=True)
class EstimateView:
    """An estimate with its interval in the base unit; an end that is None is unbounded."""

    value: float | None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    confidence: float = 0.0
    replicates: int = 0
    of: str = ""
    lacking: str = ""
    less_wait: float | None = None
    counter: str = ""


@dataclass(frozen=True)
class LimitView:
    """A limit, either ``min`` or ``max`` in the base unit, and the verdict on it."""

    quantity: str
    verdict: Verdict
    min: float | None = None
    max: float | None = None
    place: str = ""
    reason: str = ""

    @property
    def value(self) -> float:
        """The limit in the base unit, NaN where the line has none."""
        bound = self.min if self.max is None else self.max
        return float("nan") if bound is None else bound


@dataclass(frozen=True)
class OwnQuantityView:
    """A quantity that a user's own test measured."""

    value: float | None
    unit: str = ""
    better: str = ""
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    replicates: int | None = None


@dataclass(frozen=True)
class ProcessView:
    """A fresh process of a performance item."""

    load_seconds: float | None = None
    first_seconds: float | None = None
    loop_seconds: float | None = None
    calls: int = 0
    steady: bool = True
    waited: float | None = None
    peak_bytes: int | None = None


@dataclass(frozen=True)
class SideView:
    """The software of one side of a round."""

    versions: Mapping[str, str] = field(default_factory=dict)
    python: str = ""


@dataclass(frozen=True)
class RoundView:
    """A round of an upgrade: by quantity ``(a, b, log(b / a), error, calls)``.

    ``peaks`` are those of both sides, where they were searched.
    """

    figures: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    sides: Mapping[str, SideView] = field(default_factory=dict)
    seconds: float | None = None
    pairs: int = 0
    steady: bool = True
    peaks: Mapping[str, PeakRecord] = field(default_factory=dict)


@dataclass(frozen=True)
class LoadView:
    """The load of a case: the limit on its queries in seconds, and the percentile that it is on.

    The other keys tell it from other loads, as ``measured`` does without a limit that only judges.
    """

    latency: float | None = None
    percentile: float = 99.0
    rate: float | None = None
    arrivals: str | None = None
    speed: float = 1.0
    precision: float | None = None
    samples_per_query: int | None = None
    instances: int = 1
    batcher: Mapping[str, float] | None = None

    @property
    def measured(self) -> LoadView:
        """The load without its limit; that of a peak says what is searched for."""
        return self if self.precision is not None else replace(self, latency=None)


@dataclass(frozen=True)
class TermsView:
    """The tolerances of an upgrade by quantity, and those that must be shown to be within them.

    ``places`` has the line or the option that set each tolerance; a default has none.
    """

    tolerances: Mapping[str, float] = field(default_factory=dict)
    gates: tuple[str, ...] = ()
    clock: str | None = None
    places: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SkippedView:
    """A corrupt element of a dataset that was left out."""

    element: str
    error: str = ""
