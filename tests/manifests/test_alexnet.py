"""The model that speed is compared by, and the table of its latencies."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.manifest import load
from pytest_mlms.measure.structure.onnx_structure import describe_onnx
from tests.support.project import ROOT

ALEXNET = ROOT / "manifests" / "alexnet"
TORCHVISION_PARAMETERS = 61_100_840
"""Counts of torchvision for the same structure."""


@pytest.mark.slow
def test_it_has_the_parameters_of_alexnet(tmp_path: Path) -> None:
    found = describe_onnx(make(tmp_path), 2)
    assert found.parameters == TORCHVISION_PARAMETERS
    assert found.layers[-1].shape == (2, 1000)
    assert found.unknown == ()


@pytest.mark.slow
def test_making_it_again_gives_the_same_file(tmp_path: Path) -> None:
    first = make(tmp_path / "first")
    second = make(tmp_path / "second")
    assert first.read_bytes() == second.read_bytes()


def make(folder: Path) -> Path:
    subprocess.run([sys.executable, str(ALEXNET / "make.py"), str(folder)], check=True)
    return folder / "alexnet.onnx"


@pytest.mark.slow
def test_the_manifest_has_the_frameworks_whose_files_can_be_made(tmp_path: Path) -> None:
    stacks = tmp_path / "few.yaml"
    stacks.write_text("onnxruntime: {framework: onnxruntime, interpreter: current}\n")
    command = [sys.executable, str(ALEXNET / "prepare.py"), str(tmp_path / "made"), str(stacks)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "caffe is left out: no stack caffe is declared" in done.stdout
    loaded = load(tmp_path / "made" / "alexnet.yaml")
    frameworks = [model.framework for model in loaded.manifest.models]
    assert frameworks == ["onnxruntime", "openvino", "opencv"]


def write_results(folder: Path, lines: Iterable[dict[str, Any]]) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "results.jsonl").write_text(text)


def performance(framework: str, size: int, seconds: float, high: float | None) -> dict[str, Any]:
    return {
        "framework": framework,
        "batch_size": size,
        "kind": "performance",
        "versions": {framework: "1.0"},
        "estimates": {"latency_p50": {"value": seconds, "high": high}},
    }


def test_the_table_of_latencies_has_the_fastest_framework_first(tmp_path: Path) -> None:
    lines = [
        performance("slow", 1, 0.2, 0.21),
        performance("fast", 64, 2.0, None),
        performance("fast", 1, 0.05, 0.06),
        {"type": "run"},
        {"kind": "performance", "framework": "broken"},
        {"kind": "agreement", "estimates": {"x": 1}},
    ]
    write_results(tmp_path, lines)
    script = runpy.run_path(str(ALEXNET / "table.py"))
    items = script["read"](tmp_path)
    assert script["table"](items).splitlines() == [
        "| framework | batch of 1 | batch of 64 |",
        "| --- | ---: | ---: |",
        "| fast 1.0 | 50.0 ms ±20 % | 2.00 s |",
        "| slow 1.0 | 200 ms ±5 % | - |",
    ]


def test_cpu_time_is_the_mean_over_processes_of_the_time_of_a_call(tmp_path: Path) -> None:
    artifacts = {}
    for index, seconds in enumerate((0.1, 0.3)):
        name = f"samples-{index}.npz"
        cpu = np.array([5.0, 5.0 + 10 * seconds])
        np.savez(tmp_path / name, cpu=cpu, at=np.array([0, 10.0]))
        artifacts[name] = name
    write_results(tmp_path, [{**performance("any", 1, 9.0, None), "artifacts": artifacts}])
    script = runpy.run_path(str(ALEXNET / "table.py"))
    (item,) = script["read"](tmp_path)
    found = script["cpu_time"](item)
    assert found.value == pytest.approx(0.2)
    assert found.high > 0.3
