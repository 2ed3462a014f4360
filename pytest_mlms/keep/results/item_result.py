"""The record of an item's result: its digests, and the line of results.jsonl that it becomes.

A result is that of an item only where both have the same digest: the node id stays the same when a
limit is tightened, or another release stands behind the name of a stack. Results may be compared
over time where what is measured is the same, whatever judges it.

``ItemResult.as_line`` is the one place where the fields of that line are put together. ``line``
declares them, and ``show/report/results.py`` writes the line."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest_mlms
from pytest_mlms.config import Config
from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.quantities.quantity import METHODS
from pytest_mlms.core.records import Artifact, Stack
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.core.text import redact_all
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
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.manifest.scenarios import OpenLoad, Replay
from pytest_mlms.manifest.sources import is_remote
from pytest_mlms.provide.artifacts.digest import digest_of
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.stacks.recorded import declaration_of

if TYPE_CHECKING:
    from pytest_mlms.provide.artifacts.fetch import Bring


_WITHOUT_EFFECT = frozenset(
    {
        *("root", "manifests", "model", "stack", "against", "predictors", "lock", "outside"),
        *("results", "keep", "history", "benchmark_json", "bencher_json", "metrics", "report"),
        *("upgrade_report", "push", "push_token_file", "cache", "download_size", "download_time"),
        *("unpack_limit", "worker_timeout", "resume", "fleet", "strict"),
    }
)
"""The options that change neither what an item measures nor its verdict, or whose parts do so."""


def case_digest(case: Case, config: Config) -> str:
    """Return the digest of a case under the options of a run; the same on each host."""
    manifest = case.loaded.manifest
    stacks = [case.stack, case.reference_stack, case.against]
    content = {
        "plugin": pytest_mlms.__version__,
        "manifest": manifest.model_dump_json(exclude={"description", "license", "references"}),
        "files": [case.loaded.model_digests(case.model), case.loaded.dataset_digest],
        "case": [case.kind, case.device, case.batch_size, case.scenario, case.threads],
        "stacks": [_stack(stack) for stack in stacks if stack is not None],
        "shape": case.shape,
        "code": _code(case),
        "options": _options(config),
        "lock": _content(config.lock) if config.lock else "",
    }
    return _digest(content)


def definition_of(case: Case, bring: Bring | None = None) -> str:
    """Return the digest of what a case measures, beside the model, the dataset and the place.

    Limits are none of it, nor are keys with their defaults. The steps of outputs count where they
    aren't timed. ``bring`` copies the files of steps to this host where they are on another one.
    """
    manifest = case.loaded.manifest
    is_timed = case.kind not in ("accuracy", "agreement")
    untimed = {"type", "steps"} if is_timed else None
    outputs = [each.model_dump(exclude_defaults=True, exclude=untimed) for each in manifest.outputs]
    content = {
        "inputs": [spec.model_dump(exclude_defaults=True) for spec in case.inputs],
        "outputs": outputs,
        "code": _code(case),
        "files": _files(case, ["inputs"] if is_timed else ["inputs", "outputs"], bring),
        "seed": manifest.evaluate.seed if is_timed else None,  # it draws the timed inputs
        "task": None if is_timed else manifest.task,
    }
    return _digest(content)


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(to_plain(content), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _code(case: Case) -> list[str]:
    """Return the Python of an original manifest, which makes inputs and scores."""
    origin = case.loaded.origin
    return [embedded.text for embedded in origin.code] if origin else []


def _files(case: Case, sections: Collection[str], bring: Bring | None) -> list[str]:
    """Return the digests of the files of steps in sections, and of the arrivals of its load."""
    loaded = case.loaded
    steps = [file.source for path, file in loaded.manifest.step_files if path[0] in sections]
    files = [loaded.step_files[source] for source in steps]
    if isinstance(case.load, Replay):
        files.append(loaded.arrivals_files[case.load.arrivals])
    return [artifact.sha256 or _content_of(loaded, artifact, bring) for artifact in files]


def _content_of(loaded: LoadedManifest, artifact: Artifact, bring: Bring | None) -> str:
    """Return the digest of a file of a manifest; "" where it can't be had, which is told elsewhere.

    One from the web that has none in the manifest has "", too.
    """
    if is_remote(artifact.source):
        return ""
    with contextlib.suppress(ArtifactError):
        here = bring(loaded, artifact) if bring else artifact
        return _content(Path(here.source))
    return ""


def _stack(stack: Stack) -> list[Any]:
    """Return what declares a stack; of files their content, as hosts have them elsewhere."""
    declared = dict(declaration_of(stack))
    if stack.lock:
        declared["lock"] = _content(stack.lock)
    if stack.agent:
        declared["agent"] = {"command": _contents(stack.agent)}
    if stack.serve:
        declared["serve"] = {**declared["serve"], "command": _contents(stack.serve.command)}
    return [stack.name, stack.framework, declared]


def _contents(command: Sequence[str]) -> list[str]:
    """Return the words of a command, and for those that are files or programs their digests."""
    name = command[0]
    program = name if "/" in name else shutil.which(name) or name
    return [_content(Path(word)) or word for word in (program, *command[1:])]


def _options(config: Config) -> Mapping[str, Any]:
    names = [option.name for option in fields(config) if option.name not in _WITHOUT_EFFECT]
    return {name: getattr(config, name) for name in names}


def _content(path: Path) -> str:
    """Return the digest of a file; "" where it can't be read, which is told elsewhere."""
    try:
        return digest_of(path)
    except OSError:
        return ""


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
    keys = {
        key: value
        for key, value in case.load
        if value is not None or key not in ("ttft", "tpot")  # which older lines don't have
    }
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
