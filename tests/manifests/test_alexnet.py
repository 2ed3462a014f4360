"""The model that speed is compared by, and the table that is made of it."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.manifest import load
from pytest_mlms.structure.onnx_graph import describe_onnx
from tests.support.project import ROOT

ALEXNET = ROOT / "manifests" / "alexnet"


@pytest.mark.slow
def test_it_has_the_parameters_of_alexnet_and_is_the_same_again(tmp_path: Path) -> None:
    for name in ("one", "two"):
        subprocess.run([sys.executable, str(ALEXNET / "make.py"), str(tmp_path / name)], check=True)
    one, two = (tmp_path / name / "alexnet.onnx" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    found = describe_onnx(one, 2)
    assert found.parameters == 61_100_840  # as torchvision says of the same structure
    assert found.layers[-1].shape == (2, 1000)
    assert found.unknown == ()


@pytest.mark.slow
def test_it_is_prepared_with_a_manifest_of_what_can_be_made_and_says_what_is_left_out(
    tmp_path: Path,
) -> None:
    stacks = tmp_path / "few.yaml"
    stacks.write_text("onnxruntime: {framework: onnxruntime, interpreter: current}\n")
    command = [sys.executable, str(ALEXNET / "prepare.py"), str(tmp_path / "made"), str(stacks)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "caffe is left out: no stack caffe is declared" in told
    loaded = load(tmp_path / "made" / "alexnet.yaml")
    assert [model.framework for model in loaded.manifest.models] == [
        "onnxruntime",
        "openvino",
        "opencv",
    ]


def line(framework: str, size: int, seconds: float, high: float | None) -> dict[str, Any]:
    estimate = {"value": seconds, "high": high}
    facts = {
        "kind": "performance",
        "versions": {framework: "1.0"},
        "estimates": {"latency_p50": estimate},
    }
    return {"framework": framework, "batch_size": size, **facts}


def test_the_table_has_a_row_a_framework_fastest_first_and_a_column_a_batch_size(
    tmp_path: Path,
) -> None:
    lines: list[dict[str, Any]] = [
        line("slow", 1, 0.2, 0.21),
        line("fast", 64, 2.0, None),
        line("fast", 1, 0.05, 0.06),
    ]
    lines += [
        {"type": "run"},
        {"kind": "performance", "framework": "broken"},
        {"kind": "agreement", "estimates": {"x": 1}},
    ]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    script = runpy.run_path(str(ALEXNET / "table.py"))
    items = script["read"](tmp_path)
    assert script["table"](items).splitlines() == [
        "| framework | batch of 1 | batch of 64 |",
        "| --- | ---: | ---: |",
        "| fast 1.0 | 50.0 ms ±20 % | 2.00 s |",
        "| slow 1.0 | 200 ms ±5 % | - |",
    ]


def test_cpu_time_is_that_of_a_call_from_each_process(tmp_path: Path) -> None:
    for index, seconds in enumerate((0.1, 0.3)):
        np.savez(
            tmp_path / f"samples-{index}.npz",
            cpu=np.array([5.0, 5.0 + 10 * seconds]),
            at=np.array([0, 10.0]),
        )
    artifacts = {f"samples-{index}.npz": f"samples-{index}.npz" for index in range(2)}
    item = {**line("any", 1, 9.0, None), "artifacts": artifacts, "folder": tmp_path}
    value, high = runpy.run_path(str(ALEXNET / "table.py"))["cpu_time"](item)
    assert value == pytest.approx(0.2)
    assert high > 0.3


def traced(framework: str, plain: float, **overheads: float) -> dict[str, Any]:
    runs = [{"level": "model", "calls": 10, "plain_us": plain, "overhead": 0.0}]
    runs += [
        {"level": level, "calls": 40, "overhead": overhead} for level, overhead in overheads.items()
    ]
    runs.append({"level": "kernel", "calls": 1, "overhead": 9.0, "void": "no probe could watch"})
    trace = {"runs": runs, "coverage": 0.9876 if "layer" in overheads else None, "layers": 13}
    return {
        "framework": framework,
        "case": f"{framework}-cpu-b16",
        "versions": {framework: "1.0"},
        "trace": trace,
    }


def test_the_table_of_overheads_has_a_column_for_each_level_that_was_seen(tmp_path: Path) -> None:
    lines = [
        {"type": "run"},
        traced("slow", 5e6, hardware=-0.004),
        traced("fast", 4.5e5, layer=0.057, hardware=0.02),
    ]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    script = runpy.run_path(str(ALEXNET / "overhead.py"))
    assert script["table"](script["read"](tmp_path)).splitlines() == [
        "| cpu-b16 | untraced | layers' share | +layer | +hardware |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| fast 1.0 | 450 ms | 98.8 % of 13 | +6 % (40) | +2 % (40) |",
        "| slow 1.0 | 5.00 s | - | - | -0 % (40) |",
    ]
