"""Outputs of unusual forms, from the agent to the verdict: strided, complex."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.support.project import Project, sha256

PREDICTOR = """
import numpy
from mlms_predictors import Loaded, Tensor

NAME = __name__.rpartition(".")[2]

def versions():
    return {NAME: "1.0"}

def devices():
    return ["cpu"]

def load(request):
    inputs = [Tensor("x", "float32", (None, 3))]
    outputs = [Tensor(request.options["output"], "", ())]
    return Loaded(request.options, "cpu", request.threads, inputs, outputs)

def predict(loaded, arrays):
    x = arrays["x"]
    if loaded.model["form"] == "complex":
        return [(x + 1j * loaded.model["imaginary"]).astype("complex64")]
    return [x[:, :1] * 2 if loaded.model["form"] == "copy" else numpy.repeat(x * 2, 2, 1)[:, :1]]
"""

MANIFEST = """\
name: forms
version: 1.0.0
task: regression
models:
  - {{framework: first, graph: g, sha256: {digest}, options: {{form: {first}, imaginary: 1, output: '{output}'}}}}
  - {{framework: second, graph: g, sha256: {digest}, options: {{form: {second}, imaginary: {part}, output: '{output}'}}}}
inputs: [{{name: x, type: tensor, element_type: float32, shape: [batch, 3]}}]
outputs: [{{name: '{output}', type: tensor}}]
evaluate: {{batch_sizes: [5]}}
thresholds: {{agreement: {{reference: first}}}}
"""


def run_manifests(project: Project, manifests: list[str]) -> list[dict[str, Any]]:
    """Run manifests with the two predictors; return the results of their agreements, in order."""
    folder = project.path / "predictors"
    folder.mkdir()
    for name in ("first", "second"):
        (folder / f"{name}.py").write_text(PREDICTOR)
    project.drop()
    (project.folder / "g").write_bytes(b"g")
    for number, text in enumerate(manifests):
        (project.folder / f"m{number}.yaml").write_text(text)
    project.run(f"--mlms-predictors={folder}")
    items = project.items()
    assert {item["verdict"] for item in items if item["kind"] == "performance"} == {"PASSED"}
    return [item for item in items if item["kind"] == "agreement"]


def manifest_of(first: str, second: str, part: int = 1, output: str = "y") -> str:
    digest = sha256(b"g")
    return MANIFEST.format(digest=digest, first=first, second=second, part=part, output=output)


def run_forms(project: Project, first: str, second: str, part: int = 1) -> str:
    """Run the agreement of two predictors of these forms; return its verdict."""
    (item,) = run_manifests(project, [manifest_of(first, second, part)])
    return str(item["verdict"])


def test_a_column_of_a_larger_array_is_an_output(project: Project) -> None:
    assert run_forms(project, "copy", "column") == "PASSED"


def test_complex_outputs_agree_where_both_parts_do(project: Project) -> None:
    assert run_forms(project, "complex", "complex") == "PASSED"


def test_complex_outputs_that_differ_in_their_imaginary_part_do_not_agree(project: Project) -> None:
    assert run_forms(project, "complex", "complex", part=2) == "FAILED"


def test_an_output_may_have_any_name(project: Project) -> None:
    names = ["file", "allow_pickle", "input", "start", "../y", "a b/µ"]
    manifests = [manifest_of("complex", "complex", part=2, output=output) for output in names]
    items = run_manifests(project, manifests)
    for output, item in zip(names, items, strict=True):
        assert item["verdict"] == "FAILED"
        with np.load(project.results / item["artifacts"]["outputs.npz"]) as kept:
            key = "output_input" if output == "input" else output
            assert kept[key].shape == (5, 3, 2)
            assert kept[f"reference_{output}"].shape == (5, 3, 2)
            assert kept["input"].tolist() == [0, 1, 2, 3, 4]


FOUND = """
import os
import numpy
from mlms_predictors import Loaded, Tensor

def versions():
    return {"found": os.environ["FOUND_VERSION"]}

def devices():
    return ["cpu"]

def load(request):
    inputs = [Tensor("x", "float32", (1, 50))]
    outputs = [Tensor("places", "int64", (None, 2))]
    return Loaded(float(os.environ["FOUND_LEAST"]), "cpu", request.threads, inputs, outputs)

def predict(loaded, arrays):
    return [numpy.argwhere(arrays["x"] > loaded.model)]
"""

FOUND_MANIFEST = f"""\
name: found
version: 1.0.0
task: inference
models: [{{framework: found, graph: g, sha256: {sha256(b"g")}}}]
inputs: [{{name: x, type: tensor, element_type: float32}}]
outputs: [{{name: places, type: tensor, batch: none}}]
evaluate: {{batch_sizes: [1]}}
"""


@pytest.mark.slow
def test_upgrades_compare_outputs_whose_first_axis_depends_on_the_input(project: Project) -> None:
    folder = project.path / "predictors"
    folder.mkdir()
    (folder / "found.py").write_text(FOUND)
    project.drop()
    (project.folder / "g").write_bytes(b"g")
    (project.folder / "m.yaml").write_text(FOUND_MANIFEST)
    sides = {"old": (1, 0.5), "same": (2, 0.5), "fewer": (3, 1.0)}
    lines = [
        f"{name}: {{framework: found, interpreter: current, "
        f'env: {{FOUND_VERSION: "{version}", FOUND_LEAST: "{least}"}}}}\n'
        for name, (version, least) in sides.items()
    ]
    (project.folder / "stacks.yaml").write_text("".join(lines))
    stacks = ["--mlms-stack=same", "--mlms-stack=fewer", "--mlms-against=old"]
    project.run(f"--mlms-predictors={folder}", *stacks, "--mlms-tolerance=99%")
    found = {
        item["stack"]["name"]: next(
            one for one in item["comparisons"] if one["quantity"] == "agreement"
        )
        for item in project.items()
    }
    assert found["same"]["verdict"] == "PASSED", found["same"]
    assert found["same"]["replicates"] >= 64
    assert found["fewer"]["verdict"] == "REGRESSED"
    assert "'places' is (" in found["fewer"]["lacking"]


@pytest.mark.parametrize(("last", "verdict"), [("eel", "PASSED"), ("eels", "REGRESSED")])
def test_a_candidate_that_answers_other_texts_has_regressed(
    project: Project, last: str, verdict: str
) -> None:
    project.drop()
    models = []
    for variant, name in (("old", "eel"), ("new", last)):
        texts = ["cat", "größe", name]
        largest = helper.make_node("ArgMax", ["x"], ["number"], axis=1, keepdims=0)
        named = helper.make_node(
            "LabelEncoder",
            ["number"],
            ["label"],
            domain="ai.onnx.ml",
            keys_int64s=[0, 1, 2],
            values_strings=texts,
        )
        x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 3])
        label = helper.make_tensor_value_info("label", onnx.TensorProto.STRING, ["N"])
        graph = helper.make_graph([largest, named], "g", [x], [label])
        imports = [helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx.ml", 2)]
        path = project.folder / f"{variant}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
        digest = sha256(path.read_bytes())
        words = f"framework: onnxruntime, variant: {variant}, graph: {path.name}, sha256: {digest}"
        models.append(f"  - {{{words}}}")
    (project.folder / "m.yaml").write_text(
        "\n".join(["name: texts", "version: 1.0.0", "task: inference", "models:", *models])
        + """
inputs: [{name: x, type: tensor, element_type: float32, shape: [batch, 3]}]
outputs: [{name: label, type: tensor}]
evaluate: {batch_sizes: [4]}
thresholds:
  agreement: {reference: onnxruntime-old, frameworks: [onnxruntime-new], atol: 1e9, rtol: 1}
  upgrade: {tolerance: 1000 %}
"""
    )
    project.run("--mlms-stack=new", "--mlms-against=old")
    (item,) = project.items()
    assert item["verdict"] == verdict
    if verdict == "REGRESSED":
        assert "label 'eel' -> 'eels'" in item["message"]
