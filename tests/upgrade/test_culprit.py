"""The command that finds the release which made an upgrade worse."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from pytest_mlms.records import Place, Stack
from pytest_mlms.upgrade.culprit import culprit_command, point_id, stack_words
from tests.support.printed import mlms_options
from tests.support.upgrade_case import case_of


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
    assert list(stack_words(case)) == ["--with", "scipy[all]<2"]
    declared = replace(NEW, place=Place(Path("stacks.yaml"), 3))
    words = list(stack_words(replace(case, stack=declared)))
    command = culprit_command("m.yaml", "torch==2.1.0", "torch==2.2.0", "crash", words)
    options = mlms_options(shlex.split(command))
    assert (options.stack, options.more) == ("new", ["scipy[all]<2"])


def test_the_command_names_a_stack_that_has_variables_though_it_is_not_declared(
    tmp_path: Path,
) -> None:
    new = replace(NEW, name="torch==2.2.0+A=1", env=(("A", "1"),))
    case = case_of(tmp_path, old=OLD, new=new)
    assert list(stack_words(case))[:2] == ["--stack", "torch==2.2.0+A=1"]
    secret = replace(new, name="torch==2.2.0+TOKEN=***", env=(("TOKEN", "1"),))
    assert "--stack" not in list(stack_words(replace(case, stack=secret)))


def test_the_command_has_the_wheels_that_both_stacks_have_beside_the_release(
    tmp_path: Path,
) -> None:
    beside = f"{tmp_path}/job@2/beside-1.0-py3-none-any.whl"
    nightly = f"{tmp_path}/torch-2.3.0-cp311-cp311-linux_x86_64.whl"
    old = replace(OLD, requirements=(*OLD.requirements, beside, nightly))
    new = replace(NEW, framework="pytorch", requirements=(nightly, beside, "numpy"))
    case = case_of(tmp_path, old=old, new=new)
    assert list(stack_words(case)) == ["--with", beside]
