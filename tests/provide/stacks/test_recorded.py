"""A stack as results keep it: keys that declare it again, and packages of interpreters."""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.core.errors import Unavailable
from pytest_mlms.core.records import Launch, Stack
from pytest_mlms.provide.stacks.interpreters import find_interpreter
from pytest_mlms.provide.stacks.recorded import declaration_of, with_packages
from pytest_mlms.provide.stacks.schema import load_stacks

STACKS = """
made:
  framework: onnxruntime
  python: "3.11"
  requirements: [onnxruntime==1.30.0, numpy, wheels/own-1.0-py3-none-any.whl]
  installer: uv
  pip_options: [--no-deps, --find-links=wheels]
  lock: made.lock
  env: {MODE: "2", HF_TOKEN: hf_abc}
  env_passthrough: [MY_*]
  libraries: {libmpi.so.1: {library: libmpi.so.40, package: libopenmpi3}}
image: {framework: mxnet, container: "python:3.11", interpreter: python3}
there: {interpreter: bin/python}
own: {framework: onnxruntime, agent: {command: [./agent, --fast]}}
served:
  framework: oip
  requirements: [mlserver==1.7.1, numpy]
  serve: {command: [mlserver, start, ./models, "{port}"], ready: /ready, timeout: 1 min}
elsewhere: {framework: oip, endpoint: "https://models.example.org/v1"}
"""


def loaded(folder: Path, text: str) -> dict[str, Stack]:
    path = folder / "stacks.yaml"
    path.write_text(text)
    return load_stacks(path)


def test_what_declares_a_stack_declares_it_again_elsewhere(tmp_path: Path) -> None:
    stacks = loaded(tmp_path, STACKS.replace(", HF_TOKEN: hf_abc", ""))
    entries = {}
    for name, stack in stacks.items():
        entry = declaration_of(stack)
        if stack.framework:
            entry["framework"] = stack.framework
        entries[name] = entry
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    again = loaded(elsewhere, json.dumps(entries))
    for name, stack in stacks.items():
        assert replace(again[name], place=None) == replace(stack, place=None)


def test_the_value_of_a_secret_is_hidden(tmp_path: Path) -> None:
    declared = declaration_of(loaded(tmp_path, STACKS)["made"])
    assert declared["env"] == {"MODE": "2", "HF_TOKEN": "***"}
    assert "hf_abc" not in json.dumps(declared)


THIS = (sys.executable, "-s", "-B")


def write_metadata(folder: Path, name: str, version: str, **files: str) -> Path:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n\nVersion: of the text\n")
    for file, text in files.items():
        (info / file.replace("__", ".")).write_text(text)
    return info


def packages_in(folder: Path) -> tuple[str, ...]:
    """Return the packages that this interpreter finds with a folder at the head of its path."""
    launch = Launch(THIS, {**os.environ, "PYTHONPATH": str(folder)})
    return with_packages(launch).packages


def test_the_packages_of_this_interpreter_are_those_that_importlib_knows() -> None:
    packages = with_packages(Launch(THIS, dict(os.environ))).packages
    exact = {line.partition(" # ")[0] for line in packages}
    for distribution in ("numpy", "pytest", "PyYAML"):
        assert f"{distribution}=={importlib.metadata.version(distribution)}" in exact
    (ours,) = [line for line in packages if line.startswith("pytest-mlms==")]
    assert " # " in ours, "no index has the version under test"


def test_the_imported_one_of_two_versions_on_the_path_is_listed(tmp_path: Path) -> None:
    write_metadata(tmp_path, "NumPy", "0.0.1")
    found = [line for line in packages_in(tmp_path) if line.lower().startswith("numpy==")]
    assert found == ["NumPy==0.0.1"]


@pytest.mark.parametrize(
    ("facts", "origin"),
    [
        ({"url": "file:///src/own", "dir_info": {"editable": True}}, "editable file:///src/own"),
        ({"url": "file:///src/own", "dir_info": {}}, "file:///src/own"),
        ({"url": "https://x/r.git", "vcs_info": {"commit_id": "ab12"}}, "https://x/r.git@ab12"),
    ],
)
def test_a_package_from_no_index_has_its_origin(
    tmp_path: Path, facts: dict[str, object], origin: str
) -> None:
    write_metadata(tmp_path, "own", "1.2", direct_url__json=json.dumps(facts))
    assert f"own==1.2 # {origin}" in packages_in(tmp_path)


def test_packages_of_conda_and_debian_are_named_as_such(tmp_path: Path) -> None:
    write_metadata(tmp_path, "own", "1.2", INSTALLER="conda\n")
    write_metadata(tmp_path, "other", "2", INSTALLER="debian")
    write_metadata(tmp_path, "usual", "3", INSTALLER="pip\n")
    packages = packages_in(tmp_path)
    assert {"own==1.2 # conda", "other==2 # debian", "usual==3"} <= set(packages)


def test_eggs_and_distutils_are_listed_too(tmp_path: Path) -> None:
    folder = tmp_path / "developed.egg-info"
    folder.mkdir()
    (folder / "PKG-INFO").write_text("Metadata-Version: 1.0\nName: developed\nVersion: 3\n")
    (tmp_path / "old-4.egg-info").write_text("Name: old\nVersion: 4\n")
    packages = packages_in(tmp_path)
    assert f"developed==3 # editable {tmp_path}" in packages
    assert any(line.startswith("old==4") for line in packages)


def test_broken_metadata_leave_out_their_package_only(tmp_path: Path) -> None:
    (tmp_path / "broken-1.dist-info").mkdir()
    info = write_metadata(tmp_path, "own", "1.2", direct_url__json='{"url": ')
    (tmp_path / "binary-1.dist-info").mkdir()
    (tmp_path / "binary-1.dist-info" / "METADATA").write_bytes(b"\xff\xfe\0")
    assert info.is_dir()
    packages = packages_in(tmp_path)
    assert "own==1.2" in packages
    assert not any(line.startswith(("broken", "binary")) for line in packages)


def test_an_interpreter_is_asked_once(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\necho x >> {tmp_path}/calls\necho \'[["a", "1", ""]]\'\n')
    program.chmod(0o755)
    for _ in range(3):
        assert with_packages(Launch((str(program),), {})).packages == ("a==1",)
    assert (tmp_path / "calls").read_text() == "x\n"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'no room' >&2; exit 3", "ended with status 3: no room"),
        ("echo '{}x'", "listed no packages"),
        ("echo 5", "listed no packages"),
    ],
)
def test_where_there_is_no_list_the_launch_has_the_reason(
    tmp_path: Path, script: str, reason: str
) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    launch = with_packages(Launch((str(program),), {}))
    assert launch.packages == ()
    assert reason in launch.lacking


def test_made_environments_and_images_are_not_asked() -> None:
    launch = Launch(("/nowhere/python",), {}, lock=("numpy==2",))
    assert with_packages(launch) is launch


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.6", "3.8", "3.13"])
def test_other_pythons_list_their_packages(version: str) -> None:
    try:
        python = find_interpreter(version)
    except Unavailable as error:
        pytest.skip(str(error))
    launch = with_packages(Launch((str(python.path), "-s", "-B"), {}))
    assert launch.lacking == ""
    assert any(line.startswith("pip==") for line in launch.packages)
