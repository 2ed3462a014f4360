"""Stacks declared anew from the packages that results have."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.errors import StackError
from pytest_mlms.core.records import Library, Stack
from pytest_mlms.provide.stacks.environments import environments
from pytest_mlms.provide.stacks.exact import ExactSoftware, recreated_stack
from pytest_mlms.provide.stacks.launch import prepare
from pytest_mlms.provide.stacks.trust import EVERYTHING
from tests.support.wheels import offline, share_seeds, write_wheel  # noqa: F401


def exact(*packages: str, **fields: Any) -> ExactSoftware:
    facts = {"stack": "here", "framework": "onnxruntime", "python": "3.11.7", **fields}
    return ExactSoftware(packages=packages, **facts)


def requirements_of(*packages: str) -> tuple[str, ...]:
    return recreated_stack("lock", exact(*packages), EVERYTHING).requirements


def refusal_of(*packages: str) -> str:
    with pytest.raises(StackError) as refused:
        recreated_stack("lock", exact(*packages), EVERYTHING)
    return str(refused.value)


def test_the_packages_and_the_python_are_exact_and_nothing_is_resolved() -> None:
    made = recreated_stack("lock", exact("numpy==2.4.6", "onnxruntime==1.20.1"), EVERYTHING)
    assert made.name == "lock"
    assert made.framework == "onnxruntime"
    assert made.interpreter is None
    assert made.python == "3.11.7"
    assert made.requirements == ("numpy==2.4.6", "onnxruntime==1.20.1")
    assert made.options == ("--no-deps",)


def test_facts_that_results_lack_are_those_of_the_declared_stack(tmp_path: Path) -> None:
    declared = Stack(
        "ort",
        "onnxruntime",
        requirements=("onnxruntime>=1.20",),
        installer="uv",
        options=("--no-deps", "--index-url=https://example.invalid/simple"),
        lock=tmp_path / "ort.lock",
        libraries=(Library("liba.so", "liba.so.1", "liba1"),),
        env=(("A", "1"),),
        threads=2,
        cores=(0, 1),
    )
    made = recreated_stack("lock", exact("onnxruntime==1.20.1"), EVERYTHING, like=declared)
    assert made.requirements == ("onnxruntime==1.20.1",)
    assert made.lock is None
    assert made.installer == "uv"
    assert made.options == ("--index-url=https://example.invalid/simple", "--no-deps")
    assert made.libraries == declared.libraries
    assert (made.env, made.threads, made.cores) == (declared.env, 2, (0, 1))


def test_this_plugin_installers_and_what_is_developed_are_left_out(tmp_path: Path) -> None:
    kept = requirements_of(
        "numpy==2.4.6",
        "onnxruntime==1.20.1",
        "pip==25.0 # debian",
        f"pytest_mlms==0.1.0 # editable file://{tmp_path}",
        f"my-project @ file://{tmp_path}",
        f"other.project==1.0 # editable file://{tmp_path}",
    )
    assert kept == ("numpy==2.4.6", "onnxruntime==1.20.1")


@pytest.mark.parametrize("origin", ["debian", "egg", "conda py311_0"])
def test_a_package_of_another_installer_is_refused_by_name(origin: str) -> None:
    text = refusal_of("numpy==1.24.2", f"protobuf==3.21.12 # {origin}")
    assert f"protobuf 3.21.12 was installed by {origin}; measure it anew in an environment" in text


def test_a_package_from_an_address_is_required_by_that_address() -> None:
    address = "https://example.invalid/tiny-1.0-py3-none-any.whl"
    assert requirements_of(f"tiny==1.0 # {address}") == (f"tiny @ {address}",)
    commit = "https://example.invalid/tiny@" + "0" * 40
    assert requirements_of(f"tiny==1.0 # {commit}") == (f"tiny @ git+{commit}",)


def test_a_framework_from_a_folder_is_refused_by_name(tmp_path: Path) -> None:
    text = refusal_of("numpy==2.4.6", f"onnxruntime-gpu @ file://{tmp_path}")
    assert "stack here can't be made again: onnxruntime-gpu was installed from a folder" in text


def test_a_wheel_is_needed_as_long_as_it_is_there(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "tiny", "1.0")
    line = f"tiny @ file://{wheel}"
    assert requirements_of(line) == (line,)
    wheel.unlink()
    assert f"tiny was installed from {wheel}, which isn't there" in refusal_of(line)


def test_a_line_that_names_no_version_is_refused() -> None:
    assert "'two words' names no package" in refusal_of("numpy==2.4.6", "two words")


def test_unknown_packages_are_refused() -> None:
    assert "its packages are not known" in refusal_of()


@pytest.mark.parametrize("image", ["sha256:" + "a" * 64, "b" * 64])
def test_a_container_is_the_image_of_that_id(image: str) -> None:
    made = recreated_stack("lock", exact(f"docker.io/library/python:3.12 @ {image}"), EVERYTHING)
    assert made.container == image
    assert not made.requirements


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
def test_a_recreated_stack_installs_what_it_says(tmp_path: Path, seeds: Path) -> None:
    share_seeds(tmp_path / "cache", seeds)
    write_wheel(tmp_path / "wheels", "tiny", "1.0", needs="missing")
    write_wheel(tmp_path / "wheels", "tiny", "2.0")
    stack = recreated_stack(
        "lock", exact("tiny==1.0", python=platform.python_version()), EVERYTHING
    )
    launch = prepare(stack, tmp_path / "cache")
    assert "tiny==1.0" in launch.lock
    (made,) = environments(tmp_path / "cache")
    assert made.python == platform.python_version()


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
def test_a_version_that_the_index_lost_is_named(tmp_path: Path, seeds: Path) -> None:
    share_seeds(tmp_path / "cache", seeds)
    write_wheel(tmp_path / "wheels", "tiny", "2.0")
    stack = recreated_stack(
        "lock", exact("tiny==1.0", python=platform.python_version()), EVERYTHING
    )
    with pytest.raises(StackError, match="No matching distribution found for tiny==1.0"):
        prepare(stack, tmp_path / "cache")
