"""The command that finds the release which made an upgrade worse."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.cli.bisect import _words_of_upgrades
from pytest_mlms.core.records import Place, Stack
from pytest_mlms.decide.upgrade.culprit import (
    culprit_command,
    other_indexes,
    point_id,
    session_words,
    stack_words,
)
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.provide.stacks.declared import resolve
from tests.support.printed import mlms_options
from tests.support.upgrade_case import case_of, options


def test_the_command_survives_a_shell_whatever_the_manifest_is_called() -> None:
    point = point_id("my models/it's.yaml", "cuda:0", 8)
    command = culprit_command(point, "torch==2.1.0+cu118", "torch==2.2.0", "latency")
    assert shlex.split(command) == [
        "mlms",
        "culprit",
        "my models/it's.yaml::test_upgrade[cuda:0-b8]",
        "--good",
        "torch==2.1.0+cu118",
        "--bad",
        "torch==2.2.0",
        "--quantity",
        "latency",
    ]


OLD = Stack("old", "torch", requirements=("torch==2.1.0", "scipy[all]<2", "numpy==1.26.4"))
NEW = Stack("new", "torch", requirements=("torch==2.2.0", "scipy[all]<2", "numpy==2.2.6"))


def test_the_command_has_what_both_stacks_have_beside_the_release(tmp_path: Path) -> None:
    case = case_of(tmp_path, old=OLD, new=NEW)
    assert list(stack_words(case, tmp_path, tmp_path)) == ["--with", "scipy[all]<2"]
    declared = replace(NEW, place=Place(tmp_path / "stacks.yaml", 3))
    words = list(stack_words(replace(case, stack=declared), tmp_path, tmp_path))
    command = culprit_command("m.yaml", "torch==2.1.0", "torch==2.2.0", "crash", words)
    read = mlms_options(shlex.split(command))
    assert (read.stack, read.more) == ("new", ["scipy[all]<2"])


def test_the_command_names_the_folder_of_a_stack_that_is_declared_above_its_own(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    case = case_of(folder, old=OLD, new=NEW)
    declared = replace(case, stack=replace(NEW, place=Place(tmp_path / "stacks.yaml", 3)))
    below = tmp_path / "below"
    assert f"--mlms-manifests={tmp_path}" not in list(stack_words(declared, tmp_path, tmp_path))
    words = list(stack_words(declared, below, below))
    command = culprit_command("m.yaml", "torch==2.1.0", "torch==2.2.0", "crash", words)
    assert mlms_options(shlex.split(command)).manifests == [tmp_path]


def test_the_command_looks_below_the_root_and_not_in_the_folder_that_it_is_typed_in(
    tmp_path: Path,
) -> None:
    work = tmp_path / "work"
    (tmp_path / "models").mkdir()
    case = case_of(tmp_path / "models", old=OLD, new=NEW)
    beside = replace(case, stack=replace(NEW, place=Place(work / "stacks.yaml", 3)))
    assert "--mlms-manifests=." in stack_words(beside, tmp_path, work)
    above = replace(case, stack=replace(NEW, place=Place(tmp_path / "stacks.yaml", 3)))
    assert list(stack_words(above, tmp_path, work))[:3] == ["--stack", "new", "--with"]


def test_the_command_has_the_options_of_the_session_that_decide_an_upgrade(
    tmp_path: Path,
) -> None:
    asked = options(outputs=0, clock="wall", seed=3, predictors=(tmp_path / "own",))
    words = list(session_words(asked, tmp_path))
    command = culprit_command("m.yaml", "torch==2.1.0", "torch==2.2.0", "crash", words)
    read = mlms_options(shlex.split(command))
    assert (read.outputs, read.clock, read.seed, read.predictors) == (0, "wall", 3, [Path("own")])
    assert _words_of_upgrades(read) == ("--mlms-outputs=all", "--mlms-clock=wall", "--mlms-seed=3")


def test_the_command_names_a_stack_that_has_variables_though_it_is_not_declared(
    tmp_path: Path,
) -> None:
    new = replace(NEW, name="torch==2.2.0+A=1", env=(("A", "1"),))
    case = case_of(tmp_path, old=OLD, new=new)
    assert list(stack_words(case, tmp_path, tmp_path))[:2] == ["--stack", "torch==2.2.0+A=1"]
    secret = replace(new, name="torch==2.2.0+TOKEN=***", env=(("TOKEN", "1"),))
    assert "--stack" not in list(stack_words(replace(case, stack=secret), tmp_path, tmp_path))


def test_the_command_has_the_wheels_that_both_stacks_have_beside_the_release(
    tmp_path: Path,
) -> None:
    beside = f"{tmp_path}/job@2/beside-1.0-py3-none-any.whl"
    nightly = f"{tmp_path}/torch-2.3.0-cp311-cp311-linux_x86_64.whl"
    old = replace(OLD, requirements=(*OLD.requirements, beside, nightly))
    new = replace(NEW, framework="pytorch", requirements=(nightly, beside, "numpy"))
    case = case_of(tmp_path, old=old, new=new)
    words = list(stack_words(case, tmp_path, tmp_path))
    assert words == ["--with", beside, "--with", "numpy==1.26.4"]


@pytest.mark.parametrize("typed", ["old", "new"])
def test_the_command_has_the_versions_that_one_side_asks_for_and_the_other_leaves_open(
    tmp_path: Path, typed: str
) -> None:
    frameworks = find_predictors()
    texts = {"old": "onnxruntime==1.17.0", "new": "onnxruntime==1.18.0"}
    texts[typed] += " numpy>=2"
    sides = {side: resolve(text, {}, frameworks) for side, text in texts.items()}
    case = case_of(tmp_path, old=sides["old"], new=sides["new"])
    assert list(stack_words(case, tmp_path, tmp_path)) == ["--with", "numpy>=2"]
    (other,) = {"old", "new"} - {typed}
    sides[other] = resolve(f"{texts[other]} numpy<2", {}, frameworks)
    apart = replace(case, stack=sides["new"], against=sides["old"])
    assert list(stack_words(apart, tmp_path, tmp_path)) == []


def test_sides_that_ask_other_indexes_have_no_command(tmp_path: Path) -> None:
    private = replace(OLD, options=("--index-url=https://example.org/simple", "--pre"))
    case = case_of(tmp_path, old=private, new=NEW)
    assert other_indexes(case)
    also = replace(NEW, options=("--index-url=https://example.org/simple",))
    assert not other_indexes(replace(case, stack=also))


@pytest.mark.parametrize(("framework", "is_told"), [("shift", True), ("onnxruntime", False)])
def test_no_index_is_asked_for_a_framework_of_one_s_own_that_two_interpreters_have(
    tmp_path: Path, framework: str, is_told: bool
) -> None:
    old, new = (Stack(name, framework, interpreter=f"/{name}/python") for name in ("old", "new"))
    case = case_of(tmp_path, old=old, new=new)
    assert ("both interpreters" in other_indexes(case)) == is_told
    made = replace(case, stack=Stack("made", framework, requirements=(f"{framework}==2",)))
    assert not other_indexes(made)
