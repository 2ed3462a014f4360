"""Sides have exact packages that others can install, without places and secrets of this machine."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.explain.repro.software import ExactSide, SideSource, new_side, old_side
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.provide.stacks.trust import EVERYTHING, Trust
from tests.support.bundles import PREDICTOR
from tests.support.result_lines import line_of
from tests.support.wheels import write_wheel


def side_of(packages: list[str], options: list[str] | None = None, **fields: Any) -> ExactSide:
    line = line_of(1, "FAILED", framework="skewed", python="3.11.7", machine={})
    line["stack"] = {"name": "s", "declared": {"pip_options": options or []}}
    line["launch"] = {"lock": packages, "command": [sys.executable]}
    return new_side(source({**line, **fields}))


def source(line: dict[str, Any], trust: Trust = EVERYTHING, **fields: Any) -> SideSource:
    """Return the source of a side of a run that the operator trusts."""
    facts = {"predictor": PREDICTOR, "cache": Path("no-cache"), **fields}
    return SideSource(line, trust=trust, **facts)


def test_packages_are_those_of_the_lock_without_installers() -> None:
    found = side_of(["numpy==2.2.0", "pip==24.0", "skewed==1.0"]).side
    assert found.requirements == ("numpy==2.2.0", "skewed==1.0")
    assert (found.name, found.python) == ("skewed 1.0", "3.11.7")


def test_a_wheel_of_a_local_folder_comes_along_without_the_folder(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "skewed", "1.0")
    found = side_of(["skewed==1.0"], [f"--find-links={tmp_path}"])
    assert found.wheels == (wheel,)
    assert found.side.options == ()


def test_a_wheel_that_was_installed_by_its_path_comes_along(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "skewed", "1.0")
    found = side_of([f"skewed @ file://{wheel}"])
    assert found.side.requirements == ("skewed==1.0",)
    assert found.wheels == (wheel,)


def test_an_index_stays_and_one_with_a_password_is_refused() -> None:
    address = "--extra-index-url=https://download.example/whl"
    assert side_of(["skewed==1.0"], [address, "--no-cache-dir"]).side.options == (address,)
    with pytest.raises(MlmsError, match="has a secret") as caught:
        side_of(["skewed==1.0"], ["--index-url=https://me:hidden@example/simple"])
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("key", ["serve", "endpoint"])
def test_a_stack_whose_models_are_on_a_server_has_no_bundle(key: str) -> None:
    """It was told to write 'serve' into its stack, which has it."""
    with pytest.raises(MlmsError, match="stack s has its models on a server; a bundle has none"):
        side_of(["skewed==1.0"], stack={"name": "s", "declared": {key: "http://localhost"}})


def test_variables_that_mean_the_same_anywhere_are_kept_and_others_only_named() -> None:
    declared = {"env": {"ANY": "conspicuous", "OMP_WAIT_POLICY": "PASSIVE"}}
    inherited = {"JAX_ENABLE_X64": "1", "GOMP_CPU_AFFINITY": "3", "LD_PRELOAD": "conspicuous"}
    launch = {"lock": ["skewed==1.0"], "command": [sys.executable], "inherited": inherited}
    found = side_of([], stack={"name": "s", "declared": declared}, launch=launch)
    assert found.side.variables == (("JAX_ENABLE_X64", "1"), ("OMP_WAIT_POLICY", "PASSIVE"))
    assert "conspicuous" not in repr(found)
    for name, note in zip(["ANY", "GOMP_CPU_AFFINITY", "LD_PRELOAD"], found.notes, strict=True):
        assert note == f"It was measured with the variable {name}: set it for a replay, too."


def test_a_baseline_has_the_variables_of_its_declared_stack() -> None:
    line = line_of(1, "REGRESSED", framework="skewed", kind="upgrade", machine={})
    line["against"] = {"name": "old", "threads": 1}
    line["launch_against"] = {"lock": ["skewed==1.0"], "command": [sys.executable]}
    stack = Stack("old", "skewed", requirements=("skewed",), env=(("MKL_CBWR", "COMPATIBLE"),))
    found = old_side(source(line, Trust(stacks=(stack,))))
    assert found.side.variables == (("MKL_CBWR", "COMPATIBLE"),)


def test_an_agent_that_is_a_program_is_refused_without_running_it() -> None:
    with pytest.raises(MlmsError, match="an agent of it is a program of its own"):
        side_of([f"program agent @ sha256={64 * 'a'}"], python="")


def test_the_image_of_a_container_is_refused() -> None:
    with pytest.raises(MlmsError, match="is the image of a container"):
        side_of([f"tool:1 @ sha256:{'0' * 64}"])


def test_of_the_interpreter_that_runs_pytest_only_what_the_predictor_needs_is_listed() -> None:
    installed = importlib.metadata.distributions()
    lines = sorted({f"{one.metadata['Name']}=={one.version}" for one in installed})
    line = line_of(1, "FAILED", python=platform.python_version(), machine={})
    line["launch"] = {"packages": lines, "command": [sys.executable]}
    found = new_side(source(line, predictor=find_predictors()["onnxruntime"])).side.requirements
    names = {text.partition("==")[0] for text in found}
    assert f"numpy=={np.__version__}" in found
    assert "onnxruntime" in names
    assert not names & {"pytest", "pydantic", "pytest-mlms", "pip"}


def test_a_baseline_in_the_interpreter_that_runs_pytest_lists_what_the_predictor_needs() -> None:
    installed = importlib.metadata.distributions()
    lines = sorted({f"{one.metadata['Name']}=={one.version}" for one in installed})
    line = line_of(1, "REGRESSED", kind="upgrade", python=platform.python_version(), machine={})
    line["against"] = {"name": "here", "threads": 1}
    line["launch"] = {"lock": ["onnxruntime==1.0"], "command": [sys.executable]}
    line["launch_against"] = {"packages": lines, "command": [sys.executable]}
    found = old_side(source(line, predictor=find_predictors()["onnxruntime"])).side.requirements
    names = {text.partition("==")[0] for text in found}
    assert "onnxruntime" in names
    assert not names & {"pytest", "pydantic", "pytest-mlms", "pip"}


def test_a_baseline_whose_agent_told_nothing_has_the_python_of_its_environment() -> None:
    line = line_of(1, "ERROR", framework="skewed", kind="upgrade", machine={})
    line["against"] = {"name": "old", "threads": 1}
    line["launch_against"] = {"lock": ["skewed==1.0"], "command": [sys.executable]}
    assert old_side(source(line, Trust())).side.python == platform.python_version()


def test_a_python_that_is_gone_is_an_error_that_says_so(tmp_path: Path) -> None:
    gone = {"lock": ["skewed==1.0"], "command": [str(tmp_path / "python")]}
    with pytest.raises(MlmsError, match="isn't on this machine any more; measure it again"):
        side_of([], python=None, launch=gone)
