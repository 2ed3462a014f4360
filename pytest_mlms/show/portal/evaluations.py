"""Evaluations that people start from a page: pytest as a child of the portal, one at a time."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from pytest_mlms.core.child_session import kill, starting
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import write_atomically
from pytest_mlms.core.serialization import from_plain
from pytest_mlms.measure.trace import LEVELS

_FIELDS = ("manifest", "stack", "against", "trace", "full")
_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")
_RUN = re.compile(rb"; results (?:[^\n]*/)?([\w.+-]+)\n")
_SECRETS = ("MLMS_PORTAL_TOKEN", "MLMS_PUSH_TOKEN")
_MOST_OUTPUT = 16 << 20  # bytes
_CHUNK = 1 << 16
_LONGEST_HEAD = 1 << 14  # bytes
_GRACE_SECONDS = 30  # between Ctrl-C and the end by force
_HEARTBEAT_SECONDS = 2.0
_KEPT = 200


class BadRequest(MlmsError):
    """An evaluation was asked for that can't be, or must not be, started."""


@dataclass(frozen=True)
class EvaluationRequest:
    """A manifest by its path below the folder, and options; empty ones are left out."""

    manifest: str
    stack: str = ""
    against: str = ""
    trace: tuple[str, ...] = ()
    full: bool = False

    def options(self) -> Iterator[str]:
        """Yield the options of pytest; each is one word, so that no value becomes an option."""
        if self.stack:
            yield f"--mlms-stack={self.stack}"
        if self.against:
            yield f"--mlms-against={self.against}"
        if self.trace:
            yield f"--mlms-trace={','.join(self.trace)}"
        if self.full:
            yield "--mlms-full"


def read_request(
    fields: Mapping[str, Any], manifests: Collection[str], stacks: Collection[str]
) -> EvaluationRequest:
    """Return what a form or a JSON object asks for.

    ``manifests`` and ``stacks`` are those that may be named. Raises BadRequest.
    """
    for name in fields:
        if name not in _FIELDS:
            raise BadRequest(f"{name[:50]!r} is no field; there are {', '.join(_FIELDS)}")
    manifest = fields.get("manifest")
    if not isinstance(manifest, str) or manifest not in manifests:
        raise BadRequest("there is no such manifest in the portal's folder; name one of its list")
    for name in ("stack", "against"):
        stack = fields.get(name)
        if stack and (not isinstance(stack, str) or stack not in stacks):
            raise BadRequest(f"there is no such stack; there are {', '.join(sorted(stacks))}")
    asked = str(fields.get("trace") or "")
    levels = asked.split(",") if asked else []
    if any(level not in LEVELS for level in levels):
        raise BadRequest(f"there is no such level of traces; there are {', '.join(LEVELS)}")
    return EvaluationRequest(
        manifest=manifest,
        stack=fields.get("stack") or "",
        against=fields.get("against") or "",
        trace=tuple(level for level in LEVELS if level in levels),
        full=fields.get("full") in (True, "on", "true"),
    )


class Busy(MlmsError):
    """An evaluation goes on already."""


@dataclass(frozen=True)
class Evaluation:
    """An evaluation; ``status`` is pytest's, None while it goes on.

    ``run`` is the name of its run once pytest has told it. Times are ISO 8601, UTC.
    """

    id: str
    request: EvaluationRequest
    started: str
    ended: str = ""
    status: int | None = None
    run: str = ""
    cancelled: bool = False


@dataclass
class _Child:
    """A session that runs, and its lifeline.

    ``head`` is what it printed first, where it names its run.
    """

    process: asyncio.subprocess.Process
    lifeline: IO[bytes]
    evaluation: Evaluation
    head: bytes = b""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def interrupt(self) -> None:
        """Do what Ctrl-C does."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)


class Evaluations:
    """Starts evaluations of the manifests of a folder, and keeps what they printed."""

    def __init__(self, manifests: Path, results: Path, folder: Path) -> None:
        self._manifests = manifests
        self._results = results
        self._folder = folder
        self._child: _Child | None = None
        self._is_starting = False
        self._following: asyncio.Task[None] | None = None

    def all(self) -> Sequence[Evaluation]:
        """Return the evaluations, the newest first."""
        names = sorted(
            (path.parent.name for path in self._folder.glob("*/about.json")), reverse=True
        )
        found = [self.get(name) for name in names[:_KEPT]]
        return [evaluation for evaluation in found if evaluation is not None]

    def get(self, name: str) -> Evaluation | None:
        """Return an evaluation by its id."""
        if self._child is not None and self._child.evaluation.id == name:
            return self._child.evaluation
        if not _NAME.fullmatch(name):
            return None
        try:
            plain = json.loads((self._folder / name / "about.json").read_text())
            evaluation = from_plain(Evaluation, plain)
        except (OSError, ValueError):
            return None
        if evaluation.status is None:  # the portal was killed
            return replace(evaluation, status=-1)
        return evaluation

    def output(self, name: str, start: int = 0) -> bytes:
        """Return what an evaluation printed, from a byte on."""
        if not _NAME.fullmatch(name):
            return b""
        try:
            with (self._folder / name / "output.log").open("rb") as file:
                file.seek(start)
                return file.read(_MOST_OUTPUT)
        except OSError:
            return b""

    @property
    def running(self) -> Evaluation | None:
        """The evaluation that goes on."""
        return self._child.evaluation if self._child else None

    async def start(self, request: EvaluationRequest) -> Evaluation:
        """Start an evaluation; raises Busy while another one goes on, and OSError."""
        if self._child is not None or self._is_starting:
            raise Busy("an evaluation goes on; wait for it, or cancel it")
        self._is_starting = True
        try:
            self._child = await self._start(request)
        finally:
            self._is_starting = False
        self._following = asyncio.create_task(self._follow(self._child))
        return self._child.evaluation

    async def cancel(self) -> None:
        """Interrupt the evaluation that goes on, and wait for its end."""
        child = self._child
        following = self._following
        if child is None or following is None:
            return
        child.evaluation = replace(child.evaluation, cancelled=True)
        child.interrupt()
        done, _ = await asyncio.wait([following], timeout=_GRACE_SECONDS)
        if not done:
            kill(child.process.pid)
            await asyncio.wait([following])

    async def events(self, name: str, start: int) -> AsyncIterator[tuple[int, str]]:
        """Yield what an evaluation prints, from a byte on, with the number of the next byte.

        An empty text is a sign of life. Ends when the evaluation has ended.
        """
        while True:
            child = self._child
            is_over = child is None or child.evaluation.id != name
            text, length = whole_characters(self.output(name, start), is_over)
            start += length
            if text:
                yield start, text
            if child is None or is_over:
                return
            if not text and not await _changed_within(child, _HEARTBEAT_SECONDS):
                yield start, ""

    async def _start(self, request: EvaluationRequest) -> _Child:
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(3).hex()}"
        (self._folder / name).mkdir(parents=True)
        (self._folder / name / "output.log").touch()
        evaluation = Evaluation(name, request, _now())
        self._write(evaluation)
        environment = {key: value for key, value in os.environ.items() if key not in _SECRETS}
        environment["COLUMNS"] = "100"
        arguments = [
            *("-p", "no:cacheprovider"),
            "--color=no",
            f"--mlms-manifests={self._manifests / request.manifest}",
            f"--mlms-results={self._results}",
            *request.options(),
        ]
        with starting(arguments, environment, of_python=["-u"]) as start:
            process = await asyncio.create_subprocess_exec(
                *start.command,
                **start.keywords,
                cwd=self._manifests,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        return _Child(process, start.lifeline, evaluation)

    async def _follow(self, child: _Child) -> None:
        """Keep what a child prints until it ends; a full disk costs what it can't keep of that."""
        assert child.process.stdout is not None
        kept = 0
        with (self._folder / child.evaluation.id / "output.log").open("ab", buffering=0) as log:
            while part := await child.process.stdout.read(_CHUNK):
                shown = part[: _MOST_OUTPUT - kept]
                with contextlib.suppress(OSError):
                    kept += log.write(shown) or 0
                self._note_run(child, shown)
                await _notify(child)
        status = await child.process.wait()
        child.lifeline.close()
        ended = replace(child.evaluation, ended=_now(), status=status)
        child.evaluation = ended
        with contextlib.suppress(OSError):
            self._write(ended)
        self._child = None
        await _notify(child)

    def _note_run(self, child: _Child, part: bytes) -> None:
        if child.evaluation.run or len(child.head) > _LONGEST_HEAD:
            return
        child.head += part  # a line may come in parts
        found = _RUN.search(child.head)
        if found:
            run = found[1].decode(errors="replace")
            child.evaluation = replace(child.evaluation, run=run)

    def _write(self, evaluation: Evaluation) -> None:
        text = json.dumps(asdict(evaluation), indent=1)
        write_atomically(self._folder / evaluation.id / "about.json", text)


def whole_characters(output: bytes, is_over: bool) -> tuple[str, int]:
    """Return a part of an output as text, and the bytes of that.

    A character whose last bytes are missing is left for the next part, unless the output is over.
    What is no UTF-8 is replaced.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(output, is_over)
    unread, _ = decoder.getstate()
    return text, len(output) - len(unread)


async def _changed_within(child: _Child, seconds: float) -> bool:
    """Return whether a child has printed something, or ended, within a time."""
    async with child.changed:
        with contextlib.suppress(asyncio.TimeoutError):
            return await asyncio.wait_for(child.changed.wait(), seconds)
    return False


async def _notify(child: _Child) -> None:
    async with child.changed:
        child.changed.notify_all()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
