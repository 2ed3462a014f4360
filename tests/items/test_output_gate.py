"""Outputs that are wrong, through the whole gate: each with known truth, drawn anew in each run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.project import DIGITS, Project

ROW = 417

STACKS = """
right: {framework: labour, interpreter: current}
scaled: {framework: labour, interpreter: current, env: {LABOUR_FAULT: scaled}}
double: {framework: labour, interpreter: current, env: {LABOUR_FAULT: double}}
one-nan: {framework: labour, interpreter: current, env: {LABOUR_FAULT: row, LABOUR_ROW: "KEY"}}
batch: {framework: labour, interpreter: current, env: {LABOUR_FAULT: batched}}
head: {framework: labour, interpreter: current, env: {LABOUR_HEAD: "1"}}
wrong-head: {framework: labour, interpreter: current, env: {LABOUR_HEAD: "1", LABOUR_FAULT: head}}
dies: {framework: labour, interpreter: current, env: {LABOUR_FAULT: dies}}
dies-later: {framework: labour, interpreter: current, env: {LABOUR_FAULT: dies, LABOUR_VERSION: "2.0"}}
alike: {framework: labour, interpreter: current, env: {LABOUR_VERSION: "2.0"}}
few: {framework: labour, interpreter: current, env: {LABOUR_FAULT: few}}
"""


def key_of_row() -> int:
    """Return the whole number that no other picture of the digits has, as labour computes it."""
    pictures = np.load(DIGITS / "digits_test.npz")["image"].reshape(-1, 64)
    keys = pictures.astype(np.int64) @ np.arange(1, 65)
    (found,) = np.flatnonzero(keys == keys[ROW])
    assert found == ROW
    return int(keys[ROW])


@pytest.fixture
def outputs(project: Project) -> Project:
    """A project whose model runs on all of the stacks, at a batch of 1, without accuracy."""
    project.edit("onnxruntime >=1.17", "labour")
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [1]")
    project.edit(
        "type: classification\n    steps: [softmax, {top_k: {k: 5, labels: labels.txt}}]",
        "type: tensor",
    )
    project.set_thresholds()
    (project.folder / "stacks.yaml").write_text(STACKS.replace("KEY", str(key_of_row())))
    return project


def regressed(project: Project) -> dict[str, list[str]]:
    """Return the quantities that regressed, by stack."""
    return {item["stack"]["name"]: quantities(item) for item in project.items()}


def quantities(item: dict[str, Any]) -> list[str]:
    return [each["quantity"] for each in item["comparisons"] if each["verdict"] == "REGRESSED"]


def texts(project: Project) -> dict[str, str]:
    return {item["stack"]["name"]: item["text"] for item in project.items()}


@pytest.mark.slow
def test_wrong_outputs_of_each_kind_regress_and_the_text_says_where(outputs: Project) -> None:
    names = ("scaled", "double", "one-nan", "batch", "alike")
    stacks = [f"--mlms-stack={name}" for name in names]
    outputs.run("--mlms-against=right", *stacks, "--mlms-tolerance=50%")
    assert regressed(outputs) == {
        "scaled": ["agreement"],
        "double": ["agreement"],
        "one-nan": ["agreement"],
        "batch": ["batch_agreement"],
        "alike": [],
    }
    found = texts(outputs)
    assert "on 600 of 600 inputs" in found["scaled"]
    assert "'logits' is float64, and float32 of the baseline" in found["double"]
    assert f"on 1 of 600 inputs (worst: row {ROW})" in found["one-nan"]
    assert (
        "in a batch of 8, outputs differ by 100 times rounding in B, by 0 times" in found["batch"]
    )
    allow = "thresholds: upgrade: {batch_agreement: … %}"
    assert f"try: if this is intended, allow it: {allow}" in found["batch"]


@pytest.mark.parametrize(
    "stack", ["right", pytest.param("dies-later", marks=pytest.mark.slow), "scaled"]
)
def test_a_baseline_that_dies_on_a_batch_of_8_is_compared_by_what_remains(
    outputs: Project, stack: str
) -> None:
    outputs.run("--mlms-against=dies", f"--mlms-stack={stack}", "--mlms-tolerance=50%")
    (item,) = outputs.items()
    assert quantities(item) == (["agreement"] if stack == "scaled" else [])
    assert item["verdict"] == ("REGRESSED" if stack == "scaled" else "PASSED")
    why = "not compared alone and in a batch of 8: baseline dies: the agent (process "
    assert why in item["text"]
    assert f"on {'600 of ' if stack == 'scaled' else ''}600 " in item["text"]


@pytest.mark.slow
def test_scores_that_are_wrong_beside_boxes_in_pixels_regress(outputs: Project) -> None:
    outputs.run("--mlms-against=head", "--mlms-stack=wrong-head", "--mlms-tolerance=50%")
    (item,) = outputs.items()
    assert quantities(item) == ["agreement"]
    assert "logits[4, " in item["text"]


@pytest.mark.parametrize(("stack", "verdict"), [("right", "PASSED"), ("batch", "FAILED")])
def test_a_limit_judges_how_far_a_batch_is_from_inputs_alone(
    outputs: Project, stack: str, verdict: str
) -> None:
    outputs.set_thresholds("  batch_agreement: {max: 1}")
    outputs.edit("[single_stream, offline]", "[single_stream]")
    result = outputs.run(f"--mlms-stack={stack}", "-k", "performance")
    (item,) = outputs.items()
    assert item["verdict"] == verdict
    assert item["estimates"]["batch_agreement"]["value"] == pytest.approx(
        100 if stack == "batch" else 0, rel=0.1
    )
    assert (
        "batch_agreement is not at most 1.00: measured " in result.stdout.str() or stack == "right"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "verdict"), [("90 %", "PASSED"), ("99.9 %", "REGRESSED"), ("95 %", "INCONCLUSIVE")]
)
def test_a_share_of_inputs_that_a_manifest_allows_may_differ(
    outputs: Project, share: str, verdict: str
) -> None:
    outputs.set_thresholds(f"  agreement: {{reference: labour, inputs: {share}}}")
    outputs.run("--mlms-against=right", "--mlms-stack=few", "--mlms-tolerance=50%", "-k", "upgrade")
    (item,) = outputs.items()
    assert item["verdict"] == verdict, item["text"]


@pytest.mark.parametrize("written", ["101 %", "-1 %", "99.9", "some"])
def test_a_share_of_inputs_that_is_none_is_an_error_at_its_line(
    outputs: Project, written: str
) -> None:
    outputs.set_thresholds(f"  agreement: {{reference: labour, inputs: {written}}}")
    result = outputs.run("--collect-only")
    line = outputs.manifest.read_text().splitlines().index("thresholds:") + 2
    result.stdout.fnmatch_lines([f"*digits.yaml:{line}: thresholds.agreement*inputs*"])
    assert "Traceback" not in result.stdout.str()
