"""Predictions by the models of the portal's manifests: one way for pages, REST and gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.core.text import close_words
from pytest_mlms.predict.inputs import Given
from pytest_mlms.predict.warm import Refusal, Reply, WarmLimits, WarmModels, frame_of
from pytest_mlms.project import find_project
from pytest_mlms.provide.artifacts.fetch import default_cache
from pytest_mlms.provide.stacks.declared import HERE, declared_stacks
from pytest_mlms.provide.stacks.launch import is_made
from pytest_mlms.show.portal.manifests import ManifestEntry, Manifests
from pytest_mlms.show.portal.settings import PortalSettings

T = TypeVar("T")

STATUS = {
    "input": 400,
    "unknown": 404,
    "unavailable": 409,
    "crowded": 429,
    "failed": 500,
    "busy": 503,
    "slow": 504,
}
"""The status of a refusal, by its kind."""

_STALE_SECONDS = 5.0
_SHOWN = 10  # manifests that an error names


@dataclass(frozen=True)
class Predicted:
    """A prediction: the JSON that ``mlms predict --json`` prints, and what shows it to people."""

    line: dict[str, Any]
    arrays: Mapping[str, NDArray[Any]]


class Predictions:
    """Predictions by the manifests of a folder."""

    def __init__(
        self, manifests: Manifests, folder: Path, models: WarmModels, most_bytes: int
    ) -> None:
        self._manifests = manifests
        self._folder = folder
        self._models = models
        self._most_bytes = most_bytes
        self._held_bytes = 0
        self._stacks: Mapping[str, Stack] = {}
        self._read = -_STALE_SECONDS

    def entry(self, name: str) -> ManifestEntry:
        """Return a manifest by its path below the folder, or by the name that its model alone has.

        Raises HTTPException.
        """
        entries = self._manifests.by_path()
        named = [entry for entry in entries.values() if entry.name == name]
        if name in entries:
            return entries[name]
        if len(named) != 1:
            known = [entry.path for entry in named] or close_words(name[:100], list(entries))
            known = known or list(entries)
            told = f"{', '.join(known[:_SHOWN])}{', …' * (len(known) > _SHOWN)}"
            problem = f"there is no manifest {name[:100]!r}, or more than one"
            raise HTTPException(404, f"{problem}; name one by its path: {told or 'there is none'}")
        return named[0]

    def stacks(self, entry: ManifestEntry) -> list[str]:
        """Return the stacks that have a framework of a manifest, this interpreter first.

        Raises HTTPException where their file is wrong.
        """
        if time.monotonic() - self._read > _STALE_SECONDS:
            try:
                declared = declared_stacks(self._folder, [self._folder])
            except MlmsError as error:
                raise HTTPException(500, str(error).replace(f"{self._folder}/", "")) from None
            self._stacks = declared
            self._read = time.monotonic()
        return [
            name
            for name, stack in self._stacks.items()
            if name == HERE.name or stack.framework in ("", *entry.frameworks)
        ]

    def unmade(self, names: Collection[str]) -> Collection[str]:
        """Return those of some stacks that have to be made before a model runs on them.

        So are those that can't be made here: who chooses one is told why.
        """
        cache = Path(find_project([self._folder]).value("cache") or default_cache())
        declared = self._stacks
        found = set(names)
        for name in declared.keys() & found:
            with contextlib.suppress(MlmsError):
                if is_made(declared[name], cache):
                    found.remove(name)
        return found

    async def predict(
        self,
        manifest: str,
        stack: str,
        given: Given,
        *,
        name: str = "",
        latency: bool = False,
    ) -> dict[str, Any]:
        """Return the line of a model's prediction for an input, which has no paths.

        ``stack`` is "" for the default, and ``name`` is what the answer calls the input. Whoever is
        cancelled leaves his turn to the others. Raises HTTPException, whose text is for people.
        """
        parts, sent = frame_of(given)
        fields = {"type": "predict", "given": parts, "name": name, "latency": latency}
        line: dict[str, Any] = (await self.ask(manifest, stack, fields, sent)).fields["line"]
        return line

    async def show(
        self, manifest: str, stack: str, given: Given, element: int | None = None, *, name: str
    ) -> Predicted:
        """Return a prediction with its latency and what ``pictures.shown_of`` shows it by.

        With the number of an ``element`` of the manifest's dataset, that is the input. The rest is
        as of ``predict``.
        """
        parts, sent = frame_of(given)
        fields = {"type": "show", "given": parts, "element": element, "name": name}
        reply = await self.ask(manifest, stack, fields, sent)
        return Predicted(reply.fields["line"], reply.arrays)

    async def ask(
        self,
        manifest: str,
        stack: str,
        fields: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]] | None = None,
    ) -> Reply:
        """Return the reply of a model's process to a request; raises HTTPException."""
        path = await run_in_threadpool(self._path, manifest, stack)
        try:
            return await self._models.ask(path, stack, fields, arrays)
        except Refusal as refusal:
            headers = {"Retry-After": str(refusal.again or 1)}
            is_later = refusal.kind in ("crowded", "busy")
            status = STATUS[refusal.kind]
            raise HTTPException(status, str(refusal), headers if is_later else None) from None

    @contextlib.asynccontextmanager
    async def reading(self, request: Request) -> AsyncIterator[bytes]:
        """Read the body of a request, which counts among those that are held until the end.

        Raises HTTPException where the portal has no room for it.
        """
        body = bytearray()
        with self.holding() as hold:
            try:
                async for part in request.stream():
                    hold(len(part))
                    body += part
            except ClientDisconnect:
                raise HTTPException(400, "the client went away") from None
            yield bytes(body)

    def _path(self, manifest: str, stack: str) -> Path:
        """Return a manifest's file, if the stack may run it; raises HTTPException."""
        entry = self.entry(manifest)
        stacks = self.stacks(entry) if stack else [stack]
        if stack not in stacks:
            known = ", ".join(stacks)
            raise HTTPException(404, f"there is no stack {stack[:100]!r} for it; there are {known}")
        return self._folder / entry.path

    @contextlib.contextmanager
    def holding(self) -> Iterator[Callable[[int], None]]:
        """Yield what counts bytes of a request among those that are held, until the end.

        That raises HTTPException for too many.
        """
        own = 0

        def hold(size: int) -> None:
            nonlocal own
            own += size
            self._held_bytes += size
            if self._held_bytes > self._most_bytes:
                headers = {"Retry-After": "1", "Connection": "close"}
                raise HTTPException(429, "too many inputs are on their way", headers)

        try:
            yield hold
        finally:
            self._held_bytes -= own

    async def close(self) -> None:
        """Close the models."""
        await self._models.close()


def predictions_of(settings: PortalSettings, manifests: Manifests) -> Predictions | None:
    """Return the predictions of a portal, None where it doesn't allow any."""
    folder = settings.manifests
    if not settings.allow_predict or folder is None:
        return None
    models = WarmModels(folder, settings.allow_create, WarmLimits())
    return Predictions(manifests, folder, models, settings.limits.held_bytes)


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of some work, which is cancelled where the client goes away.

    The request's body has been read. Raises HTTPException for a client that is gone.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise HTTPException(400, "the client went away")
        return working.result()
    finally:
        leaving.cancel()
        working.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
