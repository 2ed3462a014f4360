"""A predictor that is hard to end. The graph is the name of a state, in which ``predict`` leaves it.

The file MLMS_PIDS gets a line for each process that is to be ended.
"""

import ctypes
import os
import signal
import time

from mlms_predictors import Loaded

LONG = 600  # seconds


def versions():
    return {"hostile": "1.0"}


def devices():
    return ["cpu"]


def load(request):
    _note(os.getpid())
    with open(request.files["graph"]) as file:
        state = file.read()
    if state == "exits in load":
        _start()
        os._exit(3)
    return Loaded(state, request.device, request.threads, [], [])


def predict(loaded, arrays):
    _start()
    STATES[loaded.model]()
    return []


def _note(process):
    with open(os.environ["MLMS_PIDS"], "a") as file:
        file.write("%d\n" % process)


def _start(process_count=1):
    """Start processes with sessions of their own, whose parent has ended."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    for _ in range(process_count):
        started = os.fork()
        if not started:
            os.setsid()
            _sleep()
        _note(started)
    os._exit(0)


def _sleep():
    time.sleep(LONG)


def _hold_python():
    ctypes.PyDLL(None).sleep(LONG)


def _stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def _close_channel():
    os.closerange(0, 64)
    _sleep()


def _ignore_signals():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    _start()
    _sleep()


def _start_children():
    """Start children that have children."""
    for _ in range(3):
        child = os.fork()
        if not child:
            _start(2)
            _sleep()
        _note(child)


STATES = {
    "returns": lambda: None,
    "sleeps": _sleep,
    "holds Python's lock": _hold_python,
    "is stopped": _stop,
    "closed its channel": _close_channel,
    "ignores signals": _ignore_signals,
    "started children": _start_children,
}
