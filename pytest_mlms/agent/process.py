"""The process of an agent: start it, exchange frames under deadlines, end its whole process tree.

It is not aware of models or manifests; ``pytest_mlms.agent.predictor`` is.
"""

from __future__ import annotations

import contextlib
import os
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

from pytest_mlms.agent.channel import Channel
from pytest_mlms.agent.log import LogFile
from pytest_mlms.errors import AgentError
from pytest_mlms.records import Launch

__all__ = ["Agent", "Array", "Refused", "Reply", "start_agent"]

Array = NDArray[Any]

WORKER = Path(str(mlms_predictors.__file__)).parent / "_run" / "worker.py"
_GRACE = 60.0  # seconds for an agent to end by itself; on an idle machine it takes none


class Refused(AgentError):
    """An error that the framework raised in an agent, which goes on running.

    ``error`` is the name of the exception's class.
    """

    def __init__(self, text: str, error: str) -> None:
        super().__init__(text)
        self.error = error


class Reply(NamedTuple):
    """The fields of a reply, and its arrays by name."""

    facts: dict[str, Any]
    arrays: dict[str, Array]


@dataclass(frozen=True)
class Agent:
    """A running agent.

    ``timeout`` is the longest wait for a reply, in seconds, beside the time that the work itself
    takes. ``end`` is a command that ends what outlives the process. Any error but Refused ends the
    process tree, so that the next item starts a fresh agent.
    """

    process: subprocess.Popen[bytes]
    channel: Channel
    log: LogFile
    timeout: float
    end: tuple[str, ...] = ()

    @property
    def alive(self) -> bool:
        """True if the process runs."""
        return self.process.poll() is None

    def request(
        self,
        kind: str,
        fields: Mapping[str, Any] | None = None,
        arrays: Iterable[tuple[str, Array]] = (),
        seconds: float = 0.0,
    ) -> Reply:
        """Send a request and return its reply.

        ``seconds`` is the time that the work itself may take. Raises Refused with what the
        framework raised, and AgentError where there is no reply.
        """
        if self.channel.closed:
            raise AgentError(self._report("has ended; ask for a new one"))
        header = {**(fields or {}), "type": kind}
        reply = self._exchange(header, arrays, self.timeout + seconds)
        if reply.facts["type"] == "error":
            raise self._refusal(kind, reply.facts)
        return reply

    def pause(self) -> None:
        """Stop the process and what it started, until resume()."""
        if self.alive:
            os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process and what it started; does nothing where they run."""
        if self.alive:
            os.killpg(self.process.pid, signal.SIGCONT)

    def close(self) -> None:
        """Ask the agent to end, and end what is left of its process tree."""
        if self.alive:
            self.resume()
            self.channel.deadline = time.monotonic() + _GRACE
            with contextlib.suppress(OSError, EOFError):
                self.channel.write(protocol.encode({"type": "bye"}))
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_GRACE)
        self.kill()

    def kill(self) -> None:
        """End the process and all that it started, also what left its process group.

        Does nothing the second time: the system may have given the process's number to another.
        """
        if self.channel.closed:
            return
        self.resume()
        family = self._family()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        self.process.wait()
        self._run_end_command()
        self.channel.close()
        self.log.close()

    def _exchange(
        self, header: Mapping[str, Any], arrays: Iterable[tuple[str, Array]], limit: float
    ) -> Reply:
        """Send a frame and return the one that answers it; end the agent where there is none."""
        kind = header["type"]
        self.channel.deadline = time.monotonic() + limit
        try:
            frame = protocol.encode(dict(header), arrays)
            # Where the process has ended, reading tells how.
            with contextlib.suppress(BrokenPipeError):
                self.channel.write(frame)
            facts, named = protocol.read_frame(self.channel)
            return Reply(facts, dict(named))
        except TimeoutError:
            self.kill()
            problem = f"gave no reply to '{kind}' in {limit:g} s and was killed"
            raise AgentError(
                self._report(f"{problem}; if it is only slow, raise --mlms-timeout")
            ) from None
        except EOFError:
            problem = f"ended while it did '{kind}': {self._ending()}"
            raise AgentError(self._report(problem)) from None
        except protocol.ProtocolError as error:
            self.kill()
            problem = f"can't exchange frames for '{kind}': {error}"
            raise AgentError(self._report(problem)) from None
        except BaseException:  # Ctrl-C: nobody will read the reply
            self.kill()
            raise

    def _refusal(self, kind: str, facts: Mapping[str, Any]) -> Refused:
        error = facts["error"]
        if error == "MemoryError":
            self.kill()  # what it can still allocate is not known
        message = facts["message"]
        raised = f"{error}: {message}" if message else error
        return Refused(f"'{kind}' raised {raised} (log: {self.log.path})", error)

    def _family(self) -> list[psutil.Process]:
        """Return the process and its descendants."""
        if not self.alive:
            return []
        parent = psutil.Process(self.process.pid)
        try:
            children = parent.children(recursive=True)
        except psutil.NoSuchProcess:
            children = []
        return [parent, *children]

    def _run_end_command(self) -> None:
        """Run the command that ends a container, which is no child of its client."""
        if not self.end:
            return
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                self.end,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_GRACE,
                check=False,
            )

    def _ending(self) -> str:
        """Return how the process ended, in words."""
        try:
            code = self.process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self.kill()
            return "it closed its channel but went on running, and was killed"
        self.kill()
        if code >= 0:
            return f"exit status {code}; its log may say why"
        if -code == signal.SIGKILL:
            return (
                "killed by SIGKILL, as the kernel does when memory runs out (see dmesg); "
                "try a smaller batch"
            )
        name = signal.Signals(-code).name
        return f"killed by {name}; an error of the framework or its build: try another version"

    def _report(self, problem: str) -> str:
        """Return the text of an error, with the end of the agent's log."""
        subject = f"the agent (process {self.process.pid})"
        tail = self.log.tail()
        if not tail:
            return f"{subject} {problem}\n  it wrote no log"
        shown = "\n".join(f"    {line}" for line in tail)
        return f"{subject} {problem}\n  its log, {self.log.path}, ends:\n{shown}"


def start_agent(launch: Launch, predictor: Path, log: Path, timeout: float) -> Agent:
    """Start an agent for the predictor in the file ``predictor``.

    Its output goes to the file ``log``. Raises AgentError where the command can't be started.
    """
    name = f"mlms-agent-{os.getpid()}-{os.urandom(4).hex()}"
    command = [part.replace("{agent}", name) for part in launch.command]
    end = [part.replace("{agent}", name) for part in launch.end]
    command += [str(WORKER), str(predictor)]
    if launch.cores:
        command += ["--cores", ",".join(map(str, launch.cores))]
    try:
        process = subprocess.Popen(
            command,
            env=dict(launch.env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for pytest, and kill() ends the group
        )
    except OSError as error:
        raise AgentError(
            f"can't start {launch.command[0]}: {error.strerror}; is it an interpreter?"
        ) from error
    requests = cast(IO[bytes], process.stdin)
    replies = cast(IO[bytes], process.stdout)
    errors = cast(IO[bytes], process.stderr)
    channel = Channel(process, requests, replies)
    return Agent(process, channel, LogFile.drain(errors, log), timeout, tuple(end))
