"""Tests of the document for pytest-benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Place
from pytest_mlms.keep.results.recorder import Recorder
from pytest_mlms.show.report.benchmark_json import load_latencies, write_benchmark_json

RESULT: dict[str, Any] = {
    "nodeid": "m.yaml::test_performance[onnxruntime-cpu-b8-offline]",
    "case": "onnxruntime-cpu-b8-offline",
    "kind": "performance",
    "verdict": "PASSED",
    "manifest": {"name": "digits-cnn"},
    "framework": "onnxruntime",
    "device": "cpu",
    "batch_size": 8,
    "scenario": "offline",
    "processes": [{"calls": 2}],
    "estimates": {},
    "versions": {"onnxruntime": "1.30"},
    "artifacts": {"samples-0.npz": "samples-0.npz"},
}


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    np.savez(tmp_path / "samples-0.npz", start=np.array([0.0, 1.0]), end=np.array([0.5, 2.5]))
    return tmp_path


def test_each_timed_call_of_an_item_is_a_round(run_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    other = {**RESULT, "kind": "accuracy"}
    assert write_benchmark_json(path, [RESULT, other], run_folder) == 1
    document = json.loads(path.read_text())
    (benchmark,) = document["benchmarks"]
    assert benchmark["fullname"] == RESULT["nodeid"]
    assert benchmark["name"] == "test_performance[onnxruntime-cpu-b8-offline]"
    assert benchmark["group"] == "digits-cnn offline b8"
    assert benchmark["stats"]["rounds"] == 2
    assert benchmark["stats"]["mean"] == pytest.approx(1.0)
    assert benchmark["params"]["framework"] == "onnxruntime"
    assert benchmark["extra_info"]["verdict"] == "PASSED"


def test_an_item_without_samples_is_left_out_and_named(run_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    lost = {**RESULT, "nodeid": "m.yaml::lost", "artifacts": {"samples-0.npz": "nowhere.npz"}}
    with pytest.raises(MlmsError, match="without m.yaml::lost, whose samples are not on disk"):
        write_benchmark_json(path, [RESULT, lost], run_folder)
    assert len(json.loads(path.read_text())["benchmarks"]) == 1


def test_a_document_that_can_not_be_written_is_an_error(run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("a file where the folder should be")
    path = tmp_path / "occupied" / "bench.json"
    with pytest.raises(MlmsError, match="--mlms-benchmark-json: .* can't be written"):
        write_benchmark_json(path, [RESULT], run_folder)


def test_latencies_of_all_processes_are_read_in_their_order(tmp_path: Path) -> None:
    recorder = Recorder("a.yaml::test[x]", tmp_path, Place(Path("a.yaml"), 1))
    for index in range(2):
        start = np.array([0.0, 1.0])
        times = {"start": start, "end": start + 0.25 * (index + 1)}
        recorder.keep_arrays(f"samples-{index}.npz", times)
    recorder.keep_arrays("other.npz", {"x": np.zeros(1)})
    line = recorder.recording().as_fields()
    assert load_latencies(tmp_path, line) == [0.25, 0.25, 0.5, 0.5]


def test_without_a_file_of_samples_there_are_no_latencies(tmp_path: Path) -> None:
    assert load_latencies(tmp_path, {"artifacts": {"samples-0.npz": "items/x/s.npz"}}) == []
