"""Tests of reductions with agents whose operators fail as a variable says."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.explain.bisect.search import Outcome
from pytest_mlms.explain.reduce.reduction import ReductionPlan, fewest_rows, reduce_bundle
from pytest_mlms.explain.reduce.result import Reduction, Size
from pytest_mlms.explain.reduce.search import Step
from pytest_mlms.explain.repro.bundle import BundleSide, Expectation
from tests.support.onnx_models import ModelBuilder
from tests.support.reductions import EXPECTED, ROWS, bundle_of, deep_network, sides_of

NODES = 33
CRASH = EXPECTED._replace(kind="crash", quantity="crash")


def reduced(
    folder: Path,
    fails: str,
    seconds: float = 60.0,
    expected: Expectation | None = None,
    command: Sequence[str] = (),
    network: Callable[[Path], Path] = deep_network,
) -> Reduction:
    if expected is None:
        expected = CRASH if fails.split(maxsplit=1)[0] in ("dies", "refuses") else EXPECTED
    steps: list[Step] = []
    plan = ReductionPlan(folder / "reduced", seconds, steps.append, lambda text: None, command)
    bundle = bundle_of(network(folder), expected)
    with sides_of(folder, fails).closing() as sides:
        found = reduce_bundle(bundle, sides, plan)
    assert list(found.steps) == steps
    return found


def test_an_operator_that_is_wrong_is_found_inside_and_left_alone(tmp_path: Path) -> None:
    found = reduced(tmp_path, "wrong Tanh")
    assert found.layer is not None
    assert (found.layer.name, found.layer.type) == ("Tanh_15", "Tanh")
    assert found.layer.difference == pytest.approx(0.5, rel=1e-6)
    assert found.layer.before == 0
    assert found.kinds == ("Tanh",)
    assert (found.before, found.after) == (Size(NODES, ROWS), Size(1, 1))
    assert found.minimal
    assert found.complete
    assert found.bundle is not None
    assert list(found.bundle.inputs) == ["a4"]
    model = onnx.load(str(found.bundle.files["graph"]))
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node] == ["Tanh"]
    assert found.bundle.expected.kind == "outputs"
    assert found.bundle.expected.ratio == pytest.approx(found.layer.multiple, rel=1e-6)


def test_outputs_that_are_wrong_now_and_then_are_asked_for_as_often_as_in_a_replay(
    tmp_path: Path,
) -> None:
    assert "does not show the failure here" in reduced(tmp_path, "seldom Tanh").reason
    found = reduced(tmp_path, "seldom Tanh", expected=EXPECTED._replace(calls=12))
    assert found.kinds == ("Tanh",)
    assert found.bundle is not None
    assert found.bundle.expected.calls == 12
    assert found.reason.endswith("as outputs differ now and then")


def test_a_fusion_that_is_wrong_is_found_though_no_inner_output_departs(tmp_path: Path) -> None:
    found = reduced(tmp_path, "fused Exp Sigmoid")
    assert found.layer is None
    assert "no inner output departs" in found.reason
    assert found.kinds == ("Exp", "Sigmoid")
    assert found.minimal


@pytest.mark.parametrize(
    "fails", [pytest.param("dies Tanh", marks=pytest.mark.slow), "refuses Tanh"]
)
def test_a_crash_is_reduced_to_the_operator_that_crashes(tmp_path: Path, fails: str) -> None:
    found = reduced(tmp_path, fails)
    assert found.kinds == ("Tanh",)
    assert found.bundle is not None
    assert found.bundle.expected.kind == "crash"
    if fails.startswith("refuses"):
        assert "no kernel for Tanh" in found.bundle.expected.summary


def short_network(folder: Path) -> Path:
    """Save a model of three nodes, of which one is Tanh."""
    model = ModelBuilder()
    model.add_input("x", "N", 4)
    for kind, read, written in (("Neg", "x", "a"), ("Tanh", "a", "t"), ("Neg", "t", "z")):
        model.add(kind, read, written)
    model.add_output("z", "N", 4)
    return model.save(folder)


@pytest.mark.slow
def test_a_longer_latency_is_reduced_by_the_verdict_of_the_gate(tmp_path: Path) -> None:
    slower = Expectation("ratio", "latency", "REGRESSED", "slower", unit="s", tolerance=0.03)
    found = reduced(tmp_path, "slow Tanh", 600.0, slower, network=short_network)
    assert found.kinds == ("Tanh",)
    assert found.bundle is not None
    expected = found.bundle.expected
    assert (expected.kind, expected.quantity, expected.tolerance) == ("ratio", "latency", 0.03)
    assert expected.low is not None
    assert expected.low > 1.03
    assert found.steps[-1].reason.startswith("latency ×")


IS_THERE = """\
import sys, numpy, onnx
model, inputs, *wanted = sys.argv[1:]
names = {value.name for value in onnx.load(model).graph.input}
assert names == set(numpy.load(inputs)), names
kinds = {node.op_type for node in onnx.load(model).graph.node}
print("\\x1b[31mit has", *sorted(kinds), "\\x1b[0m")
sys.exit(set(wanted) <= kinds)
"""


def check(folder: Path, code: str, *words: str) -> list[str]:
    """Return a command that runs some code."""
    (folder / "check.py").write_text(code)
    return [sys.executable, str(folder / "check.py"), "{model}", "{inputs}", *words]


def test_any_command_is_a_judge_by_its_status(tmp_path: Path) -> None:
    command = check(tmp_path, IS_THERE, "Exp", "Sigmoid")
    found = reduced(tmp_path, "nothing", command=command)
    assert found.kinds == ("Exp", "Sigmoid")
    assert found.minimal
    assert found.after == Size(2, 1)
    assert found.bundle is not None
    assert found.bundle.expected.summary == "status 1: it has Exp Sigmoid"


def test_a_command_that_finds_nothing_or_can_not_say_shows_no_failure(tmp_path: Path) -> None:
    for status in (0, 125):
        command = check(tmp_path, f"raise SystemExit({status})")
        found = reduced(tmp_path, "nothing", command=command)
        assert found.bundle is None
        reason = f"the whole model does not show the failure here: status {status}"
        assert found.reason == reason


def test_a_command_may_judge_the_one_stack_of_a_failure_and_end_by_a_signal(tmp_path: Path) -> None:
    bundle = replace(bundle_of(short_network(tmp_path)), old=None)
    command = check(tmp_path, "import os; os.kill(os.getpid(), 11)")[:2]  # the model comes last
    plan = ReductionPlan(tmp_path / "r", 60, lambda step: None, lambda text: None, command)
    with sides_of(tmp_path, "nothing").closing() as sides:
        found = reduce_bundle(bundle, sides, plan)
    assert found.bundle is not None
    assert len(found.kinds) == 1
    assert found.bundle.expected.summary == "killed by SIGSEGV"


def test_a_program_that_a_script_lacks_is_no_failure_of_any_model(tmp_path: Path) -> None:
    with pytest.raises(MlmsError, match="program can't be run: status 127: .*no-such-program"):
        reduced(tmp_path, "nothing", command=["sh", "-c", "no-such-program $0"])


def test_a_signal_without_a_name_is_told_by_its_number(tmp_path: Path) -> None:
    command = check(tmp_path, "import os; os.kill(os.getpid(), 40)")
    found = reduced(tmp_path, "nothing", command=command)
    assert found.bundle is not None
    assert found.bundle.expected.summary == "killed by signal 40"


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MlmsError, match="--check no-such-program can't be run: No such file"):
        reduced(tmp_path, "nothing", command=["no-such-program"])


@pytest.mark.parametrize(
    ("fails", "here"), [("dies Tanh", "status 3"), ("refuses Tanh", "NotImplementedError")]
)
def test_another_crash_than_that_of_the_bundle_is_not_reduced(
    tmp_path: Path, fails: str, here: str
) -> None:
    found = reduced(tmp_path, fails, expected=CRASH._replace(crash="SIGSEGV"))
    assert found.bundle is None
    assert f"another failure, {here} and not SIGSEGV" in found.reason


def test_a_failure_that_is_not_shown_here_is_not_reduced(tmp_path: Path) -> None:
    found = reduced(tmp_path, "wrong Cosh")
    assert found.bundle is None
    assert "the whole model does not show the failure here" in found.reason
    assert not found.steps


def test_without_a_budget_nothing_is_found_and_it_says_so(tmp_path: Path) -> None:
    found = reduced(tmp_path, "fused Exp Sigmoid", seconds=0.0)
    assert found.bundle is None
    assert not found.complete
    assert "the budget" in found.reason


def test_reduced_inputs_are_what_the_old_side_computed(tmp_path: Path) -> None:
    found = reduced(tmp_path, "wrong Sigmoid")
    assert found.bundle is not None
    (array,) = found.bundle.inputs.values()
    assert array.shape == (1, 4)
    assert np.abs(np.log(array)).max() < 1.001  # an exponential of a tanh


def test_what_cannot_be_reduced_is_refused_with_advice(tmp_path: Path) -> None:
    bundle = bundle_of(deep_network(tmp_path))
    memory = EXPECTED._replace(kind="ratio", quantity="peak_memory")
    torch = {"graph": tmp_path / "model.pt2"}
    plan = ReductionPlan(tmp_path, 1, lambda step: None, lambda text: None)
    cases = [
        (replace(bundle, old=None), "name an item of an upgrade"),
        (replace(bundle, files=torch), "export the model as ONNX"),
        (replace(bundle, expected=memory), "the failure is of peak_memory"),
        (replace(bundle, expected=CRASH._replace(at_exit=True)), "at its exit.*judge by --check"),
    ]
    for refused, reason in cases:
        with pytest.raises(MlmsError, match=reason):
            reduce_bundle(refused, sides_of(tmp_path, "nothing"), plan)


def test_the_names_in_a_bundle_are_no_paths_of_logs(tmp_path: Path) -> None:
    bundle = bundle_of(deep_network(tmp_path))
    sides = [BundleSide(name, "operators", "", ()) for name in ("/tmp/somebody", "../somebody")]
    bundle = replace(bundle, old=sides[0], new=sides[1])
    sides_module = import_module("pytest_mlms.explain.reduce.sides")
    made = sides_module.sides_of(bundle, tmp_path / "cache", tmp_path, lambda step: None)
    assert {side.log.parent for side in made} == {tmp_path}
    assert made.old.log != made.new.log


def test_ctrl_c_while_rows_are_left_out_keeps_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[int] = []

    def interrupt_the_second(
        batch: int, departing: Sequence[int], test: Callable[[Sequence[int]], Outcome]
    ) -> tuple[int, ...]:
        called.append(batch)
        if len(called) == 2:  # the first is of the whole model
            raise KeyboardInterrupt
        return fewest_rows(batch, departing, test)

    monkeypatch.setattr("pytest_mlms.explain.reduce.reduction.fewest_rows", interrupt_the_second)
    found = reduced(tmp_path, "wrong Tanh")
    assert len(called) == 2
    assert found.kinds == ("Tanh",)
    assert found.bundle is not None
    assert not found.complete
