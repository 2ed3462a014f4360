"""Stacks as results record them, and their declaration from these records."""

from __future__ import annotations

import json
import os
import platform
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.errors import MlmsError, StackError
from pytest_mlms.core.records import Stack
from pytest_mlms.provide.stacks.exact import RecordedStack
from pytest_mlms.provide.stacks.recreation import declared_for_run, recreate, write_stacks
from pytest_mlms.provide.stacks.schema import load_stacks
from pytest_mlms.provide.stacks.trust import EVERYTHING, Trust
from pytest_mlms.provide.stacks.variables import chosen_by_caller
from tests.support.histories import item_line

PYTHON = platform.python_version()


def recorded(*packages: str, **fields: Any) -> RecordedStack:
    """Return the stack of an item that had these packages; ``fields`` are those of its line."""
    declared = fields.pop("declared", {"requirements": ["onnxruntime"]})
    stack = {"name": "ort", "threads": 2, "cores": [], "declared": declared}
    launch = {"command": ["python"], "lock": list(packages)}
    line = item_line(1, stack=stack, launch=launch, python=PYTHON, **fields)
    return RecordedStack.of(line)


def declared_again(stack: RecordedStack, folder: Path) -> dict[str, Any]:
    """Return the entry of stacks.yaml that declares a recorded stack."""
    made = recreate("before", stack, folder / "cache", EVERYTHING)
    path = folder / "stacks.yaml"
    write_stacks(path, {"before": made})
    assert load_stacks(path)["before"].requirements == made.requirements
    entry: dict[str, Any] = json.loads(path.read_text())["before"]
    return entry


def test_a_stack_is_declared_by_its_exact_packages_with_its_own_keys(tmp_path: Path) -> None:
    declared = {
        "requirements": ["onnxruntime"],
        "pip_options": ["--prefer-binary"],
        "env": {"ORT_MODE": "2"},
        "env_passthrough": ["MY_*"],
        "libraries": {"libmpi.so.1": {"library": "libmpi.so.40", "package": "libopenmpi3"}},
    }
    stack = recorded("numpy==2.4.6", "onnxruntime==1.30.0", declared=declared)
    assert declared_again(stack, tmp_path) == {
        **declared,
        "framework": "onnxruntime",
        "python": PYTHON,
        "requirements": ["numpy==2.4.6", "onnxruntime==1.30.0"],
        "pip_options": ["--prefer-binary", "--no-deps"],
        "threads": 2,
    }


def test_a_container_is_the_image_that_ran(tmp_path: Path) -> None:
    image = "sha256:" + "a" * 64
    stack = recorded(f"mxnet:1 @ {image}", declared={"container": "mxnet:1"})
    assert declared_again(stack, tmp_path)["container"] == image


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"declared": {"env": {"HF_TOKEN": "***"}}}, "its variable HF_TOKEN; declare it as"),
        (
            {"device": "cuda:0", "machine": {"gpu_driver": "99.1"}},
            "the GPU's driver 99.1, and here is unknown; a driver can't be recreated",
        ),
    ],
)
def test_a_package_that_cannot_be_recreated_is_named(
    fields: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(StackError, match="stack ort can't be recreated: ") as refused:
        recreate("before", recorded("numpy==2.4.6", **fields), tmp_path, Trust())
    assert reason in str(refused.value)


def test_a_stack_whose_packages_are_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="its packages are not known: .*; measure it again"):
        recreate("before", recorded(), tmp_path, Trust())


def test_differences_are_listed_by_package() -> None:
    before = recorded("numpy==2.3.0", "onnxruntime==1.30.0", "six==1.0")
    after = recorded("numpy==2.4.6", "onnxruntime==1.30.0", "ml-dtypes==0.5")
    expected = ["ml-dtypes none → 0.5", "numpy 2.3.0 → 2.4.6", "six 1.0 → none"]
    assert before.differences(after) == expected
    assert before.identity != after.identity


def test_this_plugin_and_installers_are_no_difference() -> None:
    before = recorded("numpy==2.4.6", "pip==25.0", "pytest-mlms==0.1.0")
    after = recorded("numpy==2.4.6", "pip==26.0", "pytest-mlms==0.2.0")
    assert before.identity == after.identity
    assert not before.differences(after)


def test_the_variables_of_a_stack_are_a_difference() -> None:
    before = recorded("numpy==2.4.6", declared={"env": {"MODE": "1"}})
    after = recorded("numpy==2.4.6", declared={"env": {"MODE": "2"}})
    assert before.differences(after) == ["env of the stack"]


def test_packages_of_a_folder_are_developed() -> None:
    stack = recorded("numpy==2.4.6", "shop==1.0 # editable file:///src/shop")
    assert stack.developed == ["shop"]


def with_variables(monkeypatch: pytest.MonkeyPatch, here: dict[str, str]) -> None:
    for name in chosen_by_caller(os.environ, []):
        monkeypatch.delenv(name)
    for name, value in here.items():
        monkeypatch.setenv(name, value)


def inheriting(**variables: str) -> RecordedStack:
    launch = {"command": ["python"], "lock": ["onnxruntime==1.30.0"], "inherited": variables}
    return RecordedStack.of(item_line(1, launch=launch, python=PYTHON))


def test_the_variables_of_the_caller_are_set_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_variables(monkeypatch, {"KMP_BLOCKTIME": "0", "ORT_MODE": "1"})
    stack = inheriting(KMP_BLOCKTIME="0", ORT_MODE="1", TF_ENABLE_ONEDNN_OPTS="0")
    made = recreate("before", stack, tmp_path, Trust())
    assert dict(made.env) == {"TF_ENABLE_ONEDNN_OPTS": "0"}


def test_variables_that_no_container_or_agent_lacks_are_no_reason_to_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {"KMP_BLOCKTIME": "0", "MY_KEY": "1", "CUDA_VISIBLE_DEVICES": "1"}
    with_variables(monkeypatch, here)
    image = "sha256:" + "a" * 64
    container = recorded(f"mxnet:1 @ {image}", declared={"container": "mxnet:1"})
    made = recreate("before", replace(container, inherited={}), tmp_path, EVERYTHING)
    assert made.env == ()
    stack = inheriting(KMP_BLOCKTIME="0", MY_KEY="***")
    assert recreate("before", stack, tmp_path, Trust(), ["MY_*"]).env == ()


@pytest.mark.parametrize(
    ("recorded", "reason"),
    [
        ({}, "KMP_BLOCKTIME is set here, and it was measured without; unset it"),
        ({"KMP_BLOCKTIME": "0", "LD_PRELOAD": "x.so"}, "results set env: LD_PRELOAD"),
        ({"KMP_BLOCKTIME": "0", "MY_KEY": "***"}, "results don't keep the value of MY_KEY"),
    ],
)
def test_variables_that_agents_can_not_have_again_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: dict[str, str], reason: str
) -> None:
    with_variables(monkeypatch, {"KMP_BLOCKTIME": "0"})
    with pytest.raises(StackError, match=re.escape(reason)):
        recreate("before", inheriting(**recorded), tmp_path, Trust())


def test_a_variable_of_the_caller_is_a_difference() -> None:
    before, after = inheriting(ORT_MODE="1"), inheriting(TF_ENABLE_ONEDNN_OPTS="0")
    assert before.identity != after.identity
    expected = ["$ORT_MODE 1 → not set", "$TF_ENABLE_ONEDNN_OPTS not set → 0"]
    assert before.differences(after) == expected


def test_a_run_keeps_the_declaration_of_its_stacks_unless_one_has_a_secret(tmp_path: Path) -> None:
    stack = Stack("before", "labour", requirements=("labour==1",), env=(("A", "1"),))
    with declared_for_run({"before": stack}, tmp_path) as folder:
        pass
    assert load_stacks(Path(folder, "stacks.yaml"))["before"].env == (("A", "1"),)
    secret = replace(stack, env=(("TOKEN", "abc"),))
    with declared_for_run({"before": secret}, tmp_path) as place:
        assert load_stacks(Path(place, "stacks.yaml"))["before"].env == (("TOKEN", "abc"),)
    assert not Path(place).exists()
    texts = [file.read_text() for file in tmp_path.rglob("*") if file.is_file()]
    assert "abc" not in "".join(texts)


def test_a_run_whose_stacks_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / ".stacks").write_text("")
    stack = Stack("before", "labour", requirements=("labour==1",))
    with (
        pytest.raises(MlmsError, match=r"name another --mlms-results"),
        declared_for_run({"before": stack}, tmp_path),
    ):
        pass
