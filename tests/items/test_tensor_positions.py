"""Runs of a manifest that says the positions of inputs and outputs, whose names differ."""

from __future__ import annotations

import numpy as np

from tests.support.project import Project, sha256

PREDICTOR = """
from mlms_predictors import Loaded, Tensor

NAME = __name__.rpartition(".")[2]

def versions():
    return {NAME: "1.0"}

def devices():
    return ["cpu"]

def load(request):
    names = request.options["names"].split()
    tensors = [Tensor(name, "float32", (None, 2)) for name in names]
    return Loaded(names, "cpu", request.threads, tensors[:2], tensors[2:])

def predict(loaded, arrays):
    left, right = (arrays[name] for name in loaded.model[:2])
    return [left + right, left - right]
"""

MANIFEST = """\
name: positions
version: 1.0.0
task: regression
models:
  - {{framework: first, graph: g, sha256: {graph}, options: {{names: left right sum difference}}}}
  - {{framework: second, graph: g, sha256: {graph}, options: {{names: '0 1 2 3'}}}}
inputs:
  - {{name: b, position: 1, type: tensor, element_type: float32}}
  - {{name: a, position: 0, type: tensor, element_type: float32}}
outputs: [{{name: less, position: 1, type: tensor}}]
dataset: {{name: numbers, version: 1.0.0, source: numbers.npz, sha256: {dataset}}}
evaluate: {{batch_sizes: [5]}}
thresholds: {{mae: {{max: 0.001}}, agreement: {{reference: first}}}}
"""


def test_all_items_use_the_tensors_at_the_positions(project: Project) -> None:
    predictors = project.path / "predictors"
    predictors.mkdir()
    for name in ("first", "second"):
        (predictors / f"{name}.py").write_text(PREDICTOR)
    project.drop()
    (project.folder / "g").write_bytes(b"g")
    a, b = np.random.default_rng(0).normal(size=(2, 20, 2)).astype(np.float32)
    dataset = project.folder / "numbers.npz"
    np.savez(dataset, a=a, b=b, label=a - b)
    digests = {"graph": sha256(b"g"), "dataset": sha256(dataset.read_bytes())}
    project.manifest.write_text(MANIFEST.format(**digests))
    result = project.run("-k", "accuracy or agreement", f"--mlms-predictors={predictors}")
    assert result.ret == 0
    verdicts = {item["nodeid"].partition("::")[2]: item["verdict"] for item in project.items()}
    assert verdicts == {
        "test_accuracy[first-cpu]": "PASSED",
        "test_accuracy[second-cpu]": "PASSED",
        "test_agreement[second-cpu]": "PASSED",
    }
