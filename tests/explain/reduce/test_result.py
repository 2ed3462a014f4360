"""Tests of the words of a reduction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_mlms.explain.reduce.result import Reduction, Size, result_lines, step_line
from pytest_mlms.explain.reduce.search import Step
from tests.support.reductions import bundle_of

STEPS = (Step(1, True, "", 0.1), Step(2, False, "", 0.1))
FOUND = Reduction(
    Size(9, 4),
    bundle=bundle_of(Path("model.onnx")),
    after=Size(2, 1),
    kinds=("Exp", "Neg"),
    steps=STEPS,
    minimal=True,
)


def test_a_step_says_whether_it_shows_the_failure() -> None:
    assert step_line(Step(2, True, "differs", 1.5)) == "  2 nodes     shows it    1.50 s  differs"
    assert step_line(Step(1, False, "fine", 0.0)) == "  1 node      doesn't     0.00 s  fine"


def test_a_minimal_model_needs_each_of_its_nodes() -> None:
    lines = list(result_lines(FOUND))
    assert lines[0] == "smallest model: 2 of 9 nodes (Exp, Neg), batch 1 of 4"
    assert lines[-1] == "  2 models run; without any one of its nodes, it doesn't show it"


def test_a_single_node_needs_no_explanation() -> None:
    lines = list(result_lines(replace(FOUND, after=Size(1, 1), kinds=("Exp",))))
    assert lines == ["smallest model: 1 of 9 nodes (Exp), batch 1 of 4", "  the outputs differ"]


def test_what_is_not_sure_of_it_is_told() -> None:
    undecided = list(result_lines(replace(FOUND, minimal=False)))
    assert undecided[-1] == "  2 models run; without some of its nodes, it is not decided"
    stopped = list(result_lines(replace(FOUND, complete=False)))
    assert "the search was stopped after 2 models" in stopped[-1]


def test_a_whole_model_is_no_smaller_one_and_why_is_told() -> None:
    whole = replace(FOUND, after=Size(9, 1), kinds=("Exp",) * 9)
    lines = list(result_lines(whole))
    assert lines[0] == "no part of the model is known to show it, so all 9 nodes stay: batch 1 of 4"
    assert "without any one of its nodes" in lines[-1]
    stopped = list(result_lines(replace(whole, complete=False)))
    assert stopped[0].startswith("smallest model: 9 of 9 nodes")


def test_without_a_model_the_reason_is_told() -> None:
    found = Reduction(Size(9, 4), reason="it agrees")
    assert list(result_lines(found)) == ["no smaller model: it agrees"]
