"""Variants of a model, options of stacks, and variables as sides of an upgrade."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.cli.main import main
from tests.support.project import PREDICTORS, Project

MODEL = """\
  - framework: onnxruntime >=1.17
    variant: {variant}
    graph: digits_cnn.onnx
    sha256: {sha256}
    options: {{optimization: {level}}}
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
        MODEL.format(variant=variant, sha256=sha256, level=level)
        for variant, level in (("fp32", "all"), ("int8", "extended"))
    )
    head, _, rest = text.partition("models:\n")
    project.manifest.write_text(f"{head}models:\n{models}\n{rest[rest.index('inputs:') :]}")
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.set_thresholds("  upgrade: {tolerance: 100 %}")
    (project.folder / "stacks.yaml").write_text(STACKS)
    return project


def test_one_variant_is_gated_against_another(variants: Project) -> None:
    variants.run("--mlms-stack=int8", "--mlms-against=fp32").assert_outcomes(passed=1)
    (item,) = variants.items()
    assert item["case"] == "onnxruntime-int8-vs-onnxruntime-fp32-cpu-b8"
    assert item["variant"] == "int8"
    assert item["options"] == {"optimization": "extended"}
    assert item["against"]["variant"] == "fp32"
    assert item["against"]["options"] == {"optimization": "all"}


def test_a_stack_has_options_and_a_variant_of_its_own(variants: Project) -> None:
    ids = variants.run("--mlms-stack=all", "--collect-only", "-q", "-k", "accuracy").outlines
    found = [line.partition("[")[2] for line in ids if "[" in line]
    assert found == ["sequential-fp32-cpu]", "sequential-int8-cpu]", "parallel-cpu]"]
    variants.run("--mlms-stack=parallel", "-k", "accuracy").assert_outcomes(passed=1)
    (item,) = variants.items()
    options = {"execution_mode": "parallel", "inter_op_threads": 2}
    assert options.items() <= item["options"].items()
    assert item["options"]["optimization"] == "extended"
    assert item["stack"]["declared"]["variant"] == "int8"


def test_an_unknown_variant_is_a_usage_error_that_names_what_there_is(variants: Project) -> None:
    result = variants.run("--mlms-stack=int4")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*'int4' is neither a stack nor *the variants of models are fp32, int8"]
    )


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


def test_lint_refuses_options_that_a_predictor_does_not_take(
    variants: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    variants.edit("{optimization: extended}", "{optimisation: none, inter_op_threads: '2'}")
    stacks = Path(variants.folder, "stacks.yaml")
    stacks.write_text(stacks.read_text().replace("mode: parallel", "mode: quick"))
    assert main(["lint", str(variants.folder), "--mlms-predictors", str(PREDICTORS)]) == 1
    lines = capsys.readouterr().out
    assert "digits.yaml:15: no option 'optimisation'; this predictor knows provider" in lines
    assert "digits.yaml:15: inter_op_threads is '2'; write a whole number" in lines
    assert "stacks.yaml:3: execution_mode is 'quick'; write one of sequential, parallel" in lines
