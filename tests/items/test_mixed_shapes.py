"""Items over inputs of several shapes, and a candidate that works between calls, in real agents."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.support.project import HANG_GUARD, PREDICTORS

pytestmark = pytest.mark.slow

MANIFEST = """
name: mixed
version: 1.0.0
task: image-classification
models: [{{framework: lengths, graph: ../model.bin, sha256: {{graph: {model}}}}}]
inputs: [{{name: ids, type: tensor, element_type: float32}}]
outputs: [{{name: sum, type: tensor}}]
dataset: {{name: d, version: 1.0.0, source: ../set.zip, sha256: {dataset}}}
evaluate: {{threads: 1}}
"""
STACKS = """
old: {framework: lengths, interpreter: current}
long: {framework: lengths, interpreter: current, env: {LENGTHS_LONG: "3"}}
spin: {framework: lengths, interpreter: current, env: {LENGTHS_SPIN: "0.2"}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a manifest whose dataset has 5 % long inputs."""
    table = ["ids,label"]
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        for number in range(100):
            path = tmp_path / f"{number}.npy"
            np.save(path, np.full(512 if number % 20 == 0 else 16, number, np.float32))
            archive.write(path, path.name)
            table.append(f"{path.name},0")
        archive.writestr("labels.csv", "\n".join(table))
    (tmp_path / "model.bin").write_bytes(b"x")
    (tmp_path / "stacks.yaml").write_text(STACKS)
    (tmp_path / "manifests").mkdir()
    files = {"model": tmp_path / "model.bin", "dataset": tmp_path / "set.zip"}
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    (tmp_path / "manifests" / "m.yaml").write_text(MANIFEST.format(**digests))
    return tmp_path


def run(folder: Path, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "--mlms-manifests=manifests", *options]
    command.append(f"--mlms-predictors={PREDICTORS}")
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=HANG_GUARD, check=False
    )
    return done.stdout


def test_a_candidate_that_is_slower_on_the_few_long_inputs_regresses(folder: Path) -> None:
    output = run(folder, "--mlms-stack=long", "--mlms-against=old")
    assert "group_latency: A" in output
    assert "inputs of shape 512, 5 % of all" in output
    assert "inputs of shape 16 (95 %): A" in output
    assert "IMPROVED" not in output


def test_a_thread_that_works_between_calls_is_told(folder: Path) -> None:
    output = run(folder, "--mlms-stack=spin", "--mlms-against=old")
    assert "REGRESSED" in output
    assert "idle_cpu: A" in output


def test_a_performance_item_has_a_line_for_each_shape(folder: Path) -> None:
    output = run(folder, "--mlms-stack=old")
    assert "inputs of shape 512 (5 %): " in output
