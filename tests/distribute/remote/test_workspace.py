"""The workspace of a run, on the side of the remote host."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.distribute.remote.workspace import receive


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class FakeChannel:
    """The controller's end of execnet's channel, with files to send."""

    def __init__(self, run: str, files: dict[str, bytes]) -> None:
        self.asked_for: list[str] = []
        self._contents: dict[str, bytes] = {}
        digests = {}
        for name, data in files.items():
            digest = digest_of(data)
            digests[name] = digest
            self._contents[digest] = data
        self._replies: list[Any] = [(run, digests)]

    def receive(self) -> Any:
        return self._replies.pop(0)

    def send(self, missing: list[str]) -> None:
        self.asked_for = missing
        self._replies += [self._contents[digest] for digest in missing]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder of a project on the host."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def receive_in(project: Path, run: str, files: dict[str, bytes]) -> FakeChannel:
    os.chdir(project)
    channel = FakeChannel(run, files)
    receive(channel)
    return channel


def run_folder(project: Path, run: str) -> Path:
    return project / "mlms-mirror" / "runs" / run


def test_the_files_are_in_their_places_and_the_run_works_there(project: Path) -> None:
    receive_in(project, "run1", {"manifests/a.yaml": b"one", "conftest.py": b"two"})
    assert Path.cwd() == run_folder(project, "run1")
    assert Path("manifests/a.yaml").read_bytes() == b"one"
    assert Path("conftest.py").read_bytes() == b"two"


def test_what_was_sent_once_is_not_sent_again(project: Path) -> None:
    first = receive_in(project, "run1", {"a": b"one", "b": b"one"})
    assert len(first.asked_for) == 1
    second = receive_in(project, "run2", {"a": b"one", "b": b"two"})
    assert second.asked_for == [digest_of(b"two")]
    assert Path("a").read_bytes() == b"one"


def test_a_file_that_a_test_changed_is_whole_in_the_next_run(project: Path) -> None:
    receive_in(project, "run1", {"a": b"one"})
    Path("a").write_bytes(b"changed")
    second = receive_in(project, "run2", {"a": b"one"})
    assert second.asked_for == []
    assert Path("a").read_bytes() == b"one"


def test_a_stored_file_that_is_damaged_is_sent_again(project: Path) -> None:
    first = receive_in(project, "run1", {"a": b"one"})
    (digest,) = first.asked_for
    stored = project / "mlms-mirror" / "files" / digest
    stored.write_bytes(b"damaged")
    second = receive_in(project, "run2", {"a": b"one"})
    assert second.asked_for == [digest]


def test_a_run_that_ended_is_removed_by_the_next_and_one_that_lives_is_not(project: Path) -> None:
    code = (
        "from pytest_mlms.distribute.remote.workspace import receive\n"
        "from tests.distribute.remote.test_workspace import FakeChannel\n"
        "receive(FakeChannel('ended', {'a': b'one'}))\n"
    )
    root = Path(__file__).parents[3]
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    living = run_folder(project, "living.lock")
    assert run_folder(project, "ended").exists()
    run_folder(project, "living").mkdir()
    with living.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        receive_in(project, "run1", {"a": b"one"})
    assert not run_folder(project, "ended").exists()
    assert run_folder(project, "living").exists()


def test_stored_files_that_no_run_used_for_a_month_are_removed(project: Path) -> None:
    receive_in(project, "run1", {"a": b"one", "b": b"two"})
    files = project / "mlms-mirror" / "files"
    old = files / digest_of(b"one")
    os.utime(old, (0, 0))
    receive_in(project, "run2", {"b": b"two"})
    (left,) = files.iterdir()
    assert left.read_bytes() == b"two"
