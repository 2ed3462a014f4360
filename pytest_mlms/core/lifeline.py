"""A plugin of pytest for sessions that ``child_session`` starts: they end when their starter does.

The starter holds the other end of a pipe, which the kernel closes however that process ends. Then
this interrupts pytest, as Ctrl-C does, so that it writes what it has measured and ends its agents.
A replay imports it as well, which ``python repro.zip`` starts.
"""

from __future__ import annotations

import os
import signal
import threading
import time

DESCRIPTOR = "_MLMS_LIFELINE"
"""The variable that has the descriptor of the pipe."""

HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that a starter may hold back while it starts a session."""

KILLED_AFTER = 60  # seconds after an interrupt, for what writes results and ends agents


def _watch(descriptor: int) -> None:
    os.read(descriptor, 1)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(KILLED_AFTER)
    os.killpg(os.getpgid(0), signal.SIGKILL)


if DESCRIPTOR in os.environ:
    _descriptor = int(os.environ.pop(DESCRIPTOR))
    os.set_inheritable(_descriptor, False)
    threading.Thread(target=_watch, args=(_descriptor,), daemon=True).start()
    # Background jobs of a shell ignore SIGINT, which their children inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
