"""A plugin of pytest for the portal's evaluations: they end when the portal does.

The portal holds the other end of a pipe, which the kernel closes however the portal ends. Then this
interrupts pytest, as Ctrl-C does, so that it writes what it has measured and ends its agents.
"""

from __future__ import annotations

import os
import signal
import threading
import time

DESCRIPTOR = "MLMS_PORTAL_LIFELINE"
"""The variable that has the descriptor of the pipe."""

_GRACE_SECONDS = 20


def _watch(descriptor: int) -> None:
    os.read(descriptor, 1)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_GRACE_SECONDS)
    os.killpg(os.getpgid(0), signal.SIGKILL)


if DESCRIPTOR in os.environ:
    _descriptor = int(os.environ.pop(DESCRIPTOR))
    os.set_inheritable(_descriptor, False)
    threading.Thread(target=_watch, args=(_descriptor,), daemon=True).start()
