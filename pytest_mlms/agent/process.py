"""The pytest side's handle on an agent process: start it, exchange frames under deadlines, end its
whole tree.

Knows nothing of models or manifests; pytest_mlms.agent.predictor does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import mlms_predictors
import psutil
from mlms_predictors._run import protocol
from numpy.typing import NDArray

from pytest_mlms.agent.log import LogFile
from pytest_mlms.errors import AgentError
from pytest_mlms.records import Launch

__all__ = ["Agent", "Array", "Refused", "Reply", "start_agent"]

Array = NDArray[Any]

WORKER = Path(str(mlms_predictors.__file__)).parent / "_run" / "worker.py"
_GRACE = 60.0  # seconds for an agent to end by itself, which takes none where a machine is idle


class Refused(AgentError):
    """The agent lives, and answered with what the framework raised.

    ``error`` is the exception's class name.
    """

    def __init__(self, text: str, error: str) -> None:
        super().__init__(text)
        self.error = error


class Reply(NamedTuple):
    """A reply's facts and its arrays by name."""

    facts: dict[str, Any]
    arrays: dict[str, Array]


class _Channel:
    """Frames to and from the agent's pipes, never waiting past ``deadline`` (monotonic clock,
    seconds).
    """

    def __init__(
        self, process: subprocess.Popen[bytes], requests: IO[bytes], replies: IO[bytes]
    ) -> None:
        self.deadline = 0.0
        self._process = process
        self._requests, self._replies = requests, replies
        self._ahead = bytearray()
        for pipe in (requests, replies):
            os.set_blocking(pipe.fileno(), False)
            with contextlib.suppress(OSError, AttributeError):  # larger pipes exist on Linux only
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)

    def write(self, buffers: Iterable[Any]) -> None:
        """Send the buffers of a frame."""
        for buffer in buffers:
            view = memoryview(buffer)
            while view:
                try:
                    view = view[os.write(self._requests.fileno(), view) :]
                except BlockingIOError:
                    self._wait(self._requests, selectors.EVENT_WRITE)

    def readline(self, limit: int) -> bytes:
        """Return the next line; raises EOFError where the channel ends."""
        while (end := self._ahead.find(b"\n")) < 0 and len(self._ahead) < limit:
            data = bytearray(1 << 16)
            count = self._receive(memoryview(data))
            if not count:
                raise EOFError
            self._ahead += data[:count]
        end = len(self._ahead) if end < 0 else end + 1
        line = bytes(self._ahead[:end])
        del self._ahead[:end]
        return line

    def readinto(self, view: memoryview) -> int:
        """Fill some of ``view``; return how many bytes, 0 where the channel ends."""
        if not self._ahead:
            return self._receive(view)
        count = min(len(view), len(self._ahead))
        view[:count] = self._ahead[:count]
        del self._ahead[:count]
        return count

    @property
    def closed(self) -> bool:
        """Whether the pipes are closed."""
        return self._requests.closed

    def close(self) -> None:
        """Close both pipes."""
        self._requests.close()
        self._replies.close()

    def _receive(self, view: memoryview) -> int:
        while True:
            try:
                return os.readv(self._replies.fileno(), [view])
            except BlockingIOError:
                self._wait(self._replies, selectors.EVENT_READ)

    def _wait(self, pipe: IO[bytes], event: int) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, event)
            while not selector.select(max(0.0, min(self.deadline - time.monotonic(), 0.5))):
                if self._process.poll() is not None and not selector.select(0):
                    raise EOFError  # dead, though a child of it may hold the pipe open
                if time.monotonic() >= self.deadline:
                    raise TimeoutError


@dataclass(frozen=True)
class Agent:
    """A running agent. Any error but Refused ends its process tree, so that the next item starts a
    fresh one.
    """

    process: subprocess.Popen[bytes]
    channel: _Channel
    log: LogFile
    timeout: float
    end: tuple[str, ...] = ()

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def request(
        self,
        kind: str,
        fields: Mapping[str, Any] | None = None,
        arrays: Iterable[tuple[str, Array]] = (),
        seconds: float = 0.0,
    ) -> Reply:
        """Send a request and wait for its reply: at most the time-out and the ``seconds`` that the
        work itself takes.

        Raises Refused with what the framework raised; AgentError where there is no reply to be had.
        """
        if self.channel.closed:
            raise AgentError(self._report("has ended; ask for a new one"))
        limit = self.timeout + seconds
        self.channel.deadline = time.monotonic() + limit
        try:
            frame = protocol.encode({**(fields or {}), "type": kind}, arrays)
            with contextlib.suppress(BrokenPipeError):  # what it said before it ended tells more
                self.channel.write(frame)
            facts, named = protocol.read_frame(self.channel)
        except TimeoutError:
            self.kill()
            raise AgentError(
                self._report(
                    f"gave no reply to '{kind}' in {limit:g} s and was killed; slow? raise --mlms-timeout"
                )
            ) from None
        except EOFError:
            raise AgentError(
                self._report(f"ended while it did '{kind}': {self._ending()}")
            ) from None
        except protocol.ProtocolError as error:
            self.kill()
            raise AgentError(self._report(f"can't exchange frames for '{kind}': {error}")) from None
        except BaseException:  # Ctrl-C: the reply that is under way belongs to nobody now
            self.kill()
            raise
        if facts["type"] == "error":
            if facts["error"] == "MemoryError":
                self.kill()  # what it can still allocate is anybody's guess
            raise Refused(
                f"'{kind}' raised {facts['error']}: {facts['message']} (log: {self.log.path})",
                facts["error"],
            )
        return Reply(facts, dict(named))

    def pause(self) -> None:
        """Stop the process and what it started, until resume().

        What they would do while another has its turn.
        """
        if self.alive:
            os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on; no harm where they run."""
        if self.alive:
            os.killpg(self.process.pid, signal.SIGCONT)

    def close(self) -> None:
        """Let the agent end by itself, then end what is left of its tree."""
        if self.alive:
            self.resume()
            self.channel.deadline = time.monotonic() + _GRACE
            with contextlib.suppress(OSError):
                self.channel.write(protocol.encode({"type": "bye"}))
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_GRACE)
        self.kill()

    def kill(self) -> None:
        """End the process and all that it started, also what left its process group.

        Once, as numbers come again.
        """
        if self.channel.closed:
            return
        self.resume()
        family = [psutil.Process(self.process.pid)] if self.alive else []
        with contextlib.suppress(psutil.NoSuchProcess):
            family += family[0].children(recursive=True) if family else []
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        self.process.wait()
        if self.end:  # a container is no child of its client
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    self.end,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_GRACE,
                    check=False,
                )
        self.channel.close()
        self.log.close()

    def _ending(self) -> str:
        try:
            code = self.process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self.kill()
            return "it closed its channel but went on running, and was killed"
        self.kill()
        if code >= 0:
            return f"exit status {code}; its log may say why"
        if -code == signal.SIGKILL:
            return "killed by SIGKILL, as the kernel does when memory runs out (see dmesg); try a smaller batch"
        return f"killed by {signal.Signals(-code).name}; a fault of the framework or its build: try another version"

    def _report(self, what: str) -> str:
        tail = self.log.tail()
        if not tail:
            return f"the agent (process {self.process.pid}) {what}\n  it wrote no log"
        shown = "\n".join(f"    {line}" for line in tail)
        return f"the agent (process {self.process.pid}) {what}\n  its log, {self.log.path}, ends:\n{shown}"


def start_agent(launch: Launch, predictor: Path, log: Path, timeout: float) -> Agent:
    """Start an agent for a predictor as ``launch`` says; its log goes to ``log``."""
    name = f"mlms-agent-{os.getpid()}-{os.urandom(4).hex()}"
    command, end = (
        [part.replace("{agent}", name) for part in parts] for parts in (launch.command, launch.end)
    )
    cores = ["--cores", ",".join(map(str, launch.cores))] if launch.cores else []
    try:
        process = subprocess.Popen(
            [*command, str(WORKER), str(predictor), *cores],
            env=dict(launch.env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for pytest, and the group is what kill() ends
        )
    except OSError as error:
        raise AgentError(
            f"can't start {launch.command[0]}: {error.strerror}; is it an interpreter?"
        ) from error
    requests, replies, errors = (
        cast(IO[bytes], pipe) for pipe in (process.stdin, process.stdout, process.stderr)
    )
    return Agent(
        process,
        _Channel(process, requests, replies),
        LogFile.drain(errors, log),
        timeout,
        tuple(end),
    )
