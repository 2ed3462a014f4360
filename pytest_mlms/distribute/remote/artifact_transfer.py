"""Transfer of local artifacts of manifests from the controller to remote hosts.

An artifact is sent when an item asks for it, once for each host, into the host's cache by its
digest. A worker gets only files that a manifest of the run names.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from concurrent.futures import Future
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import IO

import filelock

from pytest_mlms.author.loading import load_manifest
from pytest_mlms.core.errors import ArtifactError, MlmsError
from pytest_mlms.core.records import Artifact
from pytest_mlms.core.waits import LOCK_MODE
from pytest_mlms.distribute.messages import (
    ArtifactChunk,
    ArtifactEnd,
    ArtifactFound,
    ArtifactRefused,
    ArtifactRequest,
    DownloadRequest,
)
from pytest_mlms.distribute.remote.workspace_sync import WorkspaceSync
from pytest_mlms.distribute.side_channel import Handlers, SideChannel
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.provide.artifacts.digest import digest_of

_CHUNK = 1 << 18  # bytes
_CACHE_FOLDER = "travelled"
_MOST_WAITING = 4  # requests of a worker


class ArtifactServer:
    """The controller's end, for one worker.

    It works in a thread of its own, not in the receiving one. A worker asks one thing at a time, so
    requests that come while many wait are dropped.
    """

    def __init__(self, workspace: WorkspaceSync, channel: SideChannel) -> None:
        self._workspace = workspace
        self._channel = channel
        self._path = Path()
        self._requests: queue.Queue[ArtifactRequest | DownloadRequest] = queue.Queue(_MOST_WAITING)
        self._thread: threading.Thread | None = None

    @property
    def handlers(self) -> Handlers:
        """The handlers of a worker's messages."""
        return {ArtifactRequest: self._take, DownloadRequest: self._take}

    def _take(self, request: ArtifactRequest | DownloadRequest) -> None:
        with contextlib.suppress(queue.Full):
            self._requests.put_nowait(request)
        if self._thread is None:
            self._thread = threading.Thread(target=self._answer_all, daemon=True)
            self._thread.start()

    def _answer_all(self) -> None:
        while True:
            request = self._requests.get()
            if isinstance(request, ArtifactRequest):
                self._find(request)
            else:
                self._send_file()

    def _find(self, request: ArtifactRequest) -> None:
        try:
            path = self._local_file(request)
            if path is None:
                reason = f"{request.manifest} names no file {request.source}"
                self._channel.send(ArtifactRefused(reason))
                return
            digest = digest_of(path)
        except (OSError, MlmsError) as error:
            self._channel.send(ArtifactRefused(f"on the controller: {error}"))
            return
        self._path = path
        self._channel.send(ArtifactFound(digest, path.name))

    def _local_file(self, request: ArtifactRequest) -> Path | None:
        """Return the file that a request means, if a manifest of the run names it."""
        if request.manifest not in self._workspace.files:
            return None
        manifest = self._workspace.original(request.manifest)
        for artifact in _artifacts_of(manifest):
            if request.source in (artifact.source, _relative(artifact.source, manifest)):
                return Path(artifact.source)
        return None

    def _send_file(self) -> None:
        try:
            with self._path.open("rb") as file:
                while data := file.read(_CHUNK):
                    if not self._channel.send(ArtifactChunk(data)):
                        return
        except OSError as error:
            self._channel.send(ArtifactRefused(f"on the controller: {error}"))
        else:
            self._channel.send(ArtifactEnd())


class _TransferError(Exception):
    """The controller can't send an artifact, or this host can't store it."""


class ArtifactClient:
    """The worker's end; ``root`` is the workspace, and ``cache`` the folder for artifacts.

    Messages are handled in the thread that receives, while ``bring`` waits for the answer.
    """

    def __init__(self, root: Path, cache: Path, channel: SideChannel) -> None:
        self._root = root
        self._cache = cache
        self._channel = channel
        self._answer: Future[ArtifactFound | ArtifactEnd] = Future()
        self._is_closed = False
        self._file: IO[bytes] | None = None
        self._write_error: OSError | None = None

    @property
    def handlers(self) -> Handlers:
        """The handlers of the controller's messages."""
        return {
            ArtifactFound: self._succeed,
            ArtifactRefused: self._note_refusal,
            ArtifactChunk: self._write,
            ArtifactEnd: self._succeed,
        }

    def close(self) -> None:
        """End the waiting, because the controller is gone."""
        self._is_closed = True
        self._fail("the connection to the controller ended")

    def bring(self, loaded: LoadedManifest, artifact: Artifact) -> Artifact:
        """Return the artifact with a path on this host, where its file is now.

        Raises ArtifactError.
        """
        if Path(artifact.source).is_file():
            return artifact
        request = ArtifactRequest(
            os.path.relpath(loaded.path, self._root), _relative(artifact.source, loaded.path)
        )
        try:
            path = self._cached_file(request)
        except _TransferError as error:
            raise ArtifactError(
                f"{artifact.place}: {artifact.source} can't be fetched from the controller: {error}"
            ) from error
        except OSError as error:
            raise ArtifactError(
                f"{artifact.place}: {error.strerror} in {self._cache}; make room there"
            ) from error
        return replace(artifact, source=str(path))

    def _cached_file(self, request: ArtifactRequest) -> Path:
        """Return the artifact's file in the cache, downloaded unless it is there."""
        found = self._ask(request)
        assert isinstance(found, ArtifactFound)
        folder = self._cache / _CACHE_FOLDER / found.sha256[:2] / found.sha256
        path = folder / found.name
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder.with_suffix(".lock"), mode=LOCK_MODE):
            if not path.is_file():
                self._download(path, found.sha256)
        return path

    def _download(self, path: Path, sha256: str) -> None:
        # always the same name, so that the file of a process that was killed is overwritten
        partial = path.with_name("partial")
        with partial.open("wb") as file:
            self._file = file
            self._write_error = None
            try:
                self._ask(DownloadRequest())
            finally:
                self._file = None
        if self._write_error:
            raise self._write_error
        if digest_of(partial) != sha256:
            raise _TransferError(f"{path.name} was damaged on its way; run again")
        os.replace(partial, path)

    def _ask(self, request: ArtifactRequest | DownloadRequest) -> ArtifactFound | ArtifactEnd:
        """Send a request, and return the answer."""
        self._answer = Future()
        if self._is_closed or not self._channel.send(request):
            self._fail("the connection to the controller ended")
        return self._answer.result()

    def _write(self, chunk: ArtifactChunk) -> None:
        """Write the next bytes; after an error, only wait for the end of the file."""
        if self._file is None or self._write_error:
            return
        try:
            self._file.write(chunk.data)
        except OSError as error:
            self._write_error = error

    def _succeed(self, message: ArtifactFound | ArtifactEnd) -> None:
        if not self._answer.done():
            self._answer.set_result(message)

    def _note_refusal(self, message: ArtifactRefused) -> None:
        self._fail(message.reason)

    def _fail(self, reason: str) -> None:
        if not self._answer.done():
            self._answer.set_exception(_TransferError(reason))


def _relative(source: str, manifest: Path) -> str:
    return os.path.relpath(source, manifest.parent)


@lru_cache(maxsize=4096)
def _artifacts_of(manifest: Path) -> list[Artifact]:
    return list(load_manifest(manifest, allow_code=True).artifacts)
