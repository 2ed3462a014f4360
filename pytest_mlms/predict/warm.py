"""Models that are kept open for many requests, and the turns that these take.

Each model is in a process of its own (``warm_child``), with its agent below it. One request at a
time works on a device; the others wait, in the order in which they came.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shutil
import signal
import struct
import tempfile
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from mlms_predictors._run import protocol
from numpy.typing import NDArray

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.starts import module_command
from pytest_mlms.predict.inputs import Given
from pytest_mlms.provide.host.locks import locks_folder

Array = NDArray[Any]

_SECRETS = ("MLMS_PORTAL_TOKEN", "MLMS_PUSH_TOKEN")
_MOST_REPLY = 160 << 20  # bytes
_CLOSING_SECONDS = 10.0
_BUSY_SECONDS = 5.0  # for which nobody waits again for a device that others held
_LONGEST_ADVICE = 60  # seconds after which to come back
_WEIGHT = 0.1  # of the last request in the mean time of one


class Refusal(MlmsError):
    """A request that isn't answered, and why.

    ``kind`` is ``input`` for what was sent, ``unknown`` for a manifest whose file is gone,
    ``unavailable`` for a model or stack that can't be used here, ``crowded`` where too many wait,
    ``busy`` where others hold the device, ``slow`` for what took too long, ``failed`` for the rest.
    ``again`` are the seconds after which it may be asked again, 0 where that isn't known.
    """

    def __init__(self, kind: str, text: str, again: int = 0) -> None:
        super().__init__(text)
        self.kind = kind
        self.again = again


@dataclass(frozen=True)
class WarmLimits:
    """Bounds of models that are kept open, in seconds where nothing else is said."""

    models: int = 3
    waiting: int = 256
    """Requests that wait or are answered at a time."""
    call: float = 60
    """For the answer to a request, from its turn on; then its process is ended."""
    opening: float = 1200
    """For downloads, the making of a stack, and the loading of a model."""
    patience: float = 20
    """For a device that another process holds."""
    idle: float = 900
    """After which a model is closed that nobody asks."""


@dataclass(frozen=True)
class Reply:
    """The fields of a reply, and its arrays by name."""

    fields: Mapping[str, Any]
    arrays: Mapping[str, Array]


_Key = tuple[Path, int, str]


@dataclass
class _Lane:
    """A device: who has its turn, and since when others hold it."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    refused: float = -_BUSY_SECONDS
    reason: str = ""

    def check(self) -> None:
        """Raise Refusal where somebody has just waited for the device in vain."""
        if time.monotonic() - self.refused < _BUSY_SECONDS:
            raise Refusal("busy", self.reason, round(_BUSY_SECONDS))

    def note(self, refusal: Refusal) -> None:
        """Take note of an error."""
        if refusal.kind == "busy":
            self.refused, self.reason = time.monotonic(), str(refusal)


class _WarmModel:
    """A model's process. ``users`` are the requests that wait for it, or have it.

    ``files`` removes its temporary files and those of its agent, when it is closed.
    """

    def __init__(self, process: asyncio.subprocess.Process, files: contextlib.ExitStack) -> None:
        self.process = process
        self._files = files
        self.users = 0
        self.device = ""
        self.opening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closing: asyncio.TimerHandle | None = None
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """True if the process has ended, or will."""
        return self._is_over or self.process.returncode is not None

    async def ask(
        self, fields: Mapping[str, Any], arrays: Mapping[str, Array], seconds: float
    ) -> Reply:
        """Return the reply to a request; the process is ended where there is none in time."""
        try:
            return await asyncio.wait_for(self._ask(fields, arrays), seconds)
        except asyncio.TimeoutError:
            self.kill()
            raise Refusal(
                "slow", f"it took more than {seconds:g} s, and was ended; give the model less"
            ) from None
        except (OSError, EOFError, protocol.ProtocolError):
            self.kill()
            code = await self.process.wait()
            raise Refusal("failed", f"the model's process ended with status {code}") from None
        except asyncio.CancelledError:
            self.kill()
            raise

    async def next_reply(self) -> Reply:
        """Return a reply; raises Refusal for an error."""
        assert self.process.stdout is not None
        (length,) = struct.unpack("<Q", await self.process.stdout.readexactly(8))
        if length > _MOST_REPLY:
            raise protocol.ProtocolError(f"a reply has {length:,} bytes")
        content = await self.process.stdout.readexactly(length)
        fields, arrays = protocol.read_frame(io.BytesIO(content))
        if fields["type"] == "error":
            raise Refusal(fields["kind"], fields["text"])
        return Reply(fields, dict(arrays))

    def kill(self) -> None:
        """End the process at once; the supervisor of its agent ends that."""
        self._is_over = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def close(self) -> None:
        """End the process in order, or by force where it doesn't end, and remove its files."""
        self._is_over = True
        if self.closing is not None:
            self.closing.cancel()
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), _CLOSING_SECONDS)
        except asyncio.TimeoutError:
            self.kill()
            await self.process.wait()
        await asyncio.to_thread(self._files.close)

    async def _ask(self, fields: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        assert self.process.stdin is not None
        self.process.stdin.writelines(protocol.encode(dict(fields), arrays.items()))
        await self.process.stdin.drain()
        return await self.next_reply()


class WarmModels:
    """The models that are open. ``folder`` is that of their manifests.

    ``may_create`` lets a stack be made that isn't there.
    """

    def __init__(self, folder: Path, may_create: bool, limits: WarmLimits) -> None:
        self._folder = folder
        self._may_create = may_create
        self._limits = limits
        self._models: OrderedDict[_Key, _WarmModel] = OrderedDict()
        self._lanes: dict[str, _Lane] = {}
        self._door = asyncio.Lock()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ends: set[asyncio.Task[None]] = set()
        self._asked = 0
        self._is_closed = False
        self._pace = 0.1

    async def ask(
        self,
        manifest: Path,
        stack: str,
        fields: Mapping[str, Any],
        arrays: Mapping[str, Array] | None = None,
    ) -> Reply:
        """Return the reply of a manifest's model on a stack, "" for the default, to a request.

        Raises Refusal. Whoever is cancelled while he waits leaves his place to the others; a
        request that has its turn goes on to its end.
        """
        if self._asked >= self._limits.waiting:
            again = max(1, min(_LONGEST_ADVICE, round(self._asked * self._pace)))
            raise Refusal("crowded", f"{self._asked} requests wait; ask again later", again)
        self._asked += 1
        try:
            while True:
                reply = await self._answer(self._key(manifest, stack), fields, arrays or {})
                if reply is not None:
                    return reply
        finally:
            self._asked -= 1

    async def close(self) -> None:
        """Close all models; who still waits for one gets a Refusal."""
        self._is_closed = True
        self._changed.set()
        async with self._door:  # where a process may be about to start
            for task in self._tasks:
                task.cancel()
            for key in list(self._models):
                self._end(key)
            await asyncio.gather(*self._ends)

    def _key(self, manifest: Path, stack: str) -> _Key:
        """Return what a model is known by: another content of its manifest is another one."""
        try:
            return manifest, manifest.stat().st_mtime_ns, stack
        except OSError:
            name = manifest.relative_to(self._folder)
            raise Refusal("unknown", f"{name}: the manifest's file is gone") from None

    async def _answer(
        self, key: _Key, fields: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> Reply | None:
        """Return a reply; None where the model ended while the request waited for it."""
        model = await self._taken(key)
        try:
            await asyncio.shield(model.opening)
            lane = self._lane(model)
            await lane.turn.acquire()
        except BaseException:
            self._leave(model)
            raise
        return await asyncio.shield(self._task(self._turn(model, lane, fields, arrays)))

    async def _turn(
        self,
        model: _WarmModel,
        lane: _Lane,
        fields: Mapping[str, Any],
        arrays: Mapping[str, Array],
    ) -> Reply | None:
        began = time.monotonic()
        try:
            lane.check()
            if model.is_over:
                return None
            limits = self._limits
            return await model.ask(fields, arrays, limits.call + limits.patience)
        except Refusal as refusal:
            lane.note(refusal)
            raise self._without_folder(refusal) from None
        finally:
            self._pace += _WEIGHT * (time.monotonic() - began - self._pace)
            lane.turn.release()
            self._leave(model)

    async def _taken(self, key: _Key) -> _WarmModel:
        """Return the model, which is opened if need be, with one user more.

        Where there is no room, nobody comes in until a model has no users: it is closed.
        """
        async with self._door:
            while True:
                if self._is_closed:
                    raise Refusal("busy", "the models are being closed")
                self._forget_ended()
                model = self._models.get(key)
                if model is not None:
                    break
                if len(self._models) < self._limits.models:
                    model = self._models[key] = await self._start(key)
                    break
                idle = next((key for key, one in self._models.items() if not one.users), None)
                if idle is not None:
                    await asyncio.shield(self._end(idle))
                    continue
                self._changed.clear()
                await self._changed.wait()
            model.users += 1
            if model.closing is not None:
                model.closing.cancel()
            self._models.move_to_end(key)
            return model

    def _leave(self, model: _WarmModel) -> None:
        model.users -= 1
        if not model.users:
            self._changed.set()
            loop = asyncio.get_running_loop()
            model.closing = loop.call_later(self._limits.idle, self._close_idle, model)

    def _close_idle(self, model: _WarmModel) -> None:
        for key, one in list(self._models.items()):
            if one is model and not model.users:
                self._end(key)

    def _forget_ended(self) -> None:
        for key, model in list(self._models.items()):
            if model.is_over:
                self._end(key)

    def _end(self, key: _Key) -> asyncio.Task[None]:
        """Take a model out, and return what closes it, whoever is cancelled meanwhile."""
        ending = asyncio.ensure_future(self._models.pop(key).close())
        self._ends.add(ending)
        ending.add_done_callback(self._ends.discard)
        return ending

    async def _start(self, key: _Key) -> _WarmModel:
        """Start the process of a model; it is opened by a task."""
        manifest, _, stack = key
        options = {
            "manifest": str(manifest),
            "stack": stack,
            "create": self._may_create,
            "patience": self._limits.patience,
        }
        env = {name: value for name, value in os.environ.items() if name not in _SECRETS}
        env["MLMS_LOCKS"] = str(locks_folder())  # which may be in the usual folder of such files
        with contextlib.ExitStack() as made:
            try:
                folder = tempfile.mkdtemp(prefix="mlms-model-")
                made.callback(shutil.rmtree, folder, ignore_errors=True)
                process = await asyncio.create_subprocess_exec(
                    *module_command("pytest_mlms.predict.warm_child"),
                    json.dumps(options),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    env={**env, "TMPDIR": folder},
                    cwd=self._folder,
                    start_new_session=True,
                )
            except OSError as error:
                problem = f"no process can be started for the model: {error.strerror}"
                raise Refusal("failed", problem) from None
            model = _WarmModel(process, made.pop_all())
        self._task(self._open(model))
        return model

    async def _open(self, model: _WarmModel) -> None:
        """Open a model, whose users wait for its ``opening``; end the process of one that can't."""
        try:
            found = await asyncio.wait_for(model.next_reply(), self._limits.opening)
            model.device = found.fields["device"]
            lane = self._lane(model)
            async with lane.turn:
                lane.check()
                try:
                    await model.ask({"type": "open"}, {}, self._limits.opening)
                except Refusal as refusal:
                    lane.note(refusal)
                    raise
        except Refusal as refusal:
            model.kill()
            model.opening.set_exception(self._without_folder(refusal))
        except (OSError, EOFError, protocol.ProtocolError, asyncio.TimeoutError):
            model.kill()
            problem = "the model can't be opened: its process ended, or took too long"
            model.opening.set_exception(Refusal("failed", problem))
        else:
            model.opening.set_result(None)
        finally:
            model.opening.cancel()  # where this was
            with contextlib.suppress(asyncio.InvalidStateError, asyncio.CancelledError):
                model.opening.exception()  # nobody may wait for it any more

    def _lane(self, model: _WarmModel) -> _Lane:
        return self._lanes.setdefault(model.device, _Lane())

    def _without_folder(self, refusal: Refusal) -> Refusal:
        """Return an error that doesn't tell where the manifests are."""
        text = str(refusal).replace(f"{self._folder}/", "")
        return Refusal(refusal.kind, text, refusal.again)

    def _task(self, work: Any) -> asyncio.Task[Any]:
        """Return a task that goes on without those who wait for it."""
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task


def frame_of(given: Given) -> tuple[list[tuple[str, str, str]], dict[str, Array]]:
    """Return an input as ``warm_child`` reads it.

    For each part of it there are its column, "" for the only one, its form, and the name of the
    array that has it.
    """
    values = given if isinstance(given, Mapping) else {"": given}
    parts: list[tuple[str, str, str]] = []
    arrays: dict[str, Array] = {}
    for column, value in values.items():
        name = str(len(arrays))
        if isinstance(value, Path):
            raise TypeError("what is sent to a portal has no paths")
        if isinstance(value, np.ndarray):
            form, array = "array", value
        elif isinstance(value, bytes):
            form, array = "bytes", np.frombuffer(value, np.uint8)
        else:
            form, array = "json", np.frombuffer(json.dumps(value).encode(), np.uint8)
        parts.append((column, form, name))
        arrays[name] = array
    return parts, arrays


def given_of(parts: Sequence[tuple[str, str, str]], arrays: Mapping[str, Array]) -> Given:
    """Return the input that ``frame_of`` has taken apart."""
    found: dict[str, Any] = {}
    for column, form, name in parts:
        found[column] = arrays[name]
        if form != "array":
            content = arrays[name].tobytes()
            found[column] = json.loads(content) if form == "json" else content
    given: Given = found.get("", found)
    return given
