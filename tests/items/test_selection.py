"""Cases that a session runs, and baselines from a lock file."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_mlms.config import Config
from pytest_mlms.core.records import Kind, Stack
from pytest_mlms.items.selection import StackSelection, select_cases
from pytest_mlms.manifest.load import load
from pytest_mlms.session import Session
from tests.support.project import MANIFEST, Project

MXNET = Stack("mxnet-1.9", "mxnet")
ANY = Stack("py311", "", interpreter="/opt/python", several=True)


def selection(chosen: Sequence[Stack] = (), **declared: Stack) -> StackSelection:
    here = Stack("here", "", interpreter="current")
    return StackSelection(chosen, (), {"here": here, **declared}, ["onnxruntime", "mxnet"])


def ids(pytester: pytest.Pytester, kind: Kind, *arguments: str) -> list[str]:
    config = Config.from_pytest(pytester.parseconfig(*arguments))
    session = Session(config, pytester.path / "run")
    return [case.id for case in select_cases(load(MANIFEST), kind, session)]


def names(stacks: Sequence[Stack]) -> list[str]:
    return [stack.name for stack in stacks]


def test_without_a_chosen_stack_onnxruntime_runs_here() -> None:
    assert names(selection().candidates("onnxruntime")) == ["here"]
    assert selection().candidates("mxnet") == []


def test_a_chosen_stack_runs_the_model_of_its_framework() -> None:
    assert names(selection([MXNET]).candidates("mxnet")) == ["mxnet-1.9"]
    assert selection([MXNET]).candidates("onnxruntime") == []


def reference_name(selected: StackSelection, framework: str) -> str | None:
    stack = selected.reference(framework)
    return stack.name if stack else None


def test_the_reference_runs_in_a_chosen_stack_if_there_is_one() -> None:
    assert reference_name(selection([MXNET]), "mxnet") == "mxnet-1.9"


def test_the_reference_runs_in_a_declared_stack_of_its_framework() -> None:
    assert reference_name(selection(mxnet=MXNET), "mxnet") == "mxnet-1.9"


def test_onnxruntime_as_the_reference_runs_where_pytest_does() -> None:
    declared = Stack("onnxruntime", "onnxruntime", requirements=("onnxruntime==1.20",))
    assert reference_name(selection(onnxruntime=declared), "onnxruntime") == "here"


def test_an_interpreter_that_may_lack_the_reference_is_not_taken_for_it() -> None:
    assert reference_name(selection([ANY]), "onnxruntime") == "here"


def test_a_performance_item_has_a_case_for_each_size_and_scenario(
    pytester: pytest.Pytester,
) -> None:
    assert len(ids(pytester, "performance")) == 6
    assert ids(pytester, "accuracy") == ["onnxruntime-cpu"]


def test_without_a_baseline_there_are_no_upgrades(pytester: pytest.Pytester) -> None:
    assert ids(pytester, "upgrade") == []


def test_an_upgrade_is_from_the_baseline_to_each_other_stack(pytester: pytest.Pytester) -> None:
    arguments = ["--mlms-stack=onnxruntime==1.20", "--mlms-against=here"]
    found = ids(pytester, "upgrade", *arguments)
    assert len(found) == 3
    assert found[0].endswith("-vs-onnxruntime-cpu-b1")


def test_a_stack_is_not_an_upgrade_of_itself_unless_that_is_asked_for(
    pytester: pytest.Pytester,
) -> None:
    assert ids(pytester, "upgrade", "--mlms-against=here") == []
    assert ids(pytester, "upgrade", "--mlms-aa") == [
        "onnxruntime-aa-cpu-b1",
        "onnxruntime-aa-cpu-b8",
        "onnxruntime-aa-cpu-b64",
    ]


def test_hosts_are_compared_by_visits_of_performance_items_alone(
    pytester: pytest.Pytester,
) -> None:
    arguments = ["--mlms-stack=driver=570", "--mlms-against=driver=560"]
    accuracy = ids(pytester, "accuracy", *arguments)
    performance = ids(pytester, "performance", *arguments)
    visits = len(performance) // (2 * 6)
    assert len(accuracy) == 2
    assert visits >= 2
    assert len(performance) == visits * 2 * 6


@pytest.fixture
def unlocked(project: Project) -> Project:
    """A project whose lock file has no item."""
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    (project.path / "mlms.lock").write_text("format = 1\n")
    return project


def test_an_item_that_is_not_locked_is_skipped_with_a_warning(unlocked: Project) -> None:
    result = unlocked.run("--mlms-against=lock", "-rs")
    result.assert_outcomes(skipped=1, warnings=1)
    text = "onnxruntime on cpu is not locked in mlms.lock; run it without --mlms-against"
    result.stdout.fnmatch_lines([f"*MlmsNotLocked: digits-cnn onnxruntime-vs-lock-cpu-b8: {text}*"])
    assert unlocked.items()[0]["against"]["name"] == "lock"


def test_an_item_that_is_not_locked_fails_under_strict(unlocked: Project) -> None:
    result = unlocked.run("--mlms-against=lock", "--mlms-strict")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*: onnxruntime on cpu is not locked in mlms.lock; run it *"])


def test_a_damaged_lock_file_is_an_error_of_usage(unlocked: Project) -> None:
    (unlocked.path / "mlms.lock").write_text("format = 1\n=======\n")
    result = unlocked.run("--mlms-against=lock")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*mlms.lock:2: has a conflict of a merge; *"])
