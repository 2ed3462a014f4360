"""Checks of hosts before they become workers; test_over_ssh.py has real ones."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import execnet
import pytest

from pytest_mlms.distribute.remote.hosts import (
    UnfitHost,
    check_worker,
    has_own_files,
    prepare_spec,
)
from pytest_mlms.distribute.remote.install import SAME_VERSION, code_digest, installed_python


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("popen", False),
        ("popen//chdir=elsewhere", True),
        ("ssh=gpu1", True),
        ("popen//via=gpu1", True),
    ],
)
def test_a_worker_in_a_folder_of_its_own_has_its_own_files(text: str, expected: bool) -> None:
    assert has_own_files(execnet.XSpec(text)) is expected


def test_a_remote_worker_gets_a_folder_an_interpreter_and_timeouts() -> None:
    spec = execnet.XSpec("ssh=gpu1")
    prepare_spec(spec, "folder")
    assert spec.chdir == "folder"
    assert spec.python == installed_python()
    assert spec.ssh == (
        "-o ServerAliveInterval=15 -o ServerAliveCountMax=4 -o ConnectTimeout=10 gpu1"
    )


def test_what_the_user_chose_is_kept() -> None:
    ssh = "-o ConnectTimeout=60 -o ServerAliveInterval=5 gpu1"
    spec = execnet.XSpec(f"ssh={ssh}//python=python3.12//chdir=mine")
    prepare_spec(spec, "folder")
    assert spec.ssh == ssh
    assert spec.python == "python3.12"
    assert spec.chdir == "mine"


def test_a_local_worker_is_not_changed() -> None:
    spec = execnet.XSpec("popen")
    prepare_spec(spec, "folder")
    assert spec.chdir is None


class FakeGateway:
    """A gateway to an interpreter that has these versions."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._found = {"executable": "/opt/python", **found}

    def remote_exec(self, function: Any) -> FakeGateway:
        return self

    def send(self, names: Any) -> None:
        pass

    def receive(self, timeout: float) -> dict[str, Any]:
        return self._found

    def waitclose(self, timeout: float) -> None:
        pass


def same_versions() -> dict[str, Any]:
    found: dict[str, Any] = {name: version(name) for name in SAME_VERSION}
    return {**found, "code": code_digest()}


def test_a_host_with_the_same_versions_is_fit() -> None:
    check_worker(FakeGateway(same_versions()))


def test_a_host_with_another_version_is_unfit_and_each_difference_is_named() -> None:
    found = {**same_versions(), "pytest": "1.0", "code": None}
    with pytest.raises(UnfitHost) as caught:
        check_worker(FakeGateway(found))
    message = str(caught.value)
    assert message.startswith(f"its /opt/python has code missing, here {code_digest()}; pytest 1.0")
    assert "execnet" not in message


def test_an_interpreter_of_this_environment_is_fit() -> None:
    group = execnet.Group()
    try:
        check_worker(group.makegateway("popen"))
    finally:
        group.terminate(timeout=10)
