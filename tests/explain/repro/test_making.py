"""A failed upgrade becomes a bundle, which a clean environment replays with Python and pip alone."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from mlms_predictors import Tensor

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.explain.repro import making
from pytest_mlms.explain.repro.items import FoundItem
from pytest_mlms.explain.repro.replay.record import OUTPUTS, Expectation
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.evaluate.inputs import random_batch
from tests.support.bundles import PREDICTOR
from tests.support.upgrade_case import case_of
from tests.support.wheels import write_wheel

HOME = "conspicuous-5c1d"
MANIFEST = """\
name: product
version: 1.0.0
task: regression
models: [{{framework: skewed, graph: w.npy, sha256: {digest}}}]
inputs: [{{name: x, type: tensor, element_type: float32, shape: [batch, 3]}}]
outputs: [{{name: y, type: tensor}}]
evaluate: {{batch_sizes: [2]}}
"""
STACKS = """\
{name}:
  framework: skewed
  requirements: ["skewed=={version}", "numpy=={numpy}"]
  pip_options: ["--find-links={wheels}"]
"""


def write_project(folder: Path) -> None:
    """Write a manifest, and two stacks of a package whose second release computes otherwise."""
    np.save(folder / "w.npy", np.arange(6, dtype=np.float32).reshape(3, 2))
    digest = hashlib.sha256((folder / "w.npy").read_bytes()).hexdigest()
    (folder / "m.yaml").write_text(MANIFEST.format(digest=digest))
    stacks = ""
    for version, factor in (("1.0", 1), ("2.0", 3)):
        write_wheel(folder / "wheels", "skewed", version, code=f"FACTOR = {factor}\n")
        stacks += STACKS.format(
            name=f"v{version[0]}",
            version=version,
            numpy=np.__version__,
            wheels=folder / "wheels",
        )
    (folder / "stacks.yaml").write_text(stacks)


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a module in a folder, as a user whose home is conspicuous."""
    home = folder / HOME
    home.mkdir(exist_ok=True)
    pip_cache = os.environ.get("PIP_CACHE_DIR", os.path.expanduser("~/.cache/pip"))
    variables = {
        **os.environ,
        "HOME": str(home),
        "USER": HOME,
        "SECRET_TOKEN": HOME,
        "PIP_CACHE_DIR": pip_cache,
        "MLMS_CACHE": str(home / "cache"),
    }
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)


@pytest.mark.slow(seconds=100)
def test_a_regressed_upgrade_is_replayed_in_a_clean_environment(tmp_path: Path) -> None:
    write_project(tmp_path)
    predictors = f"--mlms-predictors={PREDICTOR.parent}"
    options = ("--mlms-manifests=.", "--mlms-stack=v2", "--mlms-against=v1", "--mlms-budget=5")
    judged = run(tmp_path, "pytest", "-pno:xdist", "-kupgrade", predictors, *options)
    assert "REGRESSED" in judged.stdout, judged.stdout + judged.stderr
    made = run(tmp_path, "pytest_mlms", "repro", "upgrade", predictors, "--out=r.zip")
    assert made.returncode == 0, made.stdout + made.stderr
    assert "wheel: skewed-2.0-py3-none-any.whl, which comes along" in made.stdout
    check_content(tmp_path / "r.zip")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    variables = {"PATH": os.environ["PATH"], "HOME": str(elsewhere), "TMPDIR": str(elsewhere)}
    replayed = subprocess.run(
        [sys.executable, "-I", str(tmp_path / "r.zip"), "--yes", "--keep=kept"],
        cwd=elsewhere,
        env=variables,
        capture_output=True,
        text=True,
    )
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert replayed.stdout.endswith("REPRODUCED\n")
    assert "outputs differ by up to 20,000 times what is allowed" in replayed.stdout
    assert not list(elsewhere.glob("mlms-*"))
    ours = ("repro", "--replay=r.zip", "--yes", "--mlms-cache=elsewhere/kept/cache", predictors)
    replayed = run(tmp_path, "pytest_mlms", *ours)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    replayed = run(tmp_path, "pytest_mlms", *ours, "--side=old")
    assert replayed.stdout.endswith("the old side runs, and gives y float32 [2, 2]\nAS EXPECTED\n")


def check_content(bundle: Path) -> None:
    """Check that a bundle is exact, and names neither the folder nor the user."""
    with zipfile.ZipFile(bundle) as archive:
        record = json.loads(archive.read("repro.json"))
        for name in archive.namelist():
            content = name.encode() + archive.read(name)
            assert HOME.encode() not in content, name
            assert str(bundle.parent).encode() not in content, name
    assert f"numpy=={np.__version__}" in record["old"]["requirements"]
    assert "skewed==1.0" in record["old"]["requirements"]
    assert "skewed==2.0" in record["new"]["requirements"]
    assert record["old"]["options"] == []


def test_the_random_inputs_that_an_upgrade_names_are_drawn_again(tmp_path: Path) -> None:
    case = case_of(tmp_path)  # of batches of 8
    (spec,) = case.inputs
    tensor = Tensor(spec.name, "float32", (None, 1, 8, 8))
    predictor = cast(Predictor, SimpleNamespace(inputs=(tensor,)))

    def drawn(*names: str) -> Any:
        line = {"worse_inputs": [f"{name}: y[0] 0 -> 1" for name in names], "outputs": {"seed": 4}}
        return making._random_inputs(predictor, case, line)[spec.name]

    def batch(seed: int | None) -> Any:
        return random_batch(predictor, case, seed)[spec.name]

    np.testing.assert_array_equal(drawn("random input 17 of seed 40"), batch(42))
    np.testing.assert_array_equal(drawn("timed batch 1"), batch(None))
    assert not drawn("inputs of zeros", "random input 17 of seed 40").any()


@pytest.mark.parametrize(("spread", "allowed"), [(0.3, 1e-4), (None, 1e-4), (0.004, 0.008)])
def test_a_replay_takes_for_the_same_what_the_item_did(
    tmp_path: Path, spread: float | None, allowed: float
) -> None:
    """A baseline that varies too much, or without bounds (null in JSON), allows nothing by it."""
    finding = {"name": "logits", "allowed": allowed}
    line = {"outputs": {"outputs": [finding], "spreads": {"logits": spread}}}
    expected = Expectation(OUTPUTS, "agreement", "REGRESSED", "")
    found = making._with_closeness(expected, case_of(tmp_path), line, {})
    assert found.rules["logits"]["share"] == allowed


DAMAGED = (b"", b"[]", b"[" * 100_000, b'{"examples": 1}', b'{"examples": [{"input": "x"}]}')


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_files_of_a_run_are_told(tmp_path: Path, content: bytes) -> None:
    names = ("worst.json", "outputs.npz")
    (tmp_path / "items").mkdir()
    for name in names:
        (tmp_path / "items" / name).write_bytes(content)
    artifacts = {name: f"items/{name}" for name in names}
    found = FoundItem(tmp_path, {"nodeid": "m.yaml::test_accuracy[a]", "artifacts": artifacts})
    for read in (making._worst, making._recorded_outputs):
        with pytest.raises(MlmsError, match="; run the item again"):
            read(found)


def test_outputs_that_lack_an_array_are_told(tmp_path: Path) -> None:
    (tmp_path / "items").mkdir()
    np.savez(tmp_path / "items" / "outputs.npz", input=np.arange(2), reference_y=np.arange(2))
    artifacts = {"outputs.npz": "items/outputs.npz"}
    found = FoundItem(tmp_path, {"nodeid": "m.yaml::test_agreement[a]", "artifacts": artifacts})
    with pytest.raises(MlmsError, match="has no y; run the item again"):
        making._recorded_outputs(found)
