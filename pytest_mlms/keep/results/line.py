"""The line of an item of results.jsonl, each field declared once: to be written, read and shown.

docs/results.md describes the fields. ``item_line`` adds what items of some kinds note. Where there
is no number, there is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Decision, Estimate, Kind, Launch, Verdict
from pytest_mlms.core.serialization import OrDefault, omitted_if_default
from pytest_mlms.keep.results.run_line import HeadOfItem, MachineRecord
from pytest_mlms.keep.results.strict import Count, Name, Text
from pytest_mlms.measure.evaluate.limits import scale_of

if TYPE_CHECKING:
    from pytest_mlms.measure.agent.predictor import Predictor

_Texts = Mapping[Text, Text]


@dataclass(frozen=True, kw_only=True)
class ManifestRecord:
    """A manifest: its file, and the name and version of its model."""

    path: Text = ""
    name: Name
    version: str = ""


@dataclass(frozen=True)
class ModelRecord:
    """A model's framework as the manifest constrains it, and the digest of each file by role."""

    framework: str = ""
    sha256: _Texts = field(default_factory=dict)


@dataclass(frozen=True)
class DatasetRecord:
    """A dataset's name, version and digest."""

    name: str
    version: str = ""
    sha256: Text = ""


@dataclass(frozen=True)
class DeclaredRecord:
    """The keys of stacks.yaml that declare a stack and can be used again."""

    interpreter: Text | None = None
    python: Text | None = None
    requirements: tuple[Text, ...] = ()
    installer: Text = "pip"
    pip_options: tuple[Text, ...] = ()
    lock: Text | None = None
    container: Text | None = None
    libraries: Mapping[Text, _Texts] = field(default_factory=dict)
    env: _Texts = field(default_factory=dict)
    env_passthrough: tuple[Text, ...] = ()


@dataclass(frozen=True)
class StackRecord:
    """A stack, the threads and cores that were asked for, and the other keys that declare it.

    ``declared`` has those of DeclaredRecord, and others, as far as the stack has them.
    """

    name: Text
    threads: Count | None = None
    cores: tuple[Count, ...] = ()
    declared: Annotated[Mapping[str, Any], OrDefault({})] = field(default_factory=dict)


@dataclass(frozen=True)
class BaselineRecord:
    """The stack that an upgrade is compared with, and the threads that were asked for.

    ``variant`` and ``options`` are those of its model, where they are others than the candidate's:
    no options where it has none and the candidate has.
    """

    name: str
    threads: Count | None = None
    variant: str = omitted_if_default("")
    options: Mapping[str, Any] | None = omitted_if_default(None)


@dataclass(frozen=True)
class RemarkRecord:
    """A text about a line of a file."""

    place: str = ""
    text: str = ""


@dataclass(frozen=True)
class OriginalRecord:
    """A manifest of MLModelScope: what was decided about it, and what is wrong in it."""

    dialect: str = ""
    decisions: tuple[RemarkRecord, ...] = ()
    warnings: tuple[RemarkRecord, ...] = ()


@dataclass(frozen=True)
class LoadKeys:
    """The load of a case: limits on its queries in seconds, and the percentile that they are on.

    The other keys tell it from other loads, as ``measured`` does without limits that only judge.
    """

    latency: float | None = None
    ttft: float | None = None
    tpot: float | None = None
    percentile: float = 99.0
    rate: float | None = None
    arrivals: str | None = None
    speed: float = 1.0
    precision: float | None = None
    samples_per_query: int | None = None
    instances: int = 1
    batcher: Mapping[str, float] | None = None

    @property
    def measured(self) -> LoadKeys:
        """The load without its limits; those of a peak say what is searched for."""
        if self.precision is not None:
            return self
        return replace(self, latency=None, ttft=None, tpot=None)


@dataclass(frozen=True, kw_only=True)
class CaseIdentity:
    """The fields that tell which case an item evaluates.

    ``definition`` is the digest of what it measures, without what judges that. ``load`` is written
    with the keys that the load has, and read as LoadKeys.
    """

    case: str = ""
    kind: Kind
    place: str = ""
    manifest: ManifestRecord
    model: ModelRecord = field(default_factory=ModelRecord)
    dataset: DatasetRecord | None = None
    stack: StackRecord
    against: BaselineRecord | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    framework: Text = ""
    device: Text = ""
    batch_size: Count = 1
    scenario: Text | None = None
    seed: int | None = None
    method: Annotated[Count, OrDefault(1)] = 1
    control: Annotated[bool, OrDefault(False)] = omitted_if_default(False)
    original: OriginalRecord | None = omitted_if_default(None)
    load: LoadKeys | Mapping[str, Any] | None = omitted_if_default(None)
    variant: Text = omitted_if_default("")
    shape: Text | None = omitted_if_default(None)
    definition: Text = omitted_if_default("")
    caches: Text | None = omitted_if_default(None)


@dataclass(frozen=True)
class LaunchRecord:
    """The command that starts agents, and the exact packages that they find.

    An environment that was made for them has a ``lock``, an interpreter that was there before has
    ``packages``, or the reason why they are ``lacking``. ``inherited`` are the variables by which
    the caller changes what is measured.
    """

    command: tuple[str, ...] = ()
    lock: tuple[Text, ...] = ()
    packages: tuple[Text, ...] = omitted_if_default(())
    lacking: Annotated[Text, OrDefault("")] = omitted_if_default("")
    inherited: Annotated[Mapping[Text, str] | None, OrDefault(None)] = omitted_if_default(None)

    @property
    def exact(self) -> tuple[str, ...]:
        """The exact packages, a line each; none where they aren't known."""
        return self.lock or self.packages

    @classmethod
    def of(cls, launch: Launch) -> LaunchRecord:
        """Return what results tell of ``launch``."""
        return cls(launch.command, launch.lock, launch.packages, launch.lacking, launch.inherited)


@dataclass(frozen=True)
class Software:
    """The software and the device that an agent really used.

    ``device_facts`` are what its predictor set for the device and what runs where, if it tells.
    """

    versions: _Texts = field(default_factory=dict)
    python: Text = ""
    executable: str = ""
    device_used: str = ""
    threads_used: int | None = None
    cores_used: tuple[int, ...] | None = None
    device_facts: Annotated[Mapping[str, str] | None, OrDefault(None)] = omitted_if_default(None)

    @classmethod
    def of(cls, predictor: Predictor) -> Software:
        """Return what ``predictor`` runs on."""
        return cls(
            versions=predictor.versions,
            python=predictor.python,
            executable=predictor.executable,
            device_used=predictor.device,
            threads_used=predictor.threads,
            cores_used=predictor.cores,
            device_facts=predictor.device_facts,
        )


@dataclass(frozen=True)
class EstimateRecord:
    """An estimate with its interval in the base unit; an end that is None is unbounded."""

    value: float | None
    low: float | None = None
    high: float | None = None
    confidence: float = 0.0
    replicates: Count = 0
    of: str = ""
    lacking: str = ""
    unit: Text = ""
    less_wait: float | None = omitted_if_default(None)
    counter: Text = omitted_if_default("")

    @classmethod
    def made_of(cls, quantity: str, estimate: Estimate) -> EstimateRecord:
        """Return the estimate of ``quantity`` as results have it."""
        return cls(**vars(estimate), unit=QUANTITIES[quantity].unit)


@dataclass(frozen=True)
class OwnQuantity:
    """A quantity that a user's test measured; ``better`` is "lower" or "higher".

    One of several values is their mean, and has an interval.
    """

    value: float | None
    unit: Text = ""
    better: str = ""
    low: float | None = omitted_if_default(None)
    high: float | None = omitted_if_default(None)
    confidence: float | None = omitted_if_default(None)
    replicates: Count | None = omitted_if_default(None)

    @classmethod
    def of(cls, estimate: Estimate, unit: str, better: str) -> OwnQuantity:
        """Return what results tell of ``estimate``."""
        if estimate.confidence == 1:
            return cls(estimate.value, unit, better)
        return cls(
            value=estimate.value,
            unit=unit,
            better=better,
            low=estimate.low,
            high=estimate.high,
            confidence=estimate.confidence,
            replicates=estimate.replicates,
        )


@dataclass(frozen=True, kw_only=True)
class LimitRecord:
    """A limit, which is either ``min`` or ``max`` in the base unit, and the verdict on it."""

    quantity: str
    min: float | None = omitted_if_default(None)
    max: float | None = omitted_if_default(None)
    place: str = ""
    verdict: Verdict
    reason: str = omitted_if_default("")

    @property
    def value(self) -> float:
        """The limit in the base unit, NaN where the line has none."""
        bound = self.min if self.max is None else self.max
        return float("nan") if bound is None else bound

    @classmethod
    def of(cls, decision: Decision) -> LimitRecord:
        """Return what results tell of ``decision``."""
        limit = decision.limit
        is_least = scale_of(limit).bound == "min"
        return cls(
            quantity=limit.quantity,
            min=limit.value if is_least else None,
            max=None if is_least else limit.value,
            place=str(limit.place),
            verdict=decision.verdict,
            reason=decision.reason,
        )


@dataclass(frozen=True)
class Judgement:
    """The verdict on what was measured, and what it was judged by.

    ``margin`` is the distance of the nearest interval end from its limit, as a share of the limit:
    negative outside, infinite without limits. ``text`` is what a person is told of an upgrade.
    """

    verdict: Verdict
    margin: float | None = None
    estimates: Mapping[Text, EstimateRecord] | None = omitted_if_default(None)
    limits: tuple[LimitRecord, ...] | None = omitted_if_default(None)
    text: str | None = omitted_if_default(None)


@dataclass(frozen=True)
class Outcome:
    """The end of an item: our verdict beside pytest's outcome, phase and text.

    ``seconds`` has the time spent by phase. An interrupted item has no phase.
    """

    verdict: Verdict
    outcome: Text = ""
    message: str | None = None
    phase: str | None = omitted_if_default(None)
    seconds: Mapping[Text, float] | None = omitted_if_default(None)


@dataclass(frozen=True)
class PredictionsRecord:
    """The facts that an item noted of its predictions.

    ``sha256`` is the digest of the answers, which rounding doesn't change; None for a task whose
    answers are numbers. ``right`` is how many of ``inputs`` are right by ``quantity``, the task's
    first one that is a share of inputs; None and "" where it has none.
    """

    sha256: str | None
    inputs: Count
    right: Count | None = None
    quantity: str = ""


@dataclass(frozen=True)
class NotedReference:
    """The facts that are read of the reference that outputs agree with."""

    stack: Text = ""
    framework: Text = ""
    device: Text = ""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NotedFields:
    """Fields that an item notes; the other ones are of the plugin, and no test may note them."""

    launch_against: LaunchRecord | None = None
    cache_bytes: int | None = None
    cache_bytes_against: int | None = None


@dataclass(frozen=True, kw_only=True)
class ItemFields(NotedFields, Software, Outcome, Judgement, CaseIdentity, HeadOfItem):
    """The fields that the line of each item may have; what is absent or null has its default."""

    verdict: Verdict  # by keyword, too: what is missing is told in the order of nodeid, kind, …
    worker: str | None = None
    attempt: int = 1
    earlier: Any = None
    digest: Annotated[str, OrDefault("")] = ""
    machine: MachineRecord = field(default_factory=MachineRecord)
    load: LoadKeys | None = None
    launch: LaunchRecord | None = None
    quantities: Mapping[Text, OwnQuantity] = field(default_factory=dict)
    estimates: Mapping[Text, EstimateRecord] = field(default_factory=dict)
    limits: tuple[LimitRecord, ...] = ()
    seconds: Mapping[Text, float] = field(default_factory=dict)
    unwritten: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    artifacts_lost: Mapping[str, str] = field(default_factory=dict)
    logs: tuple[str, ...] = ()
    other_version: str = ""
    reproduce: str = ""


LIMITS = ("latency", "ttft", "tpot")
OF_LIMITS = "goodput"
"""The quantity whose values depend on the limits of a load."""


def load_of(load: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a load is, without the limits that only judge it.

    Those of a peak say what is searched for.
    """
    is_limit = "rate" in load or "arrivals" in load
    return {name: value for name, value in load.items() if not (is_limit and name in LIMITS)}
