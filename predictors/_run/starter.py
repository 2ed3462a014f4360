"""The start of an agent that is a program of its own, which is supervised as ours are.

It is run by path, as ``PYTHON starter.py [--cores 0,1] COMMAND…``. This process becomes the
supervisor, and its child becomes the program, held to the cores; see supervisor.py. Elsewhere than
on Linux this process becomes the program.
"""

import importlib
import os
import signal
import sys

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.dirname(_ROOT))  # last, as it may have modules of the interpreter's names
_NOT_STARTED = 127


def main() -> None:
    """Become the program; what it can't be started for goes to the log."""
    package = os.path.basename(_ROOT) + "._run."
    process = importlib.import_module(package + "process")
    supervisor = importlib.import_module(package + "supervisor")
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as worker.py has it
    supervisor.start_supervised()
    command = sys.argv[1:]
    try:
        if command[0] == "--cores":
            process.use_cores([int(core) for core in command[1].split(",")])
            command = command[2:]
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(number, signal.SIG_DFL)
        os.execv(command[0], command)
    except OSError as error:
        sys.stderr.write("%s can't be started: %s\n" % (command[0], error.strerror or error))
        sys.stderr.flush()
        os._exit(_NOT_STARTED)


if __name__ == "__main__":
    main()
