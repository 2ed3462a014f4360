"""The record of an item's result, and the line of results.jsonl that it becomes.

``ItemResult.as_line`` is the one place where the fields of that line are put together. ``line``
declares them, and ``show/report/results.py`` writes the line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pytest_mlms.core.quantities.quantity import METHODS
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.core.text import redact_all
from pytest_mlms.keep.results.case_digest import definition_of
from pytest_mlms.keep.results.line import (
    BaselineRecord,
    CaseIdentity,
    DatasetRecord,
    ItemFields,
    Judgement,
    LaunchRecord,
    ManifestRecord,
    ModelRecord,
    NotedFields,
    OriginalRecord,
    Outcome,
    OwnQuantity,
    RemarkRecord,
    Software,
    StackRecord,
)
from pytest_mlms.manifest.scenarios import OpenLoad
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.stacks.declaration import declaration_of

if TYPE_CHECKING:
    from pytest_mlms.provide.artifacts.fetch import Bring


_NOTED = {field.name for field in fields(NotedFields)}
_OF_EACH_ITEM = {field.name for field in fields(ItemFields)} - _NOTED
_OF_EACH_ITEM |= {"cpu_shares", "folder", "teardown", "unread"}  # of views, and of what follows
"""Names of fields that no test may note: its line would be that of another item, or of none."""


def identity_of(case: Case, bring: Bring | None = None) -> CaseIdentity:
    """Return the identity of ``case``; ``bring`` is that of ``definition_of``."""
    manifest = case.loaded.manifest
    stack = case.stack
    is_upgrade = case.kind == "upgrade"  # whose line is that of its tolerances
    place = case.loaded.place("thresholds", "upgrade") if is_upgrade else case.place()
    return CaseIdentity(
        case=case.id,
        kind=case.kind,
        place=str(place),
        manifest=ManifestRecord(
            path=str(case.loaded.place().path), name=manifest.name, version=manifest.version
        ),
        model=ModelRecord(case.model.framework, case.loaded.model_digests(case.model)),
        dataset=_dataset_of(case),
        stack=StackRecord(stack.name, case.threads, stack.cores, declaration_of(stack)),
        against=_baseline_of(case),
        options=case.options,
        variant=case.model.variant or "",
        shape=case.shape,
        definition=definition_of(case, bring),
        caches=case.caches,
        framework=stack.framework,
        device=case.device,
        batch_size=case.batch_size,
        scenario=case.scenario,
        seed=manifest.evaluate.seed,
        control=manifest.control is not None,
        original=_original_of(case),
        load=load_identity(case),
        method=METHODS[case.kind],
    )


def _original_of(case: Case) -> OriginalRecord | None:
    origin = case.loaded.origin
    if origin is None:
        return None
    decisions = tuple(RemarkRecord(*remark) for remark in origin.decisions)
    warnings = tuple(RemarkRecord(*remark) for remark in origin.warnings)
    return OriginalRecord(origin.dialect, decisions, warnings)


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


def _dataset_of(case: Case) -> DatasetRecord | None:
    dataset = case.loaded.manifest.dataset
    digest = case.loaded.dataset_digest
    if dataset is None or digest is None or not case.has_dataset:
        return None
    return DatasetRecord(dataset.name, dataset.version, digest)


def _baseline_of(case: Case) -> BaselineRecord | None:
    if case.against is None:
        return None
    baseline = case.baseline
    return BaselineRecord(
        name=case.against.name,
        threads=baseline.threads,
        variant=(baseline.model.variant or "") if case.crosses_variants else "",
        options=baseline.options if baseline.options != case.options else None,
    )


@dataclass(frozen=True)
class Recording:
    """Everything that an item recorded while it ran.

    ``notes`` are the fields that only one kind of item has, by name. Paths are relative to the
    run's folder.
    """

    launch: LaunchRecord | None
    software: Software | None
    notes: Mapping[str, Any]
    quantities: Mapping[str, OwnQuantity]
    judgement: Judgement | None
    artifacts: Mapping[str, str]
    artifacts_lost: Mapping[str, str]
    logs: Sequence[str]
    cpu_shares: Any

    def as_fields(self) -> dict[str, Any]:
        """Return the fields of the item's line; those that the item did not get to are absent."""
        line: dict[str, Any] = {}
        if self.launch is not None:
            line["launch"] = to_plain(self.launch)
        if self.software is not None:
            line.update(to_plain(self.software))
        line.update(_plain_notes(self.notes))
        if self.quantities:
            line["quantities"] = to_plain(self.quantities)
        if self.judgement is not None:
            line.update(to_plain(self.judgement))
        line["artifacts"] = to_plain(self.artifacts)
        line["artifacts_lost"] = to_plain(self.artifacts_lost)
        line["logs"] = to_plain(self.logs)
        line["cpu_shares"] = to_plain(self.cpu_shares)
        return line


def _plain_notes(notes: Mapping[str, Any]) -> dict[str, Any]:
    """Return notes as plain values; ``unwritten`` tells which of them can't be in the line."""
    plain: dict[str, Any] = {}
    unwritten = {}
    for name, value in notes.items():
        if name in _OF_EACH_ITEM:
            unwritten[name] = "each item has a field of this name; note it under another one"
            continue
        try:
            plain[name] = to_plain(value)
        except (TypeError, ValueError, RecursionError) as error:
            unwritten[name] = str(error)
    if unwritten:
        plain["unwritten"] = unwritten
    return plain


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
