"""The agent's end of the channel: private copies of standard input and output.

They are taken before anything else runs. What the framework then prints goes to standard error,
which the pytest side keeps as the agent's log.
"""

import functools
import os
import select
import signal
import threading
import time
from typing import IO, Any, Iterable, NamedTuple, NoReturn

CLOSING = 4.0
"""Seconds that an idle agent has to free its model once the other end of the channel is gone."""


class AgentChannel(NamedTuple):
    """The files that requests are read from and replies are written to."""

    requests: IO[bytes]
    replies: IO[bytes]

    def write(self, buffers: Iterable[Any]) -> None:
        """Write the buffers of a frame; raises OSError where the other end is gone."""
        for buffer in buffers:
            view = memoryview(buffer)
            while view:
                view = view[self.replies.write(view) :]


def take_channel() -> AgentChannel:
    """Keep standard input and output for frames.

    The framework gets /dev/null and standard error instead, and processes that it forks get
    /dev/null for the copies, too: they could write into a reply, or keep the channel open.
    """
    requests = os.fdopen(os.dup(0), "rb", 1 << 16)
    replies = os.fdopen(os.dup(1), "wb", 0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    if hasattr(os, "register_at_fork"):  # since Python 3.7
        os.register_at_fork(after_in_child=functools.partial(_detach, requests, replies))  # novm
    return AgentChannel(requests, replies)


def _detach(requests, replies):
    null = os.open(os.devnull, os.O_RDWR)
    for file in (requests, replies):
        os.dup2(null, file.fileno(), inheritable=False)
    os.close(null)


class HangUpMonitor:
    """A thread that ends the agent once the other end of its channel is gone.

    In the middle of a request, marked by ``busy``, it ends the process at once: the framework may
    compute for hours. An idle agent sees the end of its input by itself and frees its model; it is
    ended only if that takes too long.
    """

    def __init__(self, requests: IO[bytes]):
        self.busy = False
        self._requests = requests
        threading.Thread(target=self._monitor, daemon=True).start()

    def _monitor(self):
        poll = select.poll()
        poll.register(self._requests, 0)  # no events asked for: only the hang-up is reported
        while not _is_hung_up(poll):
            pass
        if not self.busy:
            time.sleep(CLOSING)
        end_all()


def end_all() -> NoReturn:
    """End this process and, where it leads a group, all that it started."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _is_hung_up(poll):
    return any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll())
