"""Lines of results and locks made of them, for tests of lock files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_mlms.keep.lockfile.from_results import items_of_run, renewed
from pytest_mlms.keep.lockfile.lock import Lock
from pytest_mlms.keep.lockfile.reading import lock_text
from pytest_mlms.manifest import LoadedManifest

__all__ = [
    "ACCURACY",
    "MACHINE",
    "PACKAGES",
    "PERFORMANCE",
    "line_of",
    "lock_of",
    "slower",
    "write_lock",
]

ACCURACY = "digits.yaml::test_accuracy[here-cpu]"
PERFORMANCE = "digits.yaml::test_performance[here-cpu-b8-offline]"
PACKAGES = ("numpy==2.4.6", "onnxruntime==1.20.1")
MACHINE = {
    "cpu": {"model": "Fast CPU"},
    "cores": {"logical": 2},
    "memory": 2**34,
    "virtual_machine": False,
}

_ESTIMATES = {
    "latency_p50": {"value": 5e-3, "low": 4.9e-3, "high": 5.1e-3, "unit": "s"},
    "throughput": {"value": 12345.6, "low": 12000.0, "high": 12700.0, "unit": "/s"},
}


def line_of(nodeid: str = ACCURACY, packages: Sequence[str] = PACKAGES, **fields: Any) -> Any:
    """Return the line of an item in results.jsonl, as far as a lock is made of it."""
    kind = nodeid.partition("::test_")[2].partition("[")[0]
    line: dict[str, Any] = {
        "type": "item",
        "nodeid": nodeid,
        "kind": kind,
        "verdict": "PASSED",
        "manifest": {"name": "digits-cnn"},
        "model": {"sha256": {"graph": "1" * 64}},
        "dataset": {"sha256": "2" * 64},
        "stack": {"name": "here"},
        "framework": "onnxruntime",
        "device": "cpu",
        "python": "3.11.7",
        "launch": {"lock": [], "packages": list(packages)},
        "machine": MACHINE,
    }
    if kind == "accuracy":
        line["predictions"] = {"sha256": "3" * 64, "inputs": 600, "right": 594}
    if kind == "performance":
        line["estimates"] = _ESTIMATES
    return {**line, **fields}


def slower(factor: float) -> dict[str, Any]:
    """Return the estimates of a performance item with another latency."""
    latency = dict(_ESTIMATES["latency_p50"])
    for key in ("value", "low", "high"):
        latency[key] = float(latency[key]) * factor  # type: ignore[arg-type]
    return {**_ESTIMATES, "latency_p50": latency}


def lock_of(*lines: Any, old: Lock | None = None, folder: Path = Path("/project")) -> Lock:
    """Return the lock of a run with these lines; those that ``old`` has besides are kept."""
    before = old or Lock()
    measured = items_of_run(lines, folder).measured
    return renewed(before, measured, before.items.keys() - measured.keys())


def write_lock(path: Path, loaded: LoadedManifest, *lines: Any) -> None:
    """Write the lock of a run with these lines, which measured the files of a manifest."""
    model = {"sha256": loaded.model_digests(loaded.manifest.models[0])}
    files = {"model": model, "dataset": {"sha256": loaded.dataset_digest}}
    measured = [{**line, **files} for line in lines]
    path.write_text(lock_text(lock_of(*measured, folder=Path.cwd())))
