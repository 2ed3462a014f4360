"""Registry of quantities: everything that is measured, limited, compared and shown.

The manifest's schema, the estimates, the limits, the tables, the JUnit properties and the defaults
of upgrades are made from ``QUANTITIES``. A new quantity of performance is one entry there. A new
quantity of another kind also needs an estimator in ``pytest_mlms.evaluate``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from pytest_mlms.records import Kind

__all__ = [
    "QUANTITIES",
    "Column",
    "ProcessEstimator",
    "ProcessValues",
    "Quantity",
    "percentile",
    "quantities_of",
    "upgrade_rules",
]

_CALL_NOISE = 0.6e-6
"""Seconds that the fixed costs of a call differ by; docs/methodology.md has the reason."""

_PROPERTY_SUFFIXES = {"s": "_seconds", "B": "_bytes", "/s": "_per_second"}


class ProcessValues(Protocol):
    """Measurements of one fresh process, as the estimators of performance read them.

    ``pytest_mlms.evaluate.process_result.ProcessResult`` has them.
    """

    @property
    def mean_latency(self) -> float:
        """Mean latency of the timed calls, in seconds."""

    @property
    def seconds_per_input(self) -> float:
        """Seconds that the process took for one input."""

    @property
    def first_seconds(self) -> float:
        """Latency of the first call, in seconds."""

    @property
    def load_seconds(self) -> float:
        """Seconds that loading the model took."""

    @property
    def peak_bytes(self) -> int:
        """Largest resident memory, less that before the model was loaded, in bytes."""

    @property
    def peak_is_since_load(self) -> bool:
        """True if the kernel could reset the peak before the model was loaded."""

    def percentile(self, percent: float) -> float:
        """Return a percentile (0 to 100) of the timed calls' latencies, in seconds."""


def _nothing_missing(process: ProcessValues) -> str:
    return ""


@dataclass(frozen=True)
class ProcessEstimator:
    """Estimator of a quantity of performance from fresh processes.

    ``value`` returns one number for a process. The estimate is the mean over the processes with
    Student's interval. Where ``is_rate`` is set, ``value`` returns seconds for a fixed amount of
    work, and the estimate is one over their mean. ``percent`` is set for percentiles, which need a
    least number of calls. ``of_calls`` is set where ``value`` is computed from the timed calls.
    ``missing`` returns the reason why a process can't tell the quantity, or "".
    """

    value: Callable[[ProcessValues], float]
    is_rate: bool = False
    of_calls: bool = False
    percent: float | None = None
    missing: Callable[[ProcessValues], str] = _nothing_missing


@dataclass(frozen=True)
class UpgradeRule:
    """Default rule for a quantity of an upgrade.

    Attributes:
        tolerance: How much worse the candidate may be, as a share of the baseline. For ``samples``
            of inputs it is a share of all answers.
        spread: How rounds of fresh processes differ, as the standard deviation of log(B / A).
        base: Added to both sides before they are divided, in the quantity's unit. Values that are
            small beside it don't matter to users.
        least_change: The least change that is judged, in the quantity's unit: it is the tolerance
            where it is more than that share of the baseline.
        samples: The replicates of the comparison: rounds of fresh processes, or inputs.
        key: The key under ``thresholds.upgrade`` that replaces the tolerance; the quantity's name
            where it is empty.
        estimate: The estimate of a performance item that two hosts are compared by; empty for
            quantities that aren't compared between hosts.
    """

    tolerance: float
    spread: float = 0.0
    base: float = 0.0
    least_change: float = 0.0
    samples: Literal["rounds", "inputs"] = "rounds"
    key: str = ""
    estimate: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table at the end of a run.

    ``table`` and ``title`` are the titles of the table and of the column. ``form`` is "value", or
    "spread" for the value and how far the interval's upper end is above it, or "interval" for the
    value and both ends.
    """

    table: str
    title: str
    form: Literal["value", "spread", "interval"] = "value"


@dataclass(frozen=True)
class Quantity:
    """A quantity, and all that other modules must know of it.

    Attributes:
        name: The name in results, and in ``QUANTITIES``.
        unit: The base unit: a key of ``units.UNITS``, "nat", or "" for a plain number.
        better: The direction in which it improves.
        kind: The kind of item that measures it.
        description: One line for the documentation, without a full stop.
        limit_key: The key that limits it: under ``thresholds``, or for agreement in an entry of
            ``thresholds.agreement``. Empty where a manifest can't limit it by a number.
        estimator: The estimator of a quantity of performance.
        upgrade: The default rule of upgrades, for the quantities that they compare.
        column: The column that shows it, if there is one.
    """

    name: str
    unit: str
    better: Literal["lower", "higher"]
    kind: Kind
    description: str
    limit_key: str = ""
    estimator: ProcessEstimator | None = None
    upgrade: UpgradeRule | None = None
    column: Column | None = None

    @property
    def bound(self) -> Literal["min", "max"]:
        """The side that a limit bounds, as a manifest writes it."""
        return "max" if self.better == "lower" else "min"

    @property
    def sign(self) -> int:
        """1 where more is worse, -1 where less is worse."""
        return 1 if self.better == "lower" else -1

    @property
    def percent(self) -> float | None:
        """The percentile of the calls' latencies that it is, if it is one."""
        return self.estimator.percent if self.estimator else None

    @property
    def property_name(self) -> str:
        """The name of its property in JUnit XML, with the unit."""
        return f"mlms_{self.name}{_PROPERTY_SUFFIXES.get(self.unit, '')}"


def percentile(percent: float) -> ProcessEstimator:
    """Return the estimator of a percentile (0 to 100) of the calls' latencies."""
    return ProcessEstimator(
        lambda process: process.percentile(percent), of_calls=True, percent=percent
    )


def _missing_peak(process: ProcessValues) -> str:
    if process.peak_is_since_load:
        return ""
    return "this kernel can't reset the peak, so it may be that of the import"


_ENTRIES = [
    Quantity(
        name="top1",
        unit="fraction",
        better="higher",
        kind="accuracy",
        description="share of inputs whose label is the best class",
        limit_key="top1",
        upgrade=UpgradeRule(tolerance=0.01, samples="inputs"),
        column=Column("accuracy", "top-1 (interval)", "interval"),
    ),
    Quantity(
        name="top5",
        unit="fraction",
        better="higher",
        kind="accuracy",
        description="share of inputs whose label is among the five best classes",
        limit_key="top5",
        upgrade=UpgradeRule(tolerance=0.01, samples="inputs"),
        column=Column("accuracy", "top-5 (interval)", "interval"),
    ),
    Quantity(
        name="latency",
        unit="s",
        better="lower",
        kind="upgrade",
        description="median latency of a turn, by the clock that disturbances touch least",
        upgrade=UpgradeRule(
            tolerance=0.03,
            spread=0.004,
            least_change=_CALL_NOISE,
            key="tolerance",
            estimate="latency_p50",
        ),
    ),
    Quantity(
        name="cpu_time",
        unit="s",
        better="lower",
        kind="upgrade",
        description="CPU time of the process for a call of an upgrade",
        upgrade=UpgradeRule(tolerance=0.03, spread=0.004),
    ),
    Quantity(
        name="wall_time",
        unit="s",
        better="lower",
        kind="upgrade",
        description="wall time of a call of an upgrade",
        upgrade=UpgradeRule(tolerance=0.10, spread=0.01),
    ),
    Quantity(
        name="latency_mean",
        unit="s",
        better="lower",
        kind="performance",
        description="mean latency of a call",
        limit_key="latency_mean",
        estimator=ProcessEstimator(lambda process: process.mean_latency, of_calls=True),
    ),
    Quantity(
        name="latency_p50",
        unit="s",
        better="lower",
        kind="performance",
        description="median latency of a call",
        limit_key="latency_p50",
        estimator=percentile(50),
        column=Column("latency and throughput", "p50", "spread"),
    ),
    Quantity(
        name="latency_p90",
        unit="s",
        better="lower",
        kind="performance",
        description="90th percentile of the latencies",
        limit_key="latency_p90",
        estimator=percentile(90),
        upgrade=UpgradeRule(tolerance=0.05, spread=0.008),
        column=Column("latency and throughput", "p90"),
    ),
    Quantity(
        name="latency_p95",
        unit="s",
        better="lower",
        kind="performance",
        description="95th percentile of the latencies",
        limit_key="latency_p95",
        estimator=percentile(95),
        upgrade=UpgradeRule(tolerance=0.08, spread=0.012),
    ),
    Quantity(
        name="latency_p99",
        unit="s",
        better="lower",
        kind="performance",
        description="99th percentile of the latencies",
        limit_key="latency_p99",
        estimator=percentile(99),
        column=Column("latency and throughput", "p99"),
    ),
    Quantity(
        name="throughput",
        unit="/s",
        better="higher",
        kind="performance",
        description="inputs a second",
        limit_key="throughput",
        estimator=ProcessEstimator(
            lambda process: process.seconds_per_input, is_rate=True, of_calls=True
        ),
        upgrade=UpgradeRule(tolerance=0.05, spread=0.008, estimate="throughput"),
        column=Column("latency and throughput", "throughput"),
    ),
    Quantity(
        name="load_time",
        unit="s",
        better="lower",
        kind="performance",
        description="time to load the model in a fresh process",
        limit_key="load_time",
        estimator=ProcessEstimator(lambda process: process.load_seconds),
        upgrade=UpgradeRule(tolerance=0.50, spread=0.10, base=0.050, estimate="load_time"),
        column=Column("start-up and memory", "load"),
    ),
    Quantity(
        name="first_inference",
        unit="s",
        better="lower",
        kind="performance",
        description="latency of the first call of a fresh process, with its preparation, in which "
        "a framework may compile the model",
        limit_key="first_inference",
        estimator=ProcessEstimator(lambda process: process.first_seconds),
        upgrade=UpgradeRule(tolerance=0.50, spread=0.10, base=0.010, estimate="first_inference"),
        column=Column("start-up and memory", "first call"),
    ),
    Quantity(
        name="peak_memory",
        unit="B",
        better="lower",
        kind="performance",
        description="largest resident memory, less that before the model was loaded",
        limit_key="peak_memory",
        estimator=ProcessEstimator(
            lambda process: float(process.peak_bytes), missing=_missing_peak
        ),
        upgrade=UpgradeRule(tolerance=0.10, spread=0.03, estimate="peak_memory"),
        column=Column("start-up and memory", "peak memory"),
    ),
    Quantity(
        name="deviation",
        unit="",
        better="lower",
        kind="agreement",
        description="largest difference from the reference, as a multiple of the tolerance",
        column=Column("agreement with the reference", "of tolerance"),
    ),
    Quantity(
        name="difference_max",
        unit="",
        better="lower",
        kind="agreement",
        description="largest difference of an element from the reference",
        column=Column("agreement with the reference", "largest difference"),
    ),
    Quantity(
        name="difference_mean",
        unit="",
        better="lower",
        kind="agreement",
        description="mean difference of the elements from the reference",
    ),
    Quantity(
        name="relative_difference_max",
        unit="",
        better="lower",
        kind="agreement",
        description="largest difference of an element as a share of the reference",
    ),
    Quantity(
        name="relative_difference_mean",
        unit="",
        better="lower",
        kind="agreement",
        description="mean difference of the elements as a share of the reference",
    ),
    Quantity(
        name="same_top1",
        unit="fraction",
        better="higher",
        kind="agreement",
        description="share of inputs with the same best class as by the reference",
        limit_key="top1",
        column=Column("agreement with the reference", "same top-1"),
    ),
    Quantity(
        name="kl_max",
        unit="nat",
        better="lower",
        kind="agreement",
        description="largest Kullback-Leibler divergence of an input's probabilities",
        limit_key="kl",
        column=Column("agreement with the reference", "largest KL"),
    ),
    Quantity(
        name="kl_mean",
        unit="nat",
        better="lower",
        kind="agreement",
        description="mean Kullback-Leibler divergence of the probabilities",
    ),
    Quantity(
        name="js_max",
        unit="nat",
        better="lower",
        kind="agreement",
        description="largest Jensen-Shannon divergence of an input's probabilities",
        limit_key="js",
    ),
    Quantity(
        name="js_mean",
        unit="nat",
        better="lower",
        kind="agreement",
        description="mean Jensen-Shannon divergence of the probabilities",
    ),
    Quantity(
        name="hellinger_max",
        unit="",
        better="lower",
        kind="agreement",
        description="largest Hellinger distance of an input's probabilities",
        limit_key="hellinger",
    ),
    Quantity(
        name="hellinger_mean",
        unit="",
        better="lower",
        kind="agreement",
        description="mean Hellinger distance of the probabilities",
    ),
]

QUANTITIES: dict[str, Quantity] = {quantity.name: quantity for quantity in _ENTRIES}
"""Name -> quantity, in the order of schemas, tables and documents.

An entry that is added before other modules of pytest_mlms are imported is taken up everywhere.
"""


def quantities_of(kind: Kind) -> list[Quantity]:
    """Return the quantities that items of this kind measure."""
    return [quantity for quantity in QUANTITIES.values() if quantity.kind == kind]


def upgrade_rules(samples: Literal["rounds", "inputs"] = "rounds") -> dict[str, UpgradeRule]:
    """Return the default rules of upgrades by quantity, for comparisons over these samples."""
    rules = {}
    for name, quantity in QUANTITIES.items():
        rule = quantity.upgrade
        if rule is not None and rule.samples == samples:
            rules[name] = rule
    return rules
