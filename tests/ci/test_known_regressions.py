"""Known regressions: the cases that are run, and how a run is held against its truth."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import onnx
import pytest

from pytest_mlms.author.loading import load_manifest
from tests.support.project import ROOT

sys.path.insert(0, str(ROOT / "ci"))

from known_cases import CASES, KnownCase, planted_cases
from known_models import JAX_MODELS, MODELS
from known_regressions import by_bare_loops, judge, page_lines, write_case

ALL = [*CASES, *planted_cases("plants")]


def line(verdict: str, quantity: str) -> dict[str, Any]:
    return {"verdict": verdict, "comparisons": [{"quantity": quantity, "verdict": verdict}]}


def case_of(name: str) -> KnownCase:
    (found,) = [case for case in CASES if case.name == name]
    return found


def test_cases_have_names_of_their_own_and_models_that_exist() -> None:
    assert len({case.name for case in ALL}) == len(ALL)
    assert {case.model for case in ALL} <= {*MODELS, *JAX_MODELS}


@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_the_same_each_time(tmp_path: Path, model: str) -> None:
    for name in ("one", "two"):
        MODELS[model](tmp_path / f"{name}.onnx")
    one, two = (onnx.load(str(tmp_path / f"{name}.onnx")).graph for name in ("one", "two"))
    assert one.node == two.node
    assert one.initializer == two.initializer


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.model in MODELS], ids=lambda case: case.name
)
def test_a_case_is_a_manifest_that_can_be_read(tmp_path: Path, case: KnownCase) -> None:
    write_case(case, tmp_path / "case")
    load_manifest(tmp_path / "case" / "model.yaml")


def test_a_run_is_right_by_verdict_quantity_and_exit_status() -> None:
    case = case_of("ort-gridsample")
    assert judge(case, line("REGRESSED", "latency"), "", 1, 3.0).right
    assert not judge(case, line("PASSED", "latency"), "", 0, 3.0).right
    assert not judge(case, line("REGRESSED", "latency"), "", 0, 3.0).right
    other = judge(case, line("REGRESSED", "peak_memory"), "", 1, 3.0)
    assert other.why_wrong == "expected by latency"


@pytest.mark.parametrize(
    ("ratios", "verdicts"),
    [
        ([1.2, 1.1] * 4, ["REGRESSED"]),
        ([0.8, 0.9] * 4, ["IMPROVED"]),
        ([1.0, 0.99] * 4, ["PASSED"]),
        ([1.2, 1.0] * 4, ["REGRESSED", "PASSED", "INCONCLUSIVE"]),
        pytest.param([1.0, 0.99, 1.01] * 5 + [1.3], ["PASSED"], id="one disturbed, equal"),
        pytest.param([1.2, 1.1, 1.15] * 5 + [1.0], ["REGRESSED"], id="one disturbed, slower"),
        pytest.param([1.3, 0.7] * 4, [], id="loops that tell nothing"),
    ],
)
def test_a_case_of_the_processor_is_held_against_bare_loops(
    ratios: list[float], verdicts: list[str]
) -> None:
    assert by_bare_loops(ratios) == verdicts
    case = case_of("ort-sign")
    for verdict in ("PASSED", "INCONCLUSIVE", "REGRESSED", "IMPROVED"):
        status = 1 if verdict == "REGRESSED" else 0
        run = judge(case, line(verdict, "latency"), "", status, 3.0, ratios)
        assert run.right == (verdict in verdicts)
    (row,) = page_lines([case], [run])
    assert "here, by bare loops" in row
    assert ("which leave the verdict open" in row) == (len(verdicts) > 1)


def test_a_case_of_the_processor_is_wrong_where_another_quantity_regressed() -> None:
    found = line("REGRESSED", "peak_memory")
    found["comparisons"].append({"quantity": "latency", "verdict": "PASSED"})
    assert not judge(case_of("ort-sign"), found, "", 1, 3.0, [1.0, 0.99] * 4).right


def test_a_case_of_the_processor_without_latency_is_wrong() -> None:
    run = judge(case_of("ort-sign"), {"verdict": "INVALID"}, "", 0, 3.0, [1.0, 0.99] * 4)
    assert "by latency, and found none" in run.why_wrong


def test_a_run_without_an_item_is_wrong() -> None:
    assert judge(case_of("ort-import"), {}, "1 skipped", 0, 3.0).verdict == "no item"


def test_what_must_be_told_is_looked_for() -> None:
    case = case_of("cv-numpy-pin")
    passed = line("PASSED", "latency")
    assert "'2.2.6'" in judge(case, passed, "numpy 2.4.6", 0, 3.0).why_wrong
    assert judge(case, passed, "numpy 2.4.6 -> 2.2.6", 0, 3.0).right


def test_the_table_names_what_changed_and_what_is_wrong() -> None:
    case = case_of("ort-gridsample")
    (row,) = page_lines([case], [judge(case, line("PASSED", "latency"), "", 0, 3.0)])
    assert "onnxruntime==1.22.0 → onnxruntime==1.23.0" in row
    assert "**PASSED**: expected REGRESSED" in row


def test_the_table_tells_of_wrong_runs_that_were_made_again() -> None:
    case = case_of("ort-gridsample")
    wrong = judge(case, line("PASSED", "latency"), "", 0, 3.0)
    right = judge(case, line("REGRESSED", "latency"), "", 1, 3.0)
    (row,) = page_lines([case], [right, wrong, wrong, right])
    assert "| REGRESSED (wrong in 2 of 3 runs before) |" in row
    (row,) = page_lines([case], [right, right])
    assert "| REGRESSED |" in row


def test_files_that_no_commit_has_are_measured_as_another_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells and runs of an edited gate stood on the page of the commit before it."""
    study = import_module("measured_commit")
    monkeypatch.setattr(study, "_ROOT", tmp_path)
    assert study.measured_commit() == "unknown"
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "gate.py").write_text("risk = 1")
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    commit = study.measured_commit()
    (tmp_path / "note").write_text("beside what is measured")
    assert study.measured_commit() == commit
    (tmp_path / "ci" / "gate.py").write_text("risk = 2")
    assert study.measured_commit() == f"{commit}-changed"
