"""The supervisor of an agent: the process that pytest starts, and whose child is the agent.

It leaves nothing behind of the agent, neither after a crash nor after the end of pytest, not even
of an agent that is stopped or holds Python's lock in native code. Descendants of the agent stay
below the supervisor, also those with a session of their own, since it is their subreaper
(prctl(2)). It runs no code of the framework, sleeps until it has something to do, and ends as the
agent ended. SIGTERM has it end everything at once.

Only Linux has subreapers. Elsewhere the process that pytest starts is the agent.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
from typing import Any, NoReturn, Optional

from .channel import CLOSING

# Of prctl(2)
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36

_SYS_PIDFD_OPEN = 434  # since Linux 5.3; the same for every architecture but two old ones

_REQUESTS = 0  # the descriptor of a pipe whose other end pytest alone has
_TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def start_supervised() -> bool:
    """Go on in a child, which is the agent; this process becomes its supervisor.

    Return whether there is one. Must be called before anything starts a thread.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    supervisor = os.getpid()
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    agent = os.fork()
    if agent:
        _supervise(agent, libc)
    os.setsid()
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != supervisor:  # it ended before the kernel was asked
        os._exit(1)
    return True


def _supervise(agent: int, libc: Any) -> NoReturn:
    os.dup2(2, 1)  # the pipe of the replies is to end where the agent closes it
    events = _Events(agent, libc)
    if events.wait() == _Events.PYTEST_ENDED:
        events.forget_pytest()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(agent, signal.SIGCONT)  # a stopped agent can't free its model
        events.wait(CLOSING)
    status = _end_all(agent)
    _end_as(status, libc)


class _Events:
    """The events of a supervisor, which sleeps until the next one.

    The end of the agent is seen by a pidfd, as SIGCHLD would also come each time that the agent is
    stopped or continued. The end of pytest is seen by the pipe of the requests, and by the parent,
    since a process that pytest forked may still hold that pipe.
    """

    AGENT_ENDED = "agent ended"
    PYTEST_ENDED = "pytest ended"
    TOLD_TO_END = "told to end"

    def __init__(self, agent: int, libc: Any):
        self._agent = agent
        self._parent = os.getppid()
        self._signals = _signal_pipe((*_TO_END, signal.SIGUSR1))
        # Sent when a thread ends, which may be the last one of pytest.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1, 0, 0, 0)
        self._poll = select.poll()
        self._poll.register(self._signals, select.POLLIN)
        self._poll.register(_REQUESTS, 0)  # no events asked for: only the hang-up is reported
        pidfd = libc.syscall(_SYS_PIDFD_OPEN, agent, 0)
        if pidfd >= 0:
            self._poll.register(pidfd, select.POLLIN)
        else:
            signal.signal(signal.SIGCHLD, _do_nothing)

    def wait(self, seconds: Optional[float] = None) -> Optional[str]:
        """Return the next event; None where there is none in ``seconds``."""
        limit = None if seconds is None else seconds * 1000
        while not _has_ended(self._agent):
            found = dict(self._poll.poll(limit))
            if not found:
                return None
            if self._signals in found and _received(self._signals).intersection(_TO_END):
                return self.TOLD_TO_END
            if _REQUESTS in found or os.getppid() != self._parent:
                return self.PYTEST_ENDED
        return self.AGENT_ENDED

    def forget_pytest(self) -> None:
        """Report the end of pytest no more."""
        self._poll.unregister(_REQUESTS)
        self._parent = os.getppid()


def _signal_pipe(numbers):
    """Return a pipe that has a byte for each signal received."""
    receiver, sender = os.pipe()
    os.set_blocking(receiver, False)
    os.set_blocking(sender, False)
    signal.set_wakeup_fd(sender)
    for number in numbers:
        signal.signal(number, _do_nothing)
    return receiver


def _do_nothing(number, frame):
    """Have the signal written to the pipe, as a handler in Python must be set for it."""


def _received(pipe):
    return set(os.read(pipe, 4096))


def _has_ended(agent):
    """Return whether a child has ended, and leave it to be waited for."""
    return os.waitid(os.P_PID, agent, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end_all(agent):
    """Kill all descendants, and return the status of the agent.

    The children of one that ends become those of this process, so it ends where there are none.
    """
    status = 0
    options = os.WNOHANG
    while True:
        try:
            ended, its_status = os.waitpid(-1, options)
        except ChildProcessError:
            return status
        if ended == agent:
            status = its_status
        options = os.WNOHANG
        if not ended:
            if not _kill_children():
                return status
            options = 0  # one of them ends


def _kill_children():
    """Kill the children of this process; return how many there were."""
    killed = 0
    for child in _children():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(child, signal.SIGKILL)
            killed += 1
    return killed


def _children():
    own = os.getpid()
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [number for number in numbers if _parent_of(number) == own]


def _parent_of(process):
    """Return the parent of a process by proc(5); None where it has ended."""
    try:
        with open("/proc/%d/stat" % process, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[1])


def _end_as(status: int, libc: Any) -> NoReturn:
    """End with the status or by the signal by which the agent ended; there is one core dump."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        with contextlib.suppress(OSError):  # no handler of SIGKILL can be set
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(128 + number)  # the first process of a container is ended by no signal of its own
    os._exit(os.WEXITSTATUS(status))
