"""The digests of an item: of what it measures, and of that with what judges it.

A result is that of an item only where both have the same digest: the node id stays the same when a
limit is tightened, or another release stands behind the name of a stack. Results may be compared
over time where what is measured is the same, whatever judges it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest_mlms
from pytest_mlms.config import Config
from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.records import Artifact, Stack
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.manifest.scenarios import Replay
from pytest_mlms.manifest.sources import is_remote
from pytest_mlms.provide.artifacts.digest import digest_of
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.stacks.declaration import declaration_of

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
        words = [_content(Path(word)) or word for word in stack.agent]
        declared["agent"] = {"command": words}
    return [stack.name, stack.framework, declared]


def _options(config: Config) -> Mapping[str, Any]:
    names = [option.name for option in fields(config) if option.name not in _WITHOUT_EFFECT]
    return {name: getattr(config, name) for name in names}


def _content(path: Path) -> str:
    """Return the digest of a file; "" where it can't be read, which is told elsewhere."""
    try:
        return digest_of(path)
    except OSError:
        return ""
