"""Local artifacts of manifests to remote hosts: when an item asks, by digest, once a host, into its
cache.

A worker gets only what a manifest of the run names.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import IO

import filelock

from pytest_mlms.artifacts.digest import digest_of
from pytest_mlms.distribute.messages import Handler, Link
from pytest_mlms.distribute.remote.workspace_sync import WorkspaceSync
from pytest_mlms.errors import ArtifactError, MlmsError
from pytest_mlms.manifest.load import LoadedManifest, load
from pytest_mlms.records import Artifact

__all__ = ["ArtifactClient", "ArtifactServer"]

_CHUNK = 1 << 18  # bytes


class ArtifactServer:
    """The controller's end, for one worker; ``link`` is set once it is there."""

    link: Link

    def __init__(self, mirror: WorkspaceSync) -> None:
        self._mirror = mirror
        self._path = Path()

    @property
    def handlers(self) -> dict[str, Handler]:
        """What the messages of a worker mean here.

        Work goes to a thread, as these run in the receiving one.
        """
        return {
            "want": lambda *fields: _thread(self._offer, *fields),
            "give": lambda: _thread(self._give),
        }

    def _offer(self, manifest: str, source: str) -> None:
        path = self._mirror.original(manifest)
        try:
            files = (
                _local_files(path) if manifest in self._mirror.files else []
            )  # a host may not bring its own
            artifact = next(
                one for one in files if source in (one.source, _beside(one.source, path))
            )
            self._path = Path(artifact.source)
            self.link.send("have", digest_of(self._path), self._path.name)
        except StopIteration:
            self.link.send("refused", f"{manifest} names no file {source}")
        except (OSError, MlmsError) as error:
            self.link.send("refused", f"on the controller: {error}")

    def _give(self) -> None:
        try:
            with self._path.open("rb") as file:
                while data := file.read(_CHUNK):
                    if not self.link.send("bytes", data):
                        return
            self.link.send("whole")
        except OSError as error:
            self.link.send("refused", f"on the controller: {error}")


class ArtifactClient:
    """The worker's end; ``root`` is the mirror's folder here."""

    link: Link

    def __init__(self, root: Path, cache: Path) -> None:
        self._root, self._cache = root, cache
        self._answered = threading.Event()
        self._answer: tuple[str, str] | None = None
        self._fault = self._gone = ""
        self._file: IO[bytes] | None = None

    @property
    def handlers(self) -> dict[str, Handler]:
        """What the messages of the controller mean here."""
        return {
            "have": self._have,
            "refused": self._refused,
            "bytes": self._write,
            "whole": self._answered.set,
        }

    def gone(self) -> None:
        """The controller is gone."""
        self._gone = "the connection to the controller ended"
        self._answered.set()

    def bring(self, loaded: LoadedManifest, artifact: Artifact) -> Artifact:
        """Return the artifact with a path on this host, where it is now; raises ArtifactError."""
        if Path(artifact.source).is_file():
            return artifact
        self._ask(
            "want",
            os.path.relpath(loaded.path, self._root),
            _beside(artifact.source, loaded.path),
            of=artifact,
        )
        assert self._answer is not None
        digest, name = self._answer
        path = self._cache / "travelled" / digest[:2] / digest / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(path.parent.with_suffix(".lock")):
                if not path.is_file():
                    self._bring(path, digest, artifact)
        except OSError as error:
            raise ArtifactError(
                f"{artifact.place}: {error.strerror} in {self._cache}; make room there"
            ) from error
        return replace(artifact, source=str(path))

    def _bring(self, path: Path, digest: str, artifact: Artifact) -> None:
        partial = path.with_name("partial")
        with partial.open("wb") as self._file:
            self._ask("give", of=artifact)
        if digest_of(partial) != digest:
            raise ArtifactError(f"{artifact.place}: {path.name} was damaged on its way; run again")
        os.replace(partial, path)

    def _ask(self, kind: str, *fields: str, of: Artifact) -> None:
        self._fault = ""
        self._answered.clear()
        if self.link.send(kind, *fields) and not self._gone:
            self._answered.wait()
        if fault := self._gone or self._fault:
            raise ArtifactError(
                f"{of.place}: {of.source} can't be had from the controller: {fault}"
            )

    def _have(self, digest: str, name: str) -> None:
        self._answer = digest, name
        self._answered.set()

    def _write(self, data: bytes) -> None:
        if self._file and not self._file.closed and not self._fault:
            try:
                self._file.write(data)
            except OSError as error:
                self._refused(f"{error.strerror} in {self._cache}; make room there")

    def _refused(self, why: str) -> None:
        self._fault = why
        self._answered.set()


def _thread(target: Handler, *fields: str) -> None:
    threading.Thread(target=target, args=fields, daemon=True).start()


def _beside(source: str, manifest: Path) -> str:
    return os.path.relpath(source, manifest.parent)


@lru_cache(maxsize=4096)
def _local_files(manifest: Path) -> list[Artifact]:
    return list(_files(load(manifest)))


def _files(loaded: LoadedManifest) -> Iterator[Artifact]:
    for model in loaded.manifest.models:
        yield from loaded.model_files(model).values()
    yield from (file for file in (loaded.dataset_file, loaded.labels_file) if file)
