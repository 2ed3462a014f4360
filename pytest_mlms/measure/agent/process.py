"""The process of an agent: start it, exchange frames under deadlines, end its whole process tree.

On Linux the process that is started is a supervisor, which ends all that descends from the agent:
mlms_predictors._run.supervisor describes it.

It is not aware of models or manifests; ``pytest_mlms.measure.agent.predictor`` is.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import mlms_predictors
import psutil
from mlms_predictors._run import protocol
from numpy.typing import NDArray

from pytest_mlms.core.errors import AgentError
from pytest_mlms.core.memory import oom_kills
from pytest_mlms.core.records import Launch
from pytest_mlms.measure.agent.channel import Channel, LogFile, check_answers, unique

Array = NDArray[Any]

WORKER = Path(str(mlms_predictors.__file__)).parent / "_run" / "worker.py"
_STARTER = WORKER.with_name("starter.py")
_GRACE = 60.0  # seconds for an agent to end by itself; on an idle machine it takes none
_LEAST_WAIT = 60.0  # seconds for a reply, where another agent's time bounds the wait
_OF_A_TIMEOUT = 300.0  # seconds, in proportion to which that is longer
_TIMES_THE_PACE = 10
_TIMED = ("run", "turn", "load_run", "loadgen")
_KILL_SECONDS = 10.0  # for a supervisor to end everything
_TEARDOWN_SECONDS = 5.0  # of a process after its channel closed: a driver may free memory
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)  # the latter by the client of a container
_STILL_RAN = "it closed its channel but went on running, and was killed"
_EXITING = 0x4  # PF_EXITING of Linux, in the field "flags" of proc(5)


class Refused(AgentError):
    """An error that the framework raised in an agent, which goes on running.

    ``error`` is the name of the exception's class.
    """

    def __init__(self, text: str, error: str) -> None:
        super().__init__(text)
        self.error = error


class Reply(NamedTuple):
    """The fields of a reply, and its arrays by name.

    A complex array has real and imaginary parts along a last axis of 2, so that what compares,
    checks and keeps arrays sees both.
    """

    facts: dict[str, Any]
    arrays: dict[str, Array]


def _real_arrays(named: Iterable[tuple[str, Array]]) -> dict[str, Array]:
    """Return the arrays of a reply by name, complex ones as real ones."""
    return {name: _real_array(array) for name, array in unique(named).items()}


def _real_array(array: Array) -> Array:
    if array.dtype.kind != "c":
        return array
    parts = array.reshape(-1).view(array.real.dtype)
    return parts.reshape(*array.shape, 2)


@dataclass
class Agent:
    """A running agent.

    ``process`` is what was started: the agent itself, its supervisor, or the client of a container.
    ``own_pid`` is the process id of a supervised agent; None before its first reply, and where this
    system can't see it. ``timeout`` is the longest wait for a reply, in seconds, beside the time
    that the work itself takes. ``end`` is a command that ends what outlives the process. Any error
    but Refused ends the process tree, so that the next item starts a fresh agent.

    ``took`` has the most seconds that each type of request took. ``pace`` has the same of an agent
    that this one is compared with: a reply that takes ten times as long, and a minute, is none. A
    longer ``timeout`` makes the minute longer. ``after_calls`` is called just after timed calls,
    with the type and the fields of the request.
    """

    process: subprocess.Popen[bytes]
    channel: Channel
    log: LogFile
    timeout: float
    end: tuple[str, ...] = ()
    own_pid: int | None = None
    took: dict[str, float] = field(default_factory=dict)
    pace: Mapping[str, float] = field(default_factory=dict)
    after_calls: Callable[[str, Mapping[str, Any]], None] | None = None
    _asked: tuple[str, float] = ("", 0.0)
    _left: float = 0.0
    _oom_kills: int | None = field(default_factory=oom_kills)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def pid(self) -> int:
        """The process id of the agent; where that isn't known, of what was started."""
        return self.own_pid or self.process.pid

    @property
    def alive(self) -> bool:
        """True if the process runs."""
        return self.process.poll() is None

    @property
    def was_ended(self) -> bool:
        """True if the process was ended by an error, or since nobody needs it."""
        return self.channel.closed

    def request(
        self,
        kind: str,
        fields: Mapping[str, Any] | None = None,
        arrays: Iterable[tuple[str, Array]] = (),
        seconds: float = 0.0,
        take_part: Callable[[Reply], None] | None = None,
    ) -> Reply:
        """Send a request and return its reply.

        ``seconds`` is the time that the work itself may take. ``take_part`` gets the parts of a
        reply that come before its end; it raises ProtocolError for a part that is wrong. Raises
        Refused with what the framework raised, and AgentError where there is no reply.
        """
        if self.channel.closed:
            raise AgentError(self._report("has ended; ask for a new one"))
        header = {**(fields or {}), "type": kind, "number": next(self._numbers)}
        began = time.monotonic()
        reply = self._exchange(header, arrays, seconds, take_part)
        self.took[kind] = max(self.took.get(kind, 0.0), time.monotonic() - began)
        if reply.facts["type"] == "error":
            error = reply.facts["error"]
            if error == "MemoryError":
                self.kill()  # what it can still allocate is not known
            message = reply.facts["message"]
            raised = f"{error}: {message}" if message else error
            raise Refused(f"'{kind}' raised {raised} (log: {self.log.path})", error)
        if self.after_calls is not None and kind in _TIMED:
            self.after_calls(kind, header)
        return reply

    @contextlib.contextmanager
    def checking(self, kind: str) -> Iterator[None]:
        """Have a ProtocolError about the content of a reply end the agent, as AgentError."""
        try:
            yield
        except protocol.ProtocolError as error:
            raise self._fault(kind, error) from None

    def learn_pid(self, told: int) -> None:
        """Note the process id that the agent tells, if that is a supervised process of ours.

        One in a container has an id that means nothing here.
        """
        if told == self.process.pid:
            return
        with contextlib.suppress(psutil.NoSuchProcess, ValueError):
            ancestors = psutil.Process(told).parents()
            if any(ancestor.pid == self.process.pid for ancestor in ancestors):
                self.own_pid = told

    def pause(self) -> None:
        """Stop a supervised agent and what it started, until resume()."""
        self._signal_agent(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a supervised agent and what it started; does nothing where they run."""
        self._signal_agent(signal.SIGCONT)

    def hurry(self) -> None:
        """Shorten the wait of another thread for a reply by what ``pace`` has got meanwhile."""
        kind, began = self._asked
        self.channel.deadline = min(self.channel.deadline, began + self._longest_wait(kind))

    def close(self) -> None:
        """Ask the agent to end, and end what is left of its process tree."""
        if self.alive:
            self._say_bye(_GRACE)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_GRACE)
        self.kill()

    def leave(self, seconds: float, *, as_programs: bool = True) -> None:
        """Have the agent end, as programs do with their exit handlers and threads, or at once."""
        self._left = time.monotonic()
        if self.alive:
            self._say_bye(seconds, leave=as_programs)

    def end_of_leaving(self, seconds: float) -> str:
        """Wait for the end of an agent that leaves; return what went wrong, "" for nothing."""
        if self.channel.closed:
            return ""
        try:
            code = _wait(self.process, seconds)
            problem = f"failed at its exit: {self._ending_text(code)}" if code else ""
        except subprocess.TimeoutExpired:
            taken = time.monotonic() - self._left
            problem = f"had not ended {taken:.0f} s after its last answer, and was killed"
        text = self._report(problem) if problem else ""
        self.kill()
        return text

    def kill(self) -> None:
        """End the process and all that it started, also what left its process group.

        Does nothing the second time: the system may have given the process's number to another.
        """
        if self.channel.closed:
            return
        family = self._family()
        self._end_by_supervisor()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        self.process.wait()
        self._run_end_command()
        self.channel.close()
        self.log.close()

    def _say_bye(self, seconds: float, **fields: Any) -> None:
        self.resume()
        self.channel.deadline = time.monotonic() + seconds
        with contextlib.suppress(OSError, EOFError):
            self.channel.write(protocol.encode({"type": "bye", **fields}))

    def _longest_wait(self, kind: str) -> float:
        """Return the seconds to wait for a reply to this type of request."""
        if kind not in self.pace:
            return self.timeout
        least = _LEAST_WAIT * max(1.0, self.timeout / _OF_A_TIMEOUT)
        return min(self.timeout, max(least, _TIMES_THE_PACE * self.pace[kind]))

    def _exchange(
        self,
        header: Mapping[str, Any],
        arrays: Iterable[tuple[str, Array]],
        seconds: float,
        take_part: Callable[[Reply], None] | None,
    ) -> Reply:
        """Send a frame and return the one that answers it; end the agent where there is none."""
        kind = header["type"]
        self._asked = (kind, time.monotonic())
        self.channel.deadline = self._asked[1] + self._longest_wait(kind) + seconds
        try:
            frame = protocol.encode(dict(header), arrays)
            # Where the process has ended, reading tells how.
            with contextlib.suppress(BrokenPipeError):
                self.channel.write(frame)
            reply = self._read_reply(header)
            while take_part is not None and reply.facts.get("part") is True:
                take_part(reply)
                self.channel.check_deadline()
                reply = self._read_reply(header)
            return reply
        except TimeoutError:
            self.kill()
            limit = self._longest_wait(kind) + seconds
            problem = f"gave no reply to '{kind}' in {limit:g} s and was killed"
            advice = "if it is only slow, raise --mlms-timeout"
            if limit < self.timeout:
                advice = f"the other side took {self.pace[kind]:.3g} s at most; {advice}"
            raise AgentError(self._report(f"{problem}; {advice}")) from None
        except EOFError:
            code = self._end()
            ending = _STILL_RAN if code is None else self._ending_text(code)
            error = AgentError(self._report(f"ended while it did '{kind}': {ending}"))
            error.killed = code in _KILLED
            raise error from None
        except protocol.ProtocolError as error:
            raise self._fault(kind, error) from None
        except BaseException:  # Ctrl-C: nobody will read the reply
            self.kill()
            raise

    def _read_reply(self, header: Mapping[str, Any]) -> Reply:
        facts, named = protocol.read_frame(self.channel)
        check_answers(header["type"], header["number"], facts)
        return Reply(facts, _real_arrays(named))

    def _fault(self, kind: str, error: protocol.ProtocolError) -> AgentError:
        self.kill()
        return AgentError(self._report(f"can't exchange frames for '{kind}': {error}"))

    def _signal_agent(self, number: signal.Signals) -> None:
        if self.own_pid and self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.own_pid, number)

    def _end_by_supervisor(self) -> None:
        """Have the supervisor end everything; it doesn't where it was stopped, too."""
        if not sys.platform.startswith("linux") or self.end or not self.alive:
            return
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_KILL_SECONDS)

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

    def _end(self) -> int | None:
        """End the process tree; return the process's code, None where it did not end by itself."""
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.process.wait(self._seconds_to_end())
        self.kill()
        return code

    def _ending_text(self, code: int) -> str:
        """Return in words how the process ended, and what to do."""
        kills = oom_kills()
        if code in _KILLED and kills is not None and kills != self._oom_kills:
            return (
                "killed by the kernel, since memory ran out (its counter oom_kill says so); try a "
                "smaller batch, or give it more memory"
            )
        return _ending_text(code)

    def _seconds_to_end(self) -> float:
        """Return how long to wait for the end of an agent whose channel has ended.

        There is no need to wait for one that isn't ending.
        """
        flags = _flags_of(self.own_pid)
        if flags is None:
            return _TEARDOWN_SECONDS
        return _GRACE if flags & _EXITING else 0.0

    def _report(self, problem: str) -> str:
        """Return the text of an error, with the end of the agent's log."""
        subject = f"the agent (process {self.pid})"
        tail = self.log.tail()
        if not tail:
            return f"{subject} {problem}\n  it wrote no log"
        shown = "\n".join(f"    {line}" for line in tail)
        return f"{subject} {problem}\n  its log, {self.log.path}, ends:\n{shown}"


def _flags_of(process: int | None) -> int | None:
    """Return the kernel's flags of a process, None where they can't be read."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    fields_after_name = text.rpartition(")")[2].split()
    return int(fields_after_name[6])


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int:
    """Return the exit code of a process at once when it ends; Popen.wait looks now and then.

    Raises subprocess.TimeoutExpired.
    """
    if process.poll() is not None:  # its number may be that of another process by now
        return process.returncode
    with contextlib.suppress(AttributeError, OSError):  # of Linux 5.3 and later
        descriptor = os.pidfd_open(process.pid)
        try:
            ends = select.poll()  # of files with any number
            ends.register(descriptor, select.POLLIN)
            if ends.poll(1000 * seconds):
                return process.wait()
        finally:
            os.close(descriptor)
        raise subprocess.TimeoutExpired(process.args, seconds)
    return process.wait(seconds)


def _ending_text(code: int) -> str:
    """Return in words how a process ended, and what to do."""
    if code in _KILLED:
        return (
            "killed by SIGKILL, as the kernel does when memory runs out (see dmesg), whoever took "
            "it; run it again on an idle machine, or try a smaller batch"
        )
    if code >= 0:
        return f"exit status {code}; its log may say why"
    name = _signal_name(-code)
    return f"killed by {name}; an error of the framework or its build: try another version"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has a number only
        return f"signal {number}"


def start_agent(launch: Launch, predictor: Path, log: Path, timeout: float) -> Agent:
    """Start an agent for the predictor in the file ``predictor``; one of its own has none.

    Its output goes to the file ``log``. Raises AgentError where the command can't be started.
    """
    name = f"mlms-agent-{os.getpid()}-{os.urandom(4).hex()}"
    command = [part.replace("{agent}", name) for part in launch.command]
    end = [part.replace("{agent}", name) for part in launch.end]
    cores = ["--cores", ",".join(map(str, launch.cores))] if launch.cores else []
    if launch.is_agent:
        command = [sys.executable, "-I", "-S", "-B", str(_STARTER), *cores, *command]
    else:
        command += [str(WORKER), str(predictor), *cores]
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
