"""What an item must meet: the limits of a manifest, and which cases each judges."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pytest_mlms.manifest.types import (
    Bytes,
    Closed,
    Device,
    Fraction,
    NotNegative,
    Positive,
    Rate,
    Scenario,
    Seconds,
    Short,
)

__all__ = ["Agreement", "Threshold", "Thresholds", "Upgrade"]

T = TypeVar("T")


class Threshold(Closed):
    """Which cases a limit judges: all that measure its quantity, less what these leave out."""

    devices: list[Device] = []
    frameworks: list[str] = []

    def judges(self, device: str, framework: str) -> bool:
        """Return whether it judges what runs there."""
        return device in (self.devices or [device]) and framework in (
            self.frameworks or [framework]
        )


class PerformanceThreshold(Threshold):
    """The same for what depends on how requests arrive too."""

    batch_sizes: list[Positive] = []
    scenarios: list[Scenario] = []


class AtLeastFraction(Threshold):
    """A share that must be reached: 0.97 or 97 %."""

    min: Fraction


class Least(Closed):
    """A share that must be reached."""

    min: Fraction


class Most(Closed):
    """A divergence of one input that must not be passed.

    Nats (natural logarithm), or hellinger's distance.
    """

    max: NotNegative


class Agreement(Threshold):
    """How close every output must be to that of the reference, a framework: |a - b| <= atol + rtol
    |b| everywhere.

    Further limits are on the classification: the share of inputs with the same best class, and
    divergences of the probabilities.
    """

    reference: str
    rtol: NotNegative = 1e-4
    atol: NotNegative = 1e-5
    top1: Least | None = None
    kl: Most | None = None
    js: Most | None = None
    hellinger: Most | None = None


class AtLeastRate(PerformanceThreshold):
    """A rate that must be reached: 200 /s."""

    min: Rate


class AtMostSeconds(PerformanceThreshold):
    """A time that must not be passed: 5 ms."""

    max: Seconds


class AtMostBytes(PerformanceThreshold):
    """A size that must not be passed: 64 MiB."""

    max: Bytes


OneOrMore = Annotated[
    list[T], Short(lambda value: value if isinstance(value, list) else [value], {"items": True})
]


class Upgrade(Closed):
    """How much worse a candidate stack may be than the baseline, as shares; of top1 and top5, of
    all answers.

    What is named here must be shown to be within its tolerance; what isn't, but for latency, has a
    default and fails only where it is surely worse.
    """

    tolerance: Fraction | None = None
    cpu_time: Fraction | None = None
    wall_time: Fraction | None = None
    latency_p90: Fraction | None = None
    latency_p95: Fraction | None = None
    throughput: Fraction | None = None
    first_inference: Fraction | None = None
    load_time: Fraction | None = None
    peak_memory: Fraction | None = None
    top1: Fraction | None = None
    top5: Fraction | None = None


class Thresholds(Closed):
    """What an item must meet: a limit, or a list of them for different cases."""

    top1: OneOrMore[AtLeastFraction] = []
    top5: OneOrMore[AtLeastFraction] = []
    latency_mean: OneOrMore[AtMostSeconds] = []
    latency_p50: OneOrMore[AtMostSeconds] = []
    latency_p90: OneOrMore[AtMostSeconds] = []
    latency_p95: OneOrMore[AtMostSeconds] = []
    latency_p99: OneOrMore[AtMostSeconds] = []
    throughput: OneOrMore[AtLeastRate] = []
    first_inference: OneOrMore[AtMostSeconds] = []
    load_time: OneOrMore[AtMostSeconds] = []
    peak_memory: OneOrMore[AtMostBytes] = []
    agreement: OneOrMore[Agreement] = []
    upgrade: Upgrade = Upgrade()
