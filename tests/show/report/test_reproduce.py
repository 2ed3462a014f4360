"""Command that runs one item again."""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import cast

import pytest

from pytest_mlms.options import OPTIONS
from pytest_mlms.show.report.reproduce import _KEPT, reproduce_command

NODE = "'digits/m.yaml::test_accuracy[onnxruntime-cpu]'"


def command(pytester: pytest.Pytester, *arguments: str, path: str = "digits/m.yaml") -> str:
    """Return the command for an item of a run with these arguments."""
    item = SimpleNamespace(
        config=pytester.parseconfig(*arguments),
        path=(pytester.path / path).resolve(),
        nodeid="digits/m.yaml::test_accuracy[onnxruntime-cpu]",
    )
    return reproduce_command(cast(pytest.Item, item))


def test_the_command_has_the_file_and_the_name_of_the_item(pytester: pytest.Pytester) -> None:
    assert command(pytester) == f"pytest {NODE}"


def test_options_that_decide_what_an_item_does_are_kept(
    pytester: pytest.Pytester,
) -> None:
    options = (
        "--mlms-stack=onnxruntime==1.30.0",
        "--mlms-stack=here",
        "--mlms-tolerance=2 %",
        "--mlms-trace=layer,model",
        "--mlms-strict",
    )
    assert shlex.split(command(pytester, *options))[1:-1] == [
        "--mlms-stack=onnxruntime==1.30.0",
        "--mlms-stack=here",
        "--mlms-tolerance=2%",
        "--mlms-trace=model,layer",
        "--mlms-strict",
    ]


@pytest.mark.parametrize("rounds", ["24", "11-24"])
def test_rounds_are_kept_as_they_are_typed(pytester: pytest.Pytester, rounds: str) -> None:
    option = f"--mlms-rounds={rounds}"
    assert command(pytester, option) == f"pytest {option} {NODE}"


def test_options_of_other_items_and_of_the_output_are_left_out(pytester: pytest.Pytester) -> None:
    options = ("--mlms-results=out", "--mlms-manifests=.", "-kaccuracy", "-x", "--junitxml=j.xml")
    pytester.path.joinpath("m.yaml").write_text("name: m")
    assert command(pytester, *options) == f"pytest {NODE}"


def test_the_stack_of_several_models_without_a_manifest_is_named(
    pytester: pytest.Pytester,
) -> None:
    several = ("--mlms-model=a.onnx", "--mlms-model=opencv=a.onnx")
    assert command(pytester, several[0]) == f"pytest {NODE}"
    assert command(pytester, *several) == f"pytest --mlms-stack=here {NODE}"
    chosen = command(pytester, *several, "--mlms-stack=opencv")
    assert chosen == f"pytest --mlms-stack=opencv {NODE}"


def test_folders_of_manifests_outside_of_the_root_are_named(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("m.yaml").write_text("name: m")
    found = command(pytester, "--mlms-manifests=.", path="../digits/m.yaml")
    assert found == f"pytest --mlms-manifests=. '../{NODE[1:]}"


def test_a_folder_that_declares_stacks_away_from_the_manifest_is_named(
    pytester: pytest.Pytester,
) -> None:
    for name in ("digits", "apart"):
        pytester.mkdir(name)
        declared = f"of_{name}: {{framework: onnxruntime, interpreter: current}}"
        (pytester.path / name / "stacks.yaml").write_text(declared)
    typed = ("--mlms-manifests=digits", "--mlms-manifests=apart")
    assert command(pytester, *typed) == f"pytest --mlms-manifests=apart {NODE}"


def test_a_folder_below_which_a_folder_beside_the_manifest_s_declares_stacks_is_named(
    pytester: pytest.Pytester,
) -> None:
    for name in ("models/b", "models/a"):
        (pytester.path / name).mkdir(parents=True)
    (pytester.path / "models/b/m.yaml").write_text("name: m")
    declared = "ort: {framework: onnxruntime, interpreter: current}"
    (pytester.path / "models/a/stacks.yaml").write_text(declared)
    found = command(pytester, "--mlms-manifests=models", path="models/b/m.yaml")
    assert found.startswith("pytest --mlms-manifests=models 'models/b/m.yaml::")
    (pytester.path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    found = command(pytester, "--mlms-manifests=models/b", path="models/b/m.yaml")
    assert found.startswith("pytest 'models/b/m.yaml::")


def test_the_places_of_the_options_of_pytest_are_kept(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("other.ini").write_text("[pytest]\n")
    team = ("-o", "mlms_push=https://portal.example", "-o", "mlms_history=team.sqlite")
    found = command(pytester, "-c", "other.ini", "-o", "mlms_processes=1", *team)
    assert found == f"pytest -cother.ini -omlms_processes=1 {NODE}"


def test_overrides_of_what_pytest_prints_and_of_addopts_that_no_file_has_are_left_out(
    pytester: pytest.Pytester,
) -> None:
    typed = ("-oaddopts=", "-olog_cli=true", "-ojunit_family=xunit1", "-opythonpath=src")
    assert command(pytester, *typed) == f"pytest -opythonpath=src {NODE}"
    pytester.makeini("[pytest]\nlog_level = INFO\n")
    assert command(pytester, *typed) == f"pytest -opythonpath=src {NODE}"
    pytester.makeini("[pytest]\naddopts = -x\n")
    assert command(pytester, *typed) == f"pytest -oaddopts= -opythonpath=src {NODE}"


LEFT_OUT = {
    *("results", "keep", "history", "push", "push_token_file", "model", "resume", "fleet"),
    *("worker_timeout", "benchmark_json", "bencher_json", "metrics", "report", "upgrade_report"),
}
"""Options that say where results go and how a run is distributed."""


def test_strict_markers_of_an_ini_file_are_left_out(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\naddopts = --strict-markers --strict-config\n")
    assert command(pytester) == f"pytest {NODE}"


def test_a_reproduction_has_nothing_that_pushes_records_or_removes() -> None:
    assert {option.name for option in OPTIONS} - LEFT_OUT == set(_KEPT)
