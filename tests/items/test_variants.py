"""Variants of a model, options of stacks, and variables as sides of an upgrade."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.support.project import Project, sha256

MODEL = """\
  - framework: onnxruntime >=1.17
    variant: {variant}
    graph: digits_cnn.onnx
    sha256: {sha256}
    options: {{mem_pattern: {value}}}
"""

STACKS = """
sequential: {framework: onnxruntime, interpreter: current}
parallel: {framework: onnxruntime, interpreter: current, variant: int8,
  options: {execution_mode: parallel, inter_op_threads: 2, config.session.intra_op.allow_spinning: "0"}}
"""


@pytest.fixture
def variants(project: Project) -> Project:
    """A project whose manifest has two variants of one network."""
    text = project.manifest.read_text()
    sha256 = text.partition("sha256: ")[2].split()[0]
    models = "".join(
        MODEL.format(variant=variant, sha256=sha256, value=value)
        for variant, value in (("fp32", "true"), ("int8", "false"))
    )
    head, _, rest = text.partition("models:\n")
    project.manifest.write_text(f"{head}models:\n{models}\n{rest[rest.index('inputs:') :]}")
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.set_thresholds("  upgrade: {tolerance: 100 %}")
    (project.folder / "stacks.yaml").write_text(STACKS)
    return project


def test_one_variant_is_gated_against_another(variants: Project) -> None:
    text = variants.manifest.read_text()
    agreement = "  agreement: {reference: fp32, frameworks: [int8], atol: 0.1}\n"
    variants.manifest.write_text(text + agreement)
    variants.run("--mlms-stack=int8", "--mlms-against=fp32").assert_outcomes(passed=1)
    (item,) = variants.items()
    assert item["case"] == "onnxruntime-int8-vs-onnxruntime-fp32-cpu-b8"
    assert item["variant"] == "int8"
    assert item["options"] == {"mem_pattern": False}
    assert item["against"]["variant"] == "fp32"
    assert item["against"]["options"] == {"mem_pattern": True}


def test_a_stack_has_options_and_a_variant_of_its_own(variants: Project) -> None:
    ids = variants.run("--mlms-stack=all", "--collect-only", "-q", "-k", "accuracy").outlines
    found = [line.partition("[")[2] for line in ids if "[" in line]
    assert found == ["sequential-fp32-cpu]", "sequential-int8-cpu]", "parallel-cpu]"]
    variants.run("--mlms-stack=parallel", "-k", "accuracy").assert_outcomes(passed=1)
    (item,) = variants.items()
    options = {"execution_mode": "parallel", "inter_op_threads": 2}
    assert options.items() <= item["options"].items()
    assert item["options"]["mem_pattern"] is False
    assert item["stack"]["declared"]["variant"] == "int8"


def test_an_unknown_variant_is_a_usage_error_that_names_what_there_is(variants: Project) -> None:
    result = variants.run("--mlms-stack=int4")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*'int4' is neither a stack nor *the variants of models are fp32, int8*"]
    )


def test_a_manifest_that_is_not_there_is_named_before_the_variants_that_it_would_have(
    project: Project,
) -> None:
    words = ("net.yaml::test_upgrade", "--mlms-stack=int8", "--mlms-against=fp32")
    result = project.pytester.runpytest_subprocess(*words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: there is no net.yaml; name a manifest that is there"])


def test_a_variable_is_one_side_of_an_upgrade(project: Project) -> None:
    project.edit("onnxruntime >=1.17", "labour")
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.set_thresholds()
    result = project.run("--mlms-stack=here+LABOUR_WORK=9", "--mlms-against=here+LABOUR_WORK=1")
    result.assert_outcomes(failed=1)
    (item,) = project.items()
    assert item["verdict"] == "REGRESSED"
    assert item["case"] == "labour+LABOUR_WORK=9-vs-labour+LABOUR_WORK=1-cpu-b8"
    assert item["stack"]["declared"]["env"] == {"LABOUR_WORK": "9"}


def test_the_inputs_that_changed_sides_are_told_by_class(variants: Project) -> None:
    variants.edit("int8", "worse")
    graph = variants.folder / "digits_cnn.onnx"
    worse = with_swapped_classes(graph.read_bytes())
    (variants.folder / "worse.onnx").write_bytes(worse)
    text = variants.manifest.read_text()
    head, _, tail = text.partition("variant: worse")
    tail = tail.replace("digits_cnn.onnx", "worse.onnx", 1)
    tail = tail.replace(sha256(graph.read_bytes()), sha256(worse), 1)
    variants.manifest.write_text(f"{head}variant: worse{tail}")
    (variants.folder / "stacks.yaml").unlink()
    variants.run("--mlms-stack=worse", "--mlms-against=fp32").assert_outcomes(failed=1)
    (item,) = variants.items()
    assert item["verdict"] == "REGRESSED"
    by_name = {compared["quantity"]: compared for compared in item["comparisons"]}
    assert by_name["agreement"]["verdict"] == "PASSED", "outputs of variants differ by design"
    assert by_name["top1"]["verdict"] == "REGRESSED"
    told = by_name["agreement"]["told"]
    assert told.startswith("variants differ by design: ")
    assert re.search(r"; \d+ right before and wrong now \(\d: \d+, \d: \d+\)", told), told


def test_a_variant_that_clips_is_not_asked_for_values_of_large_magnitude(project: Project) -> None:
    models = ""
    for variant, most in (("fp32", 1e9), ("int8", 20.0)):
        model = clipping(most)
        (project.folder / f"{variant}.onnx").write_bytes(model)
        models += CLIPPED.format(variant=variant, sha256=sha256(model))
    project.manifest.write_text(WITHOUT_DATA.format(models=models))
    result = project.run("--mlms-stack=int8", "--mlms-against=fp32", "--mlms-budget=3")
    (item,) = project.items()
    (agreement,) = [
        compared for compared in item["comparisons"] if compared["quantity"] == "agreement"
    ]
    assert agreement["verdict"] == "PASSED", agreement
    result.stdout.fnmatch_lines(["int8 (B) against fp32 (A), onnxruntime"])


CLIPPED = """\
  - {{framework: onnxruntime, variant: {variant}, graph: {variant}.onnx, sha256: {sha256}}}
"""
WITHOUT_DATA = """\
name: clipping
version: 1.0.0
task: tensor
models:
{models}
inputs: [{{name: x, type: tensor, element_type: float32, shape: [batch, 4]}}]
outputs: [{{name: y, type: tensor}}]
evaluate: {{devices: [cpu], batch_sizes: [1]}}
thresholds:
  upgrade: {{tolerance: 100 %}}
  agreement: {{reference: fp32, frameworks: [int8], atol: 0.1}}
"""


def clipping(most: float) -> bytes:
    """Return a network that clips its input, as a quantized one does."""
    ends = [
        numpy_helper.from_array(np.array(end, np.float32), name)
        for end, name in ((-most, "a"), (most, "b"))
    ]
    x, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 4]) for name in ("x", "y")
    )
    graph = helper.make_graph(
        [helper.make_node("Clip", ["x", "a", "b"], ["y"])], "clipping", [x], [y], ends
    )
    opsets = [helper.make_opsetid("", 17)]
    found: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return found


def with_swapped_classes(model: bytes) -> bytes:
    """Return the network with the classes 3 and 5 of its output swapped."""
    network = onnx.load_from_string(model)
    (output,) = network.graph.output
    for node in network.graph.node:
        node.output[:] = ["before" if name == output.name else name for name in node.output]
    order = numpy_helper.from_array(np.array([0, 1, 2, 5, 4, 3, 6, 7, 8, 9]), "order")
    network.graph.initializer.append(order)
    swap = helper.make_node("Gather", ["before", "order"], [output.name], axis=1)
    network.graph.node.append(swap)
    found: bytes = network.SerializeToString()
    return found
