"""Local artifacts of manifests on their way to a worker."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.records import Artifact, Place
from pytest_mlms.distribute.messages import (
    ArtifactChunk,
    ArtifactEnd,
    ArtifactFound,
    ArtifactRefused,
    ArtifactRequest,
    DownloadRequest,
)
from pytest_mlms.distribute.remote.artifact_transfer import ArtifactClient, ArtifactServer
from pytest_mlms.distribute.side_channel import Handlers, SideChannel
from tests.distribute.fakes import channel_pair
from tests.support.project import copy_digits

MODEL = b"weights" * 100_000
DIGEST = hashlib.sha256(MODEL).hexdigest()


def use_server(controller: SideChannel, tmp_path: Path, files: dict[str, bytes]) -> None:
    """Answer a worker from a copy of the digits manifest, of whose workspace ``files`` are."""
    workspace: Any = SimpleNamespace(original=lambda place: tmp_path / place, files=files)
    server = ArtifactServer(workspace, controller)
    controller.listen(server.handlers)


@pytest.mark.parametrize("is_of_run", [False, True])
def test_a_worker_gets_only_what_a_manifest_of_the_run_names(
    tmp_path: Path, is_of_run: bool
) -> None:
    manifest = copy_digits(tmp_path / "manifests")
    model = manifest.parent / "digits_cnn.onnx"
    controller, worker = channel_pair()
    use_server(controller, tmp_path, {"manifests/digits.yaml": b""} if is_of_run else {})
    answers: list[object] = []
    answered = threading.Event()

    def answer(message: object) -> None:
        answers.append(message)
        answered.set()

    worker.listen({ArtifactFound: answer, ArtifactRefused: answer})
    worker.send(ArtifactRequest("manifests/digits.yaml", model.name))
    assert answered.wait(300)
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    found = ArtifactFound(digest, model.name)
    refused = ArtifactRefused("manifests/digits.yaml names no file digits_cnn.onnx")
    assert answers == [found if is_of_run else refused]


def test_a_worker_that_asks_without_end_takes_one_thread(tmp_path: Path) -> None:
    controller, worker = channel_pair()
    asked, go_on = threading.Event(), threading.Event()

    def answer(message: object) -> None:
        asked.set()
        go_on.wait(300)

    worker.listen({ArtifactRefused: answer})
    use_server(controller, tmp_path, {})
    before = threading.active_count()
    for _ in range(200):
        worker.send(ArtifactRequest("m.yaml", "x"))
    assert asked.wait(300)
    assert threading.active_count() <= before + 1
    go_on.set()


class Client:
    """A worker's end whose controller answers a download by ``answers``."""

    def __init__(self, tmp_path: Path, *answers: tuple[object, ...]) -> None:
        self.cache = tmp_path / "cache"
        self.requests: list[object] = []
        self.controller, worker = channel_pair()
        self._loaded: Any = SimpleNamespace(path=tmp_path / "manifests" / "m.yaml")
        self._artifact = Artifact("/there/manifests/x.onnx", None, Place(Path("m.yaml"), 3))
        self._answers = answers
        self.client = ArtifactClient(tmp_path, self.cache, worker)
        worker.listen(self.client.handlers, [self.client.close])
        handlers: Handlers = {ArtifactRequest: self._find, DownloadRequest: self._download}
        self.controller.listen(handlers)

    def _find(self, message: ArtifactRequest) -> None:
        self.requests.append(message)
        self.controller.send(ArtifactFound(DIGEST, "x.onnx"))

    def _download(self, message: DownloadRequest) -> None:
        self.requests.append(message)
        for answer in self._answers:
            self.controller.send(answer)  # type: ignore[arg-type]

    def bring(self) -> Path:
        return Path(self.client.bring(self._loaded, self._artifact).source)


def test_an_artifact_is_downloaded_once_into_the_cache_by_its_digest(tmp_path: Path) -> None:
    chunks = [ArtifactChunk(MODEL[:1000]), ArtifactChunk(MODEL[1000:])]
    client = Client(tmp_path, *chunks, ArtifactEnd())
    path = client.bring()
    assert path == client.cache / "travelled" / DIGEST[:2] / DIGEST / "x.onnx"
    assert path.read_bytes() == MODEL
    assert client.bring() == path
    assert client.requests.count(DownloadRequest()) == 1


def test_a_damaged_artifact_is_an_error_and_is_not_kept(tmp_path: Path) -> None:
    client = Client(tmp_path, ArtifactChunk(b"half"), ArtifactEnd())
    with pytest.raises(ArtifactError, match=r"m\.yaml:3: .*x\.onnx was damaged on its way"):
        client.bring()
    assert not list(client.cache.rglob("x.onnx"))


def test_an_artifact_that_the_controller_can_not_read_is_an_error(tmp_path: Path) -> None:
    client = Client(tmp_path, ArtifactRefused("on the controller: No such file"))
    with pytest.raises(ArtifactError, match="can't be fetched from the controller: on the contr"):
        client.bring()


def test_a_connection_that_ends_is_an_error(tmp_path: Path) -> None:
    client = Client(tmp_path)
    client.client.close()
    with pytest.raises(ArtifactError, match="the connection to the controller ended"):
        client.bring()


def test_a_full_disk_is_an_error_after_the_whole_file_was_received(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullDisk:
        def write(self, data: bytes) -> None:
            raise OSError(28, "No space left on device")

    def write_nothing(message: DownloadRequest) -> None:
        client.client._file = FullDisk()  # type: ignore[assignment]
        for _ in range(3):
            client.controller.send(ArtifactChunk(b"x"))
        client.controller.send(ArtifactEnd())

    client = Client(tmp_path)
    monkeypatch.setitem(client.controller._handlers, DownloadRequest, write_nothing)
    with pytest.raises(ArtifactError, match="No space left on device in .*; make room there"):
        client.bring()


def test_a_file_that_is_on_this_host_is_not_asked_for(tmp_path: Path) -> None:
    here = tmp_path / "x.onnx"
    here.write_bytes(MODEL)
    artifact = Artifact(str(here), None, Place(Path("m.yaml"), 3))
    controller, worker = channel_pair()
    controller.listen({})
    client = ArtifactClient(tmp_path, tmp_path / "cache", worker)
    loaded: Any = None
    assert client.bring(loaded, artifact) is artifact
