"""Records of the registry of quantities, and the versions of the methods that measure them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from pytest_mlms.core.records import Kind

if TYPE_CHECKING:
    from mlms_predictors._run.replies import DeviceBytes

    from pytest_mlms.core.token_times import TokenTimes

Samples: TypeAlias = Literal["rounds", "inputs", "groups", "calls", "outputs"]

_PROPERTY_SUFFIXES = {"s": "_seconds", "B": "_bytes", "/s": "_per_second", "J": "_joules"}


class DeviceTime(NamedTuple):
    """The median seconds of a call on a GPU, and what told them."""

    seconds: float
    counter: str


class ProcessValues(Protocol):
    """Measurements of one fresh process, as the estimators of performance read them.

    ``pytest_mlms.measure.evaluate.process_result.ProcessResult`` has them.
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
    def time_to_answer(self) -> float:
        """Seconds from the start of the process to its first answer."""

    @property
    def memory_growth(self) -> float:
        """Bytes that a call added; NaN where that isn't measured."""

    @property
    def load_seconds(self) -> float:
        """Seconds that loading the model took."""

    @property
    def peak_bytes(self) -> int:
        """Largest resident memory, less that before the model was loaded, in bytes."""

    @property
    def device_memory(self) -> DeviceBytes | None:
        """Peak of memory on a GPU; None on the CPU."""

    @property
    def device_time(self) -> DeviceTime | None:
        """Time of a call on a GPU; None where that isn't told."""

    @property
    def import_bytes(self) -> float:
        """Resident memory before the model was loaded, in bytes; NaN where that isn't known."""

    @property
    def peak_is_since_load(self) -> bool:
        """True if the kernel could reset the peak before the model was loaded."""

    @property
    def joules_per_input(self) -> float:
        """Energy of the device for one input, in joules; NaN where ``energy_missing`` says why."""

    @property
    def batch_agreement(self) -> float:
        """How far inputs in a batch are from alone, in multiples of rounding; NaN if unknown."""

    @property
    def batch_missing(self) -> str:
        """The reason why that isn't known, or ""."""

    @property
    def energy_missing(self) -> str:
        """The reason why there is no energy, or ""."""

    @property
    def tokens(self) -> TokenTimes | None:
        """Times of the tokens of the timed calls; None where nothing is generated."""

    @property
    def seconds_per_token(self) -> float:
        """Seconds that the process took for one token; NaN where nothing is generated."""

    def percentile(self, percent: float) -> float:
        """Return a percentile (0 to 100) of the timed calls' latencies, in seconds."""


def _nothing(process: ProcessValues) -> str:
    return ""


@dataclass(frozen=True)
class ProcessEstimator:
    """Estimator of a quantity of performance from fresh processes.

    ``value`` returns one number for a process. The estimate is the mean over the processes with
    Student's interval. Where ``is_rate`` is set, ``value`` returns seconds for a fixed amount of
    work, and the estimate is one over their mean. ``percent`` is set for percentiles, which need a
    least number of calls. ``of_calls`` is set where ``value`` is computed from the timed calls.
    ``missing`` returns the reason why a process can't tell the quantity, or "". The value is NaN
    where there is none at all. ``counter`` names what told the value, where that may be several
    counters of different meaning.
    """

    value: Callable[[ProcessValues], float]
    is_rate: bool = False
    of_calls: bool = False
    percent: float | None = None
    missing: Callable[[ProcessValues], str] = _nothing
    counter: Callable[[ProcessValues], str] = _nothing


@dataclass(frozen=True)
class UpgradeRule:
    """Default rule for a quantity of an upgrade.

    Attributes:
        tolerance: How much worse the candidate may be, as a share of the baseline. For fractions
            over ``samples`` of inputs it is how much of the whole they may lose.
        base: Added to both sides before they are divided, in the quantity's unit. Values that are
            small beside it don't matter to users.
        least_change: The least change that is judged, in the quantity's unit: it is the tolerance
            where it is more than that share of the baseline.
        samples: The replicates of the comparison: rounds of fresh processes, inputs, groups of
            these over rounds, single calls, or the outputs of a side for itself.
        key: The key under ``thresholds.upgrade`` that replaces the tolerance; the quantity's name
            where it is empty.
        estimate: The estimate of a performance item that two hosts are compared by; empty for
            quantities that aren't compared between hosts.
        asked: True for a quantity that is only compared where the manifest limits it, or a
            tolerance names it.
    """

    tolerance: float
    base: float = 0.0
    least_change: float = 0.0
    samples: Samples = "rounds"
    key: str = ""
    estimate: str = ""
    asked: bool = False


@dataclass(frozen=True)
class Column:
    """A column of a table at the end of a run.

    ``table`` and ``title`` are the titles of the table and of the column. ``form`` is "value", or
    "spread" for the value and half of its interval, or "interval" for the value and both ends.
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
        under_load: True for a quantity of performance that only queries under load have;
            ``evaluate.load_performance`` estimates it.
        of_gpu: True for one that the CPU doesn't have.
        of_tokens: True for one that only a generation has.
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
    under_load: bool = False
    of_gpu: bool = False
    of_tokens: bool = False

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


METHODS: Mapping[Kind, int] = {
    "accuracy": 1,
    "agreement": 1,
    "performance": 2,
    "upgrade": 2,
    "trace": 1,
    "soak": 1,
}
"""Kind of item -> the version of its method.

Raise it when the same software on the same machine would measure another value, or one that means
something else: another clock, loop, warm-up, estimator or definition of a metric. The history then
begins new series, as the values before and after can't be compared. Don't raise it for other
intervals, limits or fields.
"""
