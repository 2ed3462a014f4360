"""The performance items as a pytest-benchmark document, by pytest-benchmark's own statistics.

pytest-benchmark switches itself off under xdist. This document is written by the controller, from
the samples on the disk.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.extras import install
from pytest_mlms.core.files import DamagedFile, read_arrays, write_atomically
from pytest_mlms.core.recorded import recorded_artifacts

_OPTION = "--mlms-benchmark-json"
_EXTRA_FIELDS = ("verdict", "estimates", "versions", "artifacts", "batch_size", "scenario")
_PARAMETERS = ("framework", "device", "batch_size", "scenario")


def write_benchmark_json(path: Path, results: Iterable[Mapping[str, Any]], run_folder: Path) -> int:
    """Write the document, and return how many items it has.

    Raises MlmsError where the file can't be written, and, once it is written, where items are left
    out because their samples are not on the disk.
    """
    from pytest_benchmark import __version__ as version
    from pytest_benchmark.plugin import pytest_benchmark_generate_machine_info
    from pytest_benchmark.utils import get_commit_info

    benchmarks: list[dict[str, Any]] = []
    left_out: list[str] = []
    for result in results:
        if result["kind"] != "performance" or not result.get("processes"):
            continue
        latencies = load_latencies(run_folder, result)
        if latencies:
            benchmarks.append(_benchmark(result, latencies))
        else:
            left_out.append(result["nodeid"])
    document = {
        "machine_info": pytest_benchmark_generate_machine_info(),
        "commit_info": get_commit_info(),
        "benchmarks": benchmarks,
        "datetime": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "version": version,
    }
    try:
        write_atomically(path, json.dumps(document, indent=4))
    except OSError as error:
        raise MlmsError(f"{_OPTION}: {path} can't be written: {error.strerror}") from error
    if left_out:
        names = ", ".join(left_out)
        raise MlmsError(f"{_OPTION}: without {names}, whose samples are not on disk")
    return len(benchmarks)


def load_latencies(folder: Path, line: Mapping[str, Any]) -> list[float]:
    """Return the seconds of every timed call of an item's processes, in order.

    Returns an empty list where a file is missing or damaged.
    """
    latencies: list[float] = []
    for name, recorded in recorded_artifacts(line).items():
        if not name.startswith("samples-"):
            continue
        path = recorded.file_below(folder)
        if path is None:
            return []
        try:
            times = read_arrays(path)
        except (OSError, DamagedFile):
            return []
        seconds = times["end"] - times["start"]
        latencies += seconds.tolist()
    return latencies


def require_benchmark() -> None:
    """Raise MlmsError where pytest-benchmark isn't installed."""
    try:
        import pytest_benchmark  # noqa: F401
    except ImportError as error:
        raise MlmsError(f"needs pytest-benchmark; {install('benchmark')}") from error


def _benchmark(result: Mapping[str, Any], latencies: list[float]) -> dict[str, Any]:
    """Return the entry of an item; each call is a round of pytest-benchmark."""
    from pytest_benchmark.stats import Stats

    stats = Stats()
    stats.data = latencies
    name = result["nodeid"].rpartition("::")[2]
    model = result["manifest"]["name"]
    group = f"{model} {result['scenario']} b{result['batch_size']}"
    return {
        "group": " ".join(filter(None, (group, result.get("shape")))),
        "name": name,
        "fullname": result["nodeid"],
        "params": {field: result[field] for field in _PARAMETERS},
        "param": result["case"],
        "extra_info": {field: result[field] for field in _EXTRA_FIELDS},
        "options": {"processes": len(result["processes"]), "timer": "perf_counter"},
        "stats": {**stats.as_dict(), "iterations": 1},
    }
