"""Crowds of clients of a portal: half of them honest, the others slow, hostile or gone."""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.support.histories import run_name
from tests.support.packed_runs import pack_run
from tests.support.portals import Portal
from tests.support.project import HANG_GUARD

__all__ = ["Crowd", "Seen"]

_PATHS = ("/runs", "/api/v1/runs", "/models", "/api/v1/models", "/hosts", "/static/portal.css")
_PUSH_EVERY = 5  # requests of an honest client
_PAUSE = 0.5  # seconds, the mean between two requests of a client
_BIG = 64 << 10  # bytes that a hostile client sends at once

_Reader = asyncio.StreamReader
_Writer = asyncio.StreamWriter
_Behaviour = Callable[[_Reader, _Writer], Awaitable[None]]


@dataclass
class Seen:
    """The outcome of a crowd: statuses of honest clients, their slowest answer, the portal's peak."""

    statuses: Counter[int] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    pushed: list[str] = field(default_factory=list)
    hostile: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    peak_bytes: int = 0

    def __str__(self) -> str:
        lines = [
            f"honest answers: {dict(self.statuses)}, failures: {len(self.failures)}",
            f"runs pushed: {len(self.pushed)}, slowest answer: {self.slowest:.1f} s",
            f"hostile connections: {dict(self.hostile)}",
            f"the portal's peak of memory: {self.peak_bytes / 1e6:.0f} MB",
        ]
        return "\n".join([*lines, *self.failures[:10]])


class Crowd:
    """So many clients of a portal at a time, half of them honest, for some seconds."""

    def __init__(self, portal: Portal, clients: int, seconds: float) -> None:
        self._portal = portal
        self._clients = clients
        self._end = time.monotonic() + seconds
        self._numbers = itertools.count(1000)
        self.seen = Seen()

    def run(self) -> Seen:
        """Run it; return what was seen."""
        asyncio.run(self._run())
        return self.seen

    def missing(self, results: Path) -> list[str]:
        """Return the runs that were pushed, and that aren't in the portal's results and lists."""
        found: list[str] = []
        for name in self.seen.pushed:
            is_there = (results / name / "results.jsonl").is_file()
            if not is_there or self._portal.get(f"/api/v1/runs/{name}").status != 200:
                found.append(name)
        return found

    async def _run(self) -> None:
        watch = asyncio.create_task(self._watch_memory())
        await asyncio.gather(*(self._client(number) for number in range(self._clients)))
        watch.cancel()

    async def _watch_memory(self) -> None:
        process = psutil.Process(self._portal.process.pid)
        while True:
            self.seen.peak_bytes = max(self.seen.peak_bytes, process.memory_info().rss)
            await asyncio.sleep(0.2)

    async def _client(self, number: int) -> None:
        rng = random.Random(number)
        await asyncio.sleep(rng.random())
        for turn in itertools.count(1):
            if time.monotonic() > self._end:
                return
            if number % 2:
                await self._honest(rng, turn)
            else:
                await self._hostile(rng)
            await asyncio.sleep(rng.expovariate(1 / _PAUSE))

    async def _honest(self, rng: random.Random, turn: int) -> None:
        """Ask for a page, or push a run; note what came of it."""
        began = time.monotonic()
        name, body, request = "", b"", f"GET {rng.choice(_PATHS)}"
        if turn % _PUSH_EVERY == 0:
            night = next(self._numbers)
            name, body, request = run_name(night), pack_run(night), "POST /api/v1/runs"
        try:
            status = await asyncio.wait_for(self._ask(request, body), HANG_GUARD)
        except (OSError, ValueError, asyncio.TimeoutError) as error:
            self.seen.failures.append(f"{request}: {error!r}")
            return
        self.seen.statuses[status] += 1
        self.seen.slowest = max(self.seen.slowest, time.monotonic() - began)
        if status not in (200, 201):
            self.seen.failures.append(f"{request}: status {status}")
        elif name:
            self.seen.pushed.append(name)

    async def _ask(self, request: str, body: bytes) -> int:
        reader, writer = await asyncio.open_connection(*self._portal.address)
        try:
            writer.write(self._head(request, len(body)) + body)
            answer = await reader.read(-1)
            await writer.drain()
        finally:
            writer.close()
        head, separator, content = answer.partition(b"\r\n\r\n")
        if not separator:
            raise ValueError("no answer")
        length = int(dict(_headers(head)).get(b"content-length", b"-1"))
        if length not in (-1, len(content)):
            raise ValueError(f"{len(content)} of {length} bytes came")
        return int(head.split(b" ", 2)[1])

    def _head(self, request: str, length: int, token: str | None = None) -> bytes:
        host, port = self._portal.address
        bearer = self._portal.token if token is None else token
        lines = [f"{request} HTTP/1.1", f"Host: {host}:{port}", f"Authorization: Bearer {bearer}"]
        lines += ["Connection: close", f"Content-Length: {length}"]
        return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()

    async def _hostile(self, rng: random.Random) -> None:
        """Behave in one of the ways of clients that nobody needs, as long as the portal takes it."""
        name, behave = rng.choice(list(self._behaviours().items()))
        self.seen.hostile[name] += 1
        try:
            reader, writer = await asyncio.open_connection(*self._portal.address)
        except OSError:
            return
        left = max(0.1, self._end - time.monotonic())
        try:
            await asyncio.wait_for(behave(reader, writer), left)
        except (OSError, asyncio.TimeoutError):
            pass
        finally:
            writer.transport.abort()

    def _behaviours(self) -> dict[str, _Behaviour]:
        run = pack_run(1)
        push = self._head("POST /api/v1/runs", 1 << 29)
        return {
            "a byte now and then of the head": _slowly(self._head("GET /runs", 0)),
            "a byte now and then of a run": _slowly(run, self._head("POST /api/v1/runs", len(run))),
            "gone amid a run": _gone(push + run),
            "gone before the answer": _gone(self._head("GET /runs", 0)),
            "reset amid a head": _gone(b"POST /api/v1/ru", reset=True),
            "reads no answer": _deaf(self._head("GET /api/v1/runs?limit=1000", 0) * 50),
            "endless head": _endless(b"GET / HTTP/1.1\r\nX: ", b"x" * _BIG),
            "endless run": _endless(push, b"x" * _BIG),
            "no HTTP": _endless(b"\x16\x03\x01", bytes(_BIG)),
            "false token": _asking(self._head("GET /runs", 0, "false-token-of-nobody")),
            "false host": _asking(b"GET /runs HTTP/1.1\r\nHost: 127.0.0.1/login?\r\n\r\n"),
            "no run": _asking(self._head("POST /api/v1/runs", 5) + b"hello"),
            "silence": _asking(b""),
        }


def _headers(head: bytes) -> Iterator[tuple[bytes, bytes]]:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        yield name.lower(), value.strip()


def _slowly(text: bytes, before: bytes = b"") -> _Behaviour:
    async def behave(reader: _Reader, writer: _Writer) -> None:
        writer.write(before)
        for byte in text:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.5)

    return behave


def _gone(text: bytes, reset: bool = False) -> _Behaviour:
    async def behave(reader: _Reader, writer: _Writer) -> None:
        writer.write(text)
        await writer.drain()
        if reset:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    return behave


def _deaf(text: bytes) -> _Behaviour:
    async def behave(reader: _Reader, writer: _Writer) -> None:
        writer.write(text)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(HANG_GUARD)

    return behave


def _endless(before: bytes, more: bytes) -> _Behaviour:
    async def behave(reader: _Reader, writer: _Writer) -> None:
        writer.write(before)
        while True:
            writer.write(more)
            await writer.drain()
            await asyncio.sleep(0.2)

    return behave


def _asking(text: bytes) -> _Behaviour:
    async def behave(reader: _Reader, writer: _Writer) -> None:
        writer.write(text)
        await reader.read(-1)

    return behave
