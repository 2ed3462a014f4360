"""Items that share outputs and agents, with real agents."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.records import Kind
from pytest_mlms.items.item_outputs import ItemOutputs
from pytest_mlms.measure.evaluate.inputs import Inputs
from pytest_mlms.measure.evaluate.kept_outputs import KeptOutputs, outputs_key
from pytest_mlms.provide.cases import Case
from pytest_mlms.session import Session
from tests.support.cases import digits_case
from tests.support.project import PREDICTORS, Project

MODEL = """
  - framework: {name}
    graph: digits_cnn.onnx
    sha256: 237cb7d43b2c3390032ae68b3c9f9d5f570a7620e6614908a597254d68566f63
    options: {options}
"""

ACCURACY = "manifests/digits.yaml::test_accuracy[same-cpu]"
AGREEMENT = "manifests/digits.yaml::test_agreement[same-cpu]"
FILES = ("predictions.csv", "probabilities.npz", "differences.csv", "outputs.npz")


class TwoFrameworks:
    """The digits network by "plain" and by "same", which is compared with it: 40 inputs in 16s."""

    def __init__(self, project: Project, **options: Any) -> None:
        self.project = project
        predictors = project.path / "more"
        predictors.mkdir()
        (predictors / "same.py").write_text((PREDICTORS / "plain.py").read_text())
        project.edit("[1, 8, 64]", "[16]")
        head, models_and_rest = project.manifest.read_text().split("models:")
        _, rest = models_and_rest.split("inputs:")
        plain = MODEL.format(name="plain", options={})
        same = MODEL.format(name="same", options=options)
        project.manifest.write_text(f"{head}models:{plain}{same}inputs:{rest}")
        project.set_thresholds("  agreement: {reference: plain}")
        data = np.load(project.folder / "digits_test.npz")
        few = project.path / "few.npz"
        np.savez(few, image=data["image"][:40], label=data["label"][:40])
        project.replace_file("digits_test.npz", few.read_bytes())

    def run(self, *arguments: str) -> pytest.RunResult:
        return self.project.run("--mlms-predictors=more", *arguments)

    def agents(self) -> list[str]:
        """Return the frameworks of the agents that the last run started."""
        logs = (self.project.results / "agents").iterdir()
        return sorted(log.name.partition("-")[0] for log in logs)

    def items(self) -> dict[str, dict[str, Any]]:
        """Return the items of the last run by node id."""
        return {item["nodeid"]: item for item in self.project.items()}

    def files(self, names: Sequence[str] = FILES) -> dict[str, bytes]:
        """Return the content of artifacts of the last run, by node id and name."""
        found = {}
        for item in self.project.items():
            for name in names:
                if name in item["artifacts"]:
                    path = self.project.results / item["artifacts"][name]
                    found[f"{item['nodeid']} {name}"] = path.read_bytes()
        return found


@pytest.fixture
def two(project: Project) -> TwoFrameworks:
    return TwoFrameworks(project)


WITHOUT_SPEED = "accuracy or agreement"


def test_outputs_are_computed_once_for_accuracy_and_agreement_of_a_stack(
    two: TwoFrameworks,
) -> None:
    two.run("-k", WITHOUT_SPEED).assert_outcomes(passed=3)
    assert two.agents() == ["plain", "same"]
    items = two.items()
    agreement = items[AGREEMENT]
    accuracy = items[ACCURACY]
    assert agreement["outputs_of"] == ACCURACY
    assert agreement["logs"] != accuracy["logs"]
    assert set(accuracy["logs"]) < set(agreement["logs"])
    for field in ("launch", "versions", "python", "executable", "device_used"):
        assert agreement[field] == accuracy[field]
    assert "outputs_of" not in accuracy


def test_the_agreement_may_be_first(two: TwoFrameworks) -> None:
    two.run(AGREEMENT, ACCURACY).assert_outcomes(passed=2)
    assert two.agents() == ["plain", "same"]
    assert two.items()[ACCURACY]["outputs_of"] == AGREEMENT


def test_one_worker_gets_the_items_that_share_outputs(two: TwoFrameworks) -> None:
    two.run("-n2", "-k", WITHOUT_SPEED).assert_outcomes(passed=3)
    items = two.items()
    assert items[AGREEMENT]["worker"] == items[ACCURACY]["worker"]
    assert items[AGREEMENT]["outputs_of"] == ACCURACY


@pytest.mark.slow
@pytest.mark.parametrize("order", [(ACCURACY, AGREEMENT), (AGREEMENT, ACCURACY)])
def test_shared_outputs_give_the_same_results_to_the_bit(
    two: TwoFrameworks, order: tuple[str, str]
) -> None:
    expected = {}
    estimates = {}
    for nodeid in order:
        two.run(nodeid).assert_outcomes(passed=1)
        expected.update(two.files())
        estimates[nodeid] = two.items()[nodeid]["estimates"]
    assert len(expected) == len(FILES)
    two.run(*order).assert_outcomes(passed=2)
    assert two.files() == expected
    assert {nodeid: item["estimates"] for nodeid, item in two.items().items()} == estimates


def test_an_agreement_that_fails_on_shared_outputs_shows_the_first_layer(
    project: Project,
) -> None:
    two = TwoFrameworks(project, off="conv2d_2")
    result = two.run("-k", WITHOUT_SPEED)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["  first layer that departs: 'conv2d_2', by up to *"])
    assert two.items()[AGREEMENT]["outputs_of"] == ACCURACY


def test_items_of_speed_start_agents_of_their_own(two: TwoFrameworks) -> None:
    two.project.edit("[single_stream, offline]", "[offline]")
    two.run("--mlms-processes=2", "-k", "same-cpu").assert_outcomes(passed=3)
    assert two.agents() == ["plain", "same", "same", "same"]


def test_accuracy_without_agreement_keeps_no_outputs(two: TwoFrameworks) -> None:
    two.project.set_thresholds("  top1: {min: 0}")
    two.run("-k", "accuracy").assert_outcomes(passed=2)
    assert two.agents() == ["plain", "same"]
    assert not any("outputs_of" in item for item in two.project.items())


OWN_TESTS = """
import os, pytest, signal

pytestmark = pytest.mark.mlms(manifest="manifests/digits.yaml")
pids = []

def test_first(mlms_predictor):
    pids.append(mlms_predictor.agent.pid)

def test_shares_it_and_crashes(mlms_predictor, mlms_dataset):
    assert mlms_predictor.agent.pid == pids[0]
    os.kill(pids[0], signal.SIGKILL)
    mlms_predictor.predict(mlms_dataset.batch([0] * 16))

def test_has_another(mlms_predictor, mlms_dataset):
    assert mlms_predictor.agent.pid != pids[0]
    mlms_predictor.predict(mlms_dataset.batch([0] * 16))

def test_fresh_is_never_shared(mlms_predictor_factory):
    with mlms_predictor_factory() as first:
        pids.append(first.agent.pid)
    with mlms_predictor_factory() as second:
        assert second.agent.pid not in pids
"""


def test_a_crashed_agent_costs_its_item_only(two: TwoFrameworks) -> None:
    two.project.pytester.makepyfile(test_own=OWN_TESTS)
    result = two.run("test_own.py", "-k", "plain")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*test_shares_it_and_crashes* killed by SIGKILL*"])
    assert two.agents() == ["plain"] * 4


def without_framework(two: TwoFrameworks) -> None:
    """Let the predictor "same" import what isn't there."""
    predictor = two.project.path / "more" / "same.py"
    predictor.write_text("import no_such_framework\n")


def other_interpreter(folders: pytest.TempPathFactory) -> Path:
    path = folders.mktemp("bin") / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    path.chmod(0o755)
    return path


def lines_of(result: pytest.RunResult, text: str) -> list[str]:
    return [line for line in result.outlines if text in line]


def test_no_reference_is_computed_and_no_file_read_for_a_framework_that_is_missing_here(
    two: TwoFrameworks,
) -> None:
    without_framework(two)
    head, same = two.project.manifest.read_text().split("framework: same")
    missing = same.replace("digits_cnn.onnx", "not_there.onnx", 1)
    two.project.manifest.write_text(f"{head}framework: same{missing}")
    two.project.edit("[single_stream, offline]", "[offline]")
    result = two.run("-k", "same-cpu", "-rs")
    result.assert_outcomes(skipped=3)
    text = "same can't be imported in stack here"
    assert len(lines_of(result, text)) == 1
    assert not (two.project.results / "agents").exists()


def test_no_file_is_read_for_a_stack_whose_python_is_missing(two: TwoFrameworks) -> None:
    stack = "old: {framework: same, python: '3.99', requirements: [numpy]}\n"
    (two.project.path / "stacks.yaml").write_text(stack)
    two.project.edit("digits_cnn.onnx", "not_there.onnx")
    result = two.run("--mlms-stack=old", "-k", WITHOUT_SPEED, "-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED *stack old: *3.99*"])


def test_no_reference_is_computed_for_a_framework_that_another_interpreter_lacks(
    two: TwoFrameworks, tmp_path_factory: pytest.TempPathFactory
) -> None:
    without_framework(two)
    link = other_interpreter(tmp_path_factory)
    result = two.run(f"--mlms-stack={link}", "-k", "agreement and same", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED *same can't be imported in stack *"])
    assert two.agents() == ["same"]


def test_a_framework_that_another_interpreter_has_is_looked_for_once(
    two: TwoFrameworks, tmp_path_factory: pytest.TempPathFactory
) -> None:
    link = other_interpreter(tmp_path_factory)
    predictor = two.project.path / "more" / "same.py"
    code = predictor.read_text()
    predictor.write_text(f"import sys\nsys.stderr.write('importing\\n')\n{code}")  # it has a log
    arguments = (f"--mlms-stack={link}", "-k")
    two.run(*arguments, "same and (accuracy or agreement)").assert_outcomes(passed=2)
    assert two.agents() == ["plain", "same"]
    two.run(*arguments, "same and agreement").assert_outcomes(passed=1)
    assert two.agents() == ["plain", "same", "same"]


def changed(case: Case, **evaluate: Any) -> Case:
    """Return a case whose manifest evaluates otherwise."""
    manifest = case.loaded.manifest
    other = manifest.evaluate.model_copy(update=evaluate)
    loaded = replace(case.loaded, manifest=manifest.model_copy(update={"evaluate": other}))
    return replace(case, loaded=loaded)


def with_steps(case: Case, *names: str) -> Case:
    """Return a case whose first input has only these steps."""
    manifest = case.loaded.manifest
    first, *others = manifest.inputs
    kept = [step for step in first.steps if step.name in names]
    inputs = [first.model_copy(update={"steps": kept}), *others]
    loaded = replace(case.loaded, manifest=manifest.model_copy(update={"inputs": inputs}))
    return replace(case, loaded=loaded)


def with_options(case: Case, **options: Any) -> Case:
    return replace(case, model=case.model.model_copy(update={"options": options}))


def test_outputs_of_other_settings_are_never_shared() -> None:
    case = digits_case("accuracy")
    cases = [
        case,
        replace(case, batch_size=3),
        replace(case, device="cuda:1"),
        replace(case, stack=replace(case.stack, env=(("OMP_WAIT_POLICY", "passive"),))),
        replace(case, stack=replace(case.stack, threads=3)),
        changed(case, threads=2),
        with_steps(case, "resize"),
        with_options(case, optimization="none"),
        with_options(case, fast=True),
        with_options(case, fast=1),
    ]
    keys = {outputs_key(case) for case in cases}
    assert len(keys) == len(cases)
    assert outputs_key(replace(case, kind="agreement")) == outputs_key(case)


def item_outputs(session: Session, kind: Kind, execution_count: int = 1) -> ItemOutputs:
    item: Any = SimpleNamespace(nodeid=f"test_{kind}", execution_count=execution_count)
    recorder: Any = SimpleNamespace(ran_on=lambda predictor: None, note=lambda **fields: None)
    opening: Any = None
    case = replace(digits_case("accuracy"), kind=kind)
    return ItemOutputs.of(case, session, recorder, opening, item)


def test_an_item_that_runs_again_computes_its_outputs_again(tmp_path: Path) -> None:
    config: Any = None
    session = Session(config, tmp_path)
    predictor: Any = None
    inputs = Inputs(None, {}, 64)
    arrays = {"logits": np.zeros((2, 10))}
    kept = KeptOutputs(arrays, inputs, predictor, "test_accuracy", "accuracy")
    session.outputs.keep(outputs_key(digits_case("accuracy")), kept)
    assert item_outputs(session, "agreement").all(inputs) == arrays
    for kind, count in (("accuracy", 1), ("agreement", 2)):
        with pytest.raises(TypeError, match="not callable"):  # it would start an agent
            item_outputs(session, kind, count)  # type: ignore[arg-type]
