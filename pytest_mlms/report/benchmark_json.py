"""The performance items as a pytest-benchmark document, by pytest-benchmark's own statistics.

pytest-benchmark switches itself off under xdist; this writes on the controller, from the samples
that are on disk.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_mlms.errors import MlmsError
from pytest_mlms.report.artifacts import load_latencies

__all__ = ["write_benchmark_json"]


def write_benchmark_json(
    path: Path, results: Iterable[Mapping[str, Any]], run_folder: Path
) -> None:
    """Write the document; raises MlmsError where pytest-benchmark isn't installed or the file can't
    be written.

    Also, once it is written, where an item's samples are not on disk (which was full), so that it
    isn't in there.
    """
    try:
        from pytest_benchmark import __version__ as version
        from pytest_benchmark.plugin import pytest_benchmark_generate_machine_info
        from pytest_benchmark.utils import get_commit_info
    except ImportError as error:
        raise MlmsError(
            "--mlms-benchmark-json needs pytest-benchmark; pip install 'pytest-mlms[benchmark]'"
        ) from error
    measured = [
        result for result in results if result["kind"] == "performance" and result.get("processes")
    ]
    found = [(result, _benchmark(result, run_folder)) for result in measured]
    document = {
        "machine_info": pytest_benchmark_generate_machine_info(),
        "commit_info": get_commit_info(),
        "benchmarks": [benchmark for _, benchmark in found if benchmark],
        "datetime": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "version": version,
    }
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(document, indent=4))
        os.replace(temporary, path)
    except OSError as error:
        raise MlmsError(
            f"--mlms-benchmark-json: {path} can't be written: {error.strerror}"
        ) from error
    lost = [result["nodeid"] for result, benchmark in found if not benchmark]
    if lost:
        raise MlmsError(
            f"--mlms-benchmark-json: without {', '.join(lost)}, whose samples are not on disk"
        )


def _benchmark(result: Mapping[str, Any], run_folder: Path) -> dict[str, Any] | None:
    """Return one entry, or None without samples: a round is a call.

    Extra_info names the samples themselves.
    """
    from pytest_benchmark.stats import Stats

    stats = Stats()
    stats.data = load_latencies(run_folder, result["artifacts"])
    if not stats.data:
        return None
    extra = {
        key: result[key]
        for key in ("verdict", "estimates", "versions", "artifacts", "batch_size", "scenario")
    }
    return {
        "group": f"{result['manifest']['name']} {result['scenario']} b{result['batch_size']}",
        "name": result["nodeid"].rpartition("::")[2],
        "fullname": result["nodeid"],
        "params": {key: result[key] for key in ("framework", "device", "batch_size", "scenario")},
        "param": result["case"],
        "extra_info": extra,
        "options": {"processes": len(result["processes"]), "timer": "perf_counter"},
        "stats": {**stats.as_dict(), "iterations": 1},
    }
