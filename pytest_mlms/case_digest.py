"""The digest of an item: of what it measures, and of what judges that.

A result is that of an item only where both have the same digest: the node id stays the same when a
limit is tightened, or another release stands behind the name of a stack.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest_mlms
from pytest_mlms.cases import Case
from pytest_mlms.config import Config
from pytest_mlms.records import Stack
from pytest_mlms.serialization import to_plain
from pytest_mlms.stacks.declaration import declaration_of

__all__ = ["case_digest"]

_WITHOUT_EFFECT = frozenset(
    {
        *("root", "manifests", "model", "stack", "against", "predictors", "lock", "outside"),
        *("results", "keep", "history", "benchmark_json", "bencher_json", "metrics", "report"),
        *("upgrade_report", "push", "push_token_file", "cache", "download_size", "download_time"),
        *("unpack_limit", "timeout", "worker_timeout", "resume", "fleet", "strict"),
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
        "options": _options(config),
        "lock": _content(config.lock) if config.lock else "",
    }
    text = json.dumps(to_plain(content), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _stack(stack: Stack) -> list[Any]:
    """Return what declares a stack; of a lock file its content, as hosts have it elsewhere."""
    declared = dict(declaration_of(stack))
    if stack.lock:
        declared["lock"] = _content(stack.lock)
    return [stack.name, stack.framework, declared]


def _options(config: Config) -> Mapping[str, Any]:
    names = [option.name for option in fields(config) if option.name not in _WITHOUT_EFFECT]
    return {name: getattr(config, name) for name in names}


def _content(path: Path) -> str:
    """Return the digest of a file; "" where it can't be read, which is told elsewhere."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
