"""The record of an item's result, and the line of results.jsonl that it becomes.

``ItemResult.as_line`` is the one place where the fields of that line are put together;
docs/results.md describes them. ``show/report/results.py`` writes the line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.quantities.methods import METHODS
from pytest_mlms.core.records import Decision, Estimate, Kind, Launch, Place, Stack, Verdict
from pytest_mlms.core.redaction import redact_all
from pytest_mlms.core.serialization import omitted_if_default, to_plain
from pytest_mlms.keep.results.case_digest import definition_of
from pytest_mlms.manifest.load import Remark
from pytest_mlms.manifest.scenarios import OpenLoad
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.evaluate.limits import scale_of
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.stacks.declaration import declaration_of

if TYPE_CHECKING:
    from pytest_mlms.provide.artifacts.fetch import Bring

__all__ = [
    "CaseIdentity",
    "EstimateRecord",
    "ItemResult",
    "Judgement",
    "LaunchRecord",
    "LimitRecord",
    "Outcome",
    "Recording",
    "Software",
    "load_identity",
]


class ManifestIdentity(NamedTuple):
    """A manifest: its file, and the name and version of its model."""

    path: str
    name: str
    version: str


class ModelIdentity(NamedTuple):
    """A model's framework, as the manifest constrains it, and the digest of each file by role."""

    framework: str
    sha256: Mapping[str, str]


class DatasetIdentity(NamedTuple):
    """A dataset's name, version and digest."""

    name: str
    version: str
    sha256: str


class StackIdentity(NamedTuple):
    """A stack, the threads and cores that were asked for, and the other keys that declare it."""

    name: str
    threads: int | None
    cores: tuple[int, ...]
    declared: Mapping[str, Any]


@dataclass(frozen=True)
class BaselineIdentity:
    """The stack that an upgrade is compared with, and the threads that were asked for.

    ``variant`` and ``options`` are those of its model, where they are others than the candidate's.
    """

    name: str
    threads: int | None
    variant: str = omitted_if_default("")
    options: Mapping[str, Any] | None = omitted_if_default(None)


class OriginalIdentity(NamedTuple):
    """The dialect of an original manifest, what was decided about it, and what is wrong in it."""

    dialect: str
    decisions: Sequence[Remark]
    warnings: Sequence[Remark]


@dataclass(frozen=True)
class CaseIdentity:
    """The fields that tell which case an item evaluates.

    ``definition`` is the digest of what it measures, without what judges that.
    """

    case: str
    kind: Kind
    place: str
    manifest: ManifestIdentity
    model: ModelIdentity
    dataset: DatasetIdentity | None
    stack: StackIdentity
    against: BaselineIdentity | None
    options: Mapping[str, Any]
    framework: str
    device: str
    batch_size: int
    scenario: str | None
    seed: int
    method: int
    control: bool = omitted_if_default(False)
    original: OriginalIdentity | None = omitted_if_default(None)
    load: Mapping[str, Any] | None = omitted_if_default(None)
    variant: str = omitted_if_default("")
    shape: str | None = omitted_if_default(None)
    definition: str = omitted_if_default("")
    caches: str | None = omitted_if_default(None)

    @classmethod
    def of(cls, case: Case, bring: Bring | None = None) -> CaseIdentity:
        """Return the identity of ``case``; ``bring`` is that of ``definition_of``."""
        manifest = case.loaded.manifest
        path = str(case.loaded.place().path)
        digests = case.loaded.model_digests(case.model)
        return cls(
            case=case.id,
            kind=case.kind,
            place=str(_place(case)),
            manifest=ManifestIdentity(path, manifest.name, manifest.version),
            model=ModelIdentity(case.model.framework, digests),
            dataset=_dataset_identity(case),
            stack=_stack_identity(case),
            against=_baseline_identity(case, case.against),
            options=case.options,
            variant=case.model.variant or "",
            shape=case.shape,
            definition=definition_of(case, bring),
            caches=case.caches,
            framework=case.stack.framework,
            device=case.device,
            batch_size=case.batch_size,
            scenario=case.scenario,
            seed=manifest.evaluate.seed,
            control=manifest.control is not None,
            original=_original_identity(case),
            load=load_identity(case),
            method=METHODS[case.kind],
        )


def _original_identity(case: Case) -> OriginalIdentity | None:
    origin = case.loaded.origin
    if origin is None:
        return None
    return OriginalIdentity(origin.dialect, origin.decisions, origin.warnings)


def load_identity(case: Case) -> dict[str, Any] | None:
    """Return the keys of a case's load, and what serves it."""
    if case.load is None:
        return None
    keys = dict(case.load)
    if not isinstance(case.load, OpenLoad):
        return keys
    evaluate = case.loaded.manifest.evaluate
    batcher = dict(evaluate.batcher) if evaluate.batcher else None
    return {**keys, "instances": evaluate.instances, "batcher": batcher}


def _stack_identity(case: Case) -> StackIdentity:
    stack = case.stack
    return StackIdentity(stack.name, case.threads, stack.cores, declaration_of(stack))


def _place(case: Case) -> Place:
    """Return the line of an item: of an upgrade that of its tolerances, else that of its model."""
    if case.kind == "upgrade":
        return case.loaded.place("thresholds", "upgrade")
    return case.place()


def _dataset_identity(case: Case) -> DatasetIdentity | None:
    dataset = case.loaded.manifest.dataset
    digest = case.loaded.dataset_digest
    if dataset is None or digest is None or not case.has_dataset:
        return None
    return DatasetIdentity(dataset.name, dataset.version, digest)


def _baseline_identity(case: Case, against: Stack | None) -> BaselineIdentity | None:
    if against is None:
        return None
    baseline = case.baseline
    return BaselineIdentity(
        name=against.name,
        threads=baseline.threads,
        variant=(baseline.model.variant or "") if case.crosses_variants else "",
        options=baseline.options if baseline.options != case.options else None,
    )


@dataclass(frozen=True)
class LaunchRecord:
    """The command that starts agents, and the exact packages that they find.

    An environment that was made for them has a ``lock``, an interpreter that was there before has
    ``packages``, or the reason why they are ``lacking``. ``inherited`` are the variables by which
    the caller changes what is measured.
    """

    command: tuple[str, ...]
    lock: tuple[str, ...]
    packages: tuple[str, ...] = omitted_if_default(())
    lacking: str = omitted_if_default("")
    inherited: Mapping[str, str] | None = omitted_if_default(None)

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

    versions: Mapping[str, str]
    python: str
    executable: str
    device_used: str
    threads_used: int | None
    cores_used: tuple[int, ...] | None
    device_facts: Mapping[str, str] | None = omitted_if_default(None)

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
    """An estimate with its unit."""

    value: float
    low: float
    high: float
    confidence: float
    replicates: int
    of: str
    lacking: str
    unit: str
    less_wait: float | None = omitted_if_default(None)
    counter: str = omitted_if_default("")

    @classmethod
    def made_of(cls, quantity: str, estimate: Estimate) -> EstimateRecord:
        """Return the estimate of ``quantity`` as results have it."""
        return cls(
            value=estimate.value,
            low=estimate.low,
            high=estimate.high,
            confidence=estimate.confidence,
            replicates=estimate.replicates,
            of=estimate.of,
            lacking=estimate.lacking,
            unit=QUANTITIES[quantity].unit,
            less_wait=estimate.less_wait,
            counter=estimate.counter,
        )


@dataclass(frozen=True, kw_only=True)
class LimitRecord:
    """A limit, which is either ``min`` or ``max`` in the base unit, and the verdict on it."""

    quantity: str
    min: float | None = omitted_if_default(None)
    max: float | None = omitted_if_default(None)
    place: str
    verdict: Verdict
    reason: str = omitted_if_default("")

    @classmethod
    def of(cls, decision: Decision) -> LimitRecord:
        """Return what results tell of ``decision``."""
        limit = decision.limit
        record = cls(
            quantity=limit.quantity,
            place=str(limit.place),
            verdict=decision.verdict,
            reason=decision.reason,
        )
        if scale_of(limit).bound == "min":
            return replace(record, min=limit.value)
        return replace(record, max=limit.value)


@dataclass(frozen=True)
class Judgement:
    """The verdict on what was measured, and what it was judged by.

    ``margin`` is the distance of the nearest interval end from its limit, as a share of the limit:
    negative outside, infinite without limits. ``text`` is what a person is told of an upgrade.
    """

    verdict: Verdict
    margin: float
    estimates: Mapping[str, EstimateRecord] | None = omitted_if_default(None)
    limits: Sequence[LimitRecord] | None = omitted_if_default(None)
    text: str | None = omitted_if_default(None)


@dataclass(frozen=True)
class Recording:
    """Everything that an item recorded while it ran.

    ``notes`` are the fields that only one kind of item has, by name. Paths are relative to the
    run's folder.
    """

    launch: LaunchRecord | None
    software: Software | None
    notes: Mapping[str, Any]
    judgement: Judgement | None
    artifacts: Mapping[str, str]
    artifacts_lost: Mapping[str, str]
    logs: Sequence[str]
    cpu_shares: Any

    def as_fields(self) -> dict[str, Any]:
        """Return the fields of the item's line; those that the item did not get to are absent."""
        fields: dict[str, Any] = {}
        if self.launch is not None:
            fields["launch"] = to_plain(self.launch)
        if self.software is not None:
            fields.update(to_plain(self.software))
        fields.update(_plain_notes(self.notes))
        if self.judgement is not None:
            fields.update(to_plain(self.judgement))
        fields["artifacts"] = to_plain(self.artifacts)
        fields["artifacts_lost"] = to_plain(self.artifacts_lost)
        fields["logs"] = to_plain(self.logs)
        fields["cpu_shares"] = to_plain(self.cpu_shares)
        return fields


def _plain_notes(notes: Mapping[str, Any]) -> dict[str, Any]:
    """Return notes as plain values; ``unwritten`` tells which of them have no form in JSON."""
    fields: dict[str, Any] = {}
    unwritten = {}
    for name, value in notes.items():
        try:
            fields[name] = to_plain(value)
        except (TypeError, ValueError, RecursionError) as error:
            unwritten[name] = str(error)
    if unwritten:
        fields["unwritten"] = unwritten
    return fields


@dataclass(frozen=True)
class Outcome:
    """The end of an item: our verdict beside pytest's outcome, phase and text.

    ``seconds`` has the time spent by phase. An interrupted item has no phase.
    """

    verdict: Verdict
    outcome: str
    message: str | None
    phase: str | None = omitted_if_default(None)
    seconds: Mapping[str, float] | None = omitted_if_default(None)


@dataclass(frozen=True)
class ItemResult:
    """The result of one item, or of one of its repetitions.

    ``digest`` is that of what the item measures and of what judges it.
    """

    nodeid: str
    worker: str | None
    identity: CaseIdentity
    machine: Any
    outcome: Outcome
    recording: Recording | None = None
    repetition: int = 1
    reproduce: str = ""
    other_version: str = ""
    digest: str = ""

    def as_line(self) -> dict[str, Any]:
        """Return the item's line of results.jsonl as plain values, without secrets."""
        line: dict[str, Any] = {"nodeid": self.nodeid, "worker": self.worker}
        if self.repetition > 1:
            line["repetition"] = self.repetition
        if self.digest:
            line["digest"] = self.digest
        line.update(to_plain(self.identity))
        line["machine"] = to_plain(self.machine)
        if self.recording is not None:
            line.update(self.recording.as_fields())
        if self.other_version:
            line["other_version"] = self.other_version
        line.update(to_plain(self.outcome))
        line["reproduce"] = self.reproduce
        return {**redact_all(line), "nodeid": self.nodeid}
