"""Run a program of an installation, and end it where the process that started this has ended.

``python guard.py COMMAND…`` is the leader of a process group. Its standard input is a pipe whose
other end the starter holds: the kernel closes it however that process ends. It imports nothing of
this package, and ends with the status of the command.
"""

import os
import signal
import subprocess
import sys
import threading
import time

_GRACE_SECONDS = 5  # for a program that was interrupted, as pip then removes its temporary files
_NOT_STARTED = 127


def main() -> None:
    """Run the command; a signal of the group is for the command alone, whose end this waits for."""
    signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"{sys.argv[1]} can't be started: {error.strerror}", flush=True)
        os._exit(_NOT_STARTED)
    has_no_starter = threading.Event()
    threading.Thread(target=_end_with_the_starter, args=(has_no_starter,), daemon=True).start()
    status = command.wait()
    if has_no_starter.is_set():
        os.killpg(0, signal.SIGKILL)  # what the command started in the background goes on else
    os._exit(status if status >= 0 else 128 - status)


def _end_with_the_starter(has_no_starter: threading.Event) -> None:
    while os.read(0, 1):
        pass
    has_no_starter.set()
    os.killpg(0, signal.SIGINT)
    time.sleep(_GRACE_SECONDS)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
