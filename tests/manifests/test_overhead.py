"""The table of what tracing each level costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from pytest_mlms.core.serialization import to_plain
from pytest_mlms.measure.trace.records import TraceRun, TraceSummary
from tests.support.project import ROOT

PROGRAM = ROOT / "manifests" / "alexnet" / "overhead.py"


def result(framework: str, *runs: TraceRun, coverage: float | None = 0.998) -> dict[str, Any]:
    summary = TraceSummary(("layer",), runs, coverage, 13, (), 0, {}, {})
    return {
        "framework": framework,
        "case": f"{framework}-cpu-b16",
        "versions": {framework: "1.0"},
        "trace": to_plain(summary),
    }


def table_of(folder: Path, *results: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    lines = [json.dumps(result) for result in results]
    (folder / "results.jsonl").write_text("\n".join(lines))
    command = [sys.executable, str(PROGRAM), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_fastest_comes_first_with_the_overhead_of_each_level(tmp_path: Path) -> None:
    hardware = TraceRun("hardware", calls=56, plain_us=2000.0, overhead=-0.004)
    slow = result("slow", TraceRun("model", plain_us=2000.0), hardware, coverage=None)
    layers = TraceRun("layer", calls=40, plain_us=1000.0, overhead=0.05)
    void = TraceRun("layer", calls=9, overhead=9.0, void="the run failed")
    fast = result("fast", TraceRun("model", plain_us=1000.0), layers, void)
    untraced = {**slow, "trace": None}
    lines = table_of(tmp_path, slow, untraced, fast).stdout.splitlines()
    assert lines == [
        "| cpu-b16 | untraced | layers' share | +layer | +hardware |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| fast 1.0 | 1.00 ms | 99.8 % of 13 | +5 % (40) | - |",
        "| slow 1.0 | 2.00 ms | - | - | -0 % (56) |",
    ]


def test_results_without_traces_are_an_error(tmp_path: Path) -> None:
    done = table_of(tmp_path)
    assert done.returncode == 1
    assert "no traces in" in done.stderr
