"""Caches of compilers: cold in each process, or filled once, with a predictor that has some."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.project import PREDICTORS, sha256

MANIFEST = """
name: compiled
version: 1.0.0
task: regression
models: [{{framework: compiling, graph: model.bin, sha256: {model}}}]
inputs: [{{name: x, type: tensor, element_type: float32}}]
outputs: [{{name: y, type: tensor}}]
evaluate: {{batch_sizes: [2]{caches}}}
"""
COMPILES = 0.15  # seconds, less than what compiling takes


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder in which run() writes the manifest."""
    (pytester.path / "model.bin").write_bytes(b"x")
    return pytester


def run(pytester: pytest.Pytester, caches: str, *options: str) -> dict[str, Any]:
    """Run the only item; return its line, with what was printed as ``text``."""
    written = f", caches: {caches}" if caches else ""
    manifest = MANIFEST.format(model=sha256(b"x"), caches=written)
    Path(pytester.path, "m.yaml").write_text(manifest)
    folder = f"{caches}-{len(list(pytester.path.iterdir()))}"
    result = pytester.runpytest_subprocess(
        "--mlms-manifests=m.yaml",
        f"--mlms-predictors={PREDICTORS}",
        f"--mlms-results={folder}",
        "--mlms-duration=0.02",
        "--mlms-processes=2",
        *options,
    )
    path = pytester.path / folder / "latest" / "results.jsonl"
    (line,) = [json.loads(text) for text in path.read_text().splitlines() if '"nodeid"' in text]
    return {**line, "text": result.stdout.str()}


def first_calls(line: dict[str, Any]) -> list[float]:
    return [process["first_seconds"] for process in line["processes"]]


def test_cold_caches_are_empty_for_each_process(project: pytest.Pytester) -> None:
    line = run(project, "cold")
    assert min(first_calls(line)) > COMPILES
    assert (line["caches"], line["cache_bytes"]) == ("cold", len("kernel"))
    assert not (project.path / "kernels").exists()


def test_warm_caches_are_filled_by_a_process_that_does_not_count(project: pytest.Pytester) -> None:
    line = run(project, "warm")
    assert max(first_calls(line)) < COMPILES
    assert (line["caches"], line["cache_bytes"]) == ("warm", len("kernel"))
    assert not (project.path / "kernels").exists()


def test_without_the_key_caches_are_those_of_the_user(project: pytest.Pytester) -> None:
    line = run(project, "")
    assert first_calls(line)[0] > COMPILES
    assert max(first_calls(line)[1:]) < COMPILES
    assert "caches" not in line
    assert (project.path / "kernels").exists()


FORGETS = ("--mlms-stack=here+COMPILING_FORGET=1", "--mlms-against=here")


@pytest.mark.slow
@pytest.mark.parametrize(("caches", "worse"), [("warm", True), ("cold", False)])
def test_a_candidate_that_keeps_no_cache_regresses_only_where_they_are_warm(
    project: pytest.Pytester, caches: str, worse: bool
) -> None:
    line = run(project, caches, *FORGETS)
    regressed = [each["quantity"] for each in line["comparisons"] if each["verdict"] == "REGRESSED"]
    assert ("first_inference" in regressed) == worse
    assert line["cache_bytes_against"] > line["cache_bytes"] == 0
    assert ("caches of compilers: warm (" in line["text"]) == worse
    for each in line["rounds"]:
        assert (each["sides"]["a"]["first_seconds"] > COMPILES) == (caches == "cold")


@pytest.mark.slow
def test_each_side_of_an_upgrade_has_warm_caches_of_its_own(project: pytest.Pytester) -> None:
    line = run(project, "warm", "--mlms-aa")
    assert max(each["sides"]["b"]["first_seconds"] for each in line["rounds"]) < COMPILES
    assert line["cache_bytes_against"] == line["cache_bytes"] > 0
