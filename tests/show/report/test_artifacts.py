"""Tests of the artifacts of items."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.core.records import Place
from pytest_mlms.keep.results.recorder import Recorder
from pytest_mlms.show.report.artifacts import keep_arrays, load_latencies


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder("a.yaml::test[x]", tmp_path, Place(Path("a.yaml"), 1))


def test_latencies_of_all_processes_are_read_in_their_order(
    recorder: Recorder, tmp_path: Path
) -> None:
    for index in range(2):
        start = np.array([0.0, 1.0])
        times = {"start": start, "end": start + 0.25 * (index + 1)}
        keep_arrays(recorder, f"samples-{index}.npz", times)
    keep_arrays(recorder, "other.npz", {"x": np.zeros(1)})
    line = recorder.recording().as_fields()
    assert load_latencies(tmp_path, line) == [0.25, 0.25, 0.5, 0.5]


def test_without_a_file_of_samples_there_are_no_latencies(tmp_path: Path) -> None:
    assert load_latencies(tmp_path, {"artifacts": {"samples-0.npz": "items/x/s.npz"}}) == []
