"""The command ``python repro.zip``: it says what it will do, and has its own pytest-mlms do it.

Exit status: 0 reproduced, 1 not reproduced, 2 it couldn't run or was called wrongly, 3 undecided,
130 Ctrl-C.
"""

import argparse
import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any, Dict, Iterator, NoReturn, Optional, Sequence

from .environments import CannotRun, find_pip, make_environment, signals_held
from .plan import NEW, OLD, Plan, plan_lines
from .record import VERSION, BundleSide, Malformed, Record
from .unpacking import Packed, opened

REPRODUCED = 0
NOT_REPRODUCED = 1
CANNOT_RUN = 2
UNDECIDED = 3
INTERRUPTED = 130

OWN = "own/"
"""The folder of a bundle with the wheel of pytest-mlms."""

AGREED = "_MLMS_AGREED"
"""The variable of a replay whose plan a person was told, and agreed to.

It names the file that the replay makes once it has told a verdict.
"""

LIFELINE = "_MLMS_LIFELINE"
"""The variable of ``pytest_mlms.core.lifeline``, by which a replay ends where we are killed."""

_OLDEST = (3, 10)  # that pytest-mlms runs by


class Terminated(Exception):
    """The process was asked to end."""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Replay the file that runs; return the exit status."""
    _print_what_a_terminal_lacks()
    options = _parser().parse_args(arguments)
    path = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        signal.signal(signal.SIGTERM, _terminate)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(signal.SIGHUP, _terminate)
        return _replay(path, options)
    except CannotRun as error:
        return _cannot_run(str(error))
    except Malformed as error:
        return _cannot_run("%s is no bundle that can be replayed: %s" % (path, error))
    except OSError as error:
        return _cannot_run("%s: %s" % (error.filename or path, error.strerror or error))
    except (KeyboardInterrupt, Terminated):
        sys.stderr.write("interrupted; what was made is removed\n")
        return INTERRUPTED


def _print_what_a_terminal_lacks() -> None:
    """Have a question mark printed for what the terminal's encoding lacks, such as ×."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        wrapper = io.TextIOWrapper(
            stream.buffer, stream.encoding, errors="replace", line_buffering=True
        )
        setattr(sys, name, wrapper)


def _terminate(number: int, frame: Any) -> NoReturn:
    raise Terminated


def _cannot_run(text: str) -> int:
    sys.stderr.write("can't replay: %s\n" % text)
    return CANNOT_RUN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python repro.zip",
        allow_abbrev=False,
        description="Replay a failure that pytest-mlms saw. Exit status: 0 reproduced, "
        "1 not reproduced, 2 it couldn't run, 3 undecided, 130 interrupted.",
    )
    parser.add_argument("--yes", action="store_true", help="don't ask")
    parser.add_argument("--plan", action="store_true", help="only say what it would do")
    parser.add_argument(
        "--keep", metavar="DIR", help="work in this folder, leave it there, and use it again"
    )
    add_sides(parser)
    return parser


def add_sides(parser: argparse.ArgumentParser) -> None:
    """Add the options on what is replayed."""
    parser.add_argument(
        "--side", choices=(OLD, NEW, "both"), default="both", help="one side alone (default: both)"
    )
    parser.add_argument(
        "--python",
        metavar="VERSION",
        type=_version,
        help="another Python for the sides than that of the record",
    )


def _version(text: str) -> str:
    """Return a version of Python; raises an error of argparse."""
    if not VERSION.fullmatch(text):
        raise argparse.ArgumentTypeError("%r is no version, such as 3.11 or 3.11.7" % text)
    return text


def chosen_sides(record: Record, asked: str) -> Dict[str, BundleSide]:
    """Return the sides to run by name; raises CannotRun where a bundle has not that one."""
    sides = {}
    if record.old is not None and asked != NEW:
        sides[OLD] = record.old
    if asked != OLD:
        sides[NEW] = record.new
    if not sides:
        raise CannotRun("it has no old side; leave out --side")
    return sides


def agrees() -> bool:
    """Ask a person; return whether to go on."""
    if not sys.stdin.isatty():
        sys.stderr.write("nothing was done: there is no terminal to ask on; say --yes to go on\n")
        return False
    try:
        answer = input("Go on? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() in ("y", "yes"):
        return True
    sys.stderr.write("nothing was done\n")
    return False


def _replay(path: str, options: argparse.Namespace) -> int:
    with opened(path) as packed:
        wheel = _wheel_of(packed)
        plan = _plan_of(packed, wheel, options)
        for line in plan_lines(plan):
            print(line)
        if options.plan:
            return REPRODUCED
        _check_python()
        sys.stdout.flush()
        if not (options.yes or agrees()):
            return CANNOT_RUN
        with _working_folder(options.keep) as folder:
            content = os.path.join(folder, "bundle")
            shutil.rmtree(content, ignore_errors=True)
            packed.unpack(content)
            _tell("making an environment of pytest-mlms")
            place = os.path.join(folder, "environment")
            python = make_environment(find_pip(), place, os.path.join(content, *wheel.split("/")))
            return _run_in(python, path, content, folder, options)


def _wheel_of(packed: Packed) -> str:
    """Return the name of the wheel of pytest-mlms in a bundle."""
    wheels = [name for name in packed.sizes if name.startswith(OWN) and name.endswith(".whl")]
    if len(wheels) != 1:
        raise Malformed("it has not one wheel of pytest-mlms, but %d" % len(wheels))
    return wheels[0]


def _check_python() -> None:
    if sys.version_info[:2] < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        found = "%d.%d" % sys.version_info[:2]
        problem = "this is Python %s, and the replay needs %s or later" % (found, oldest)
        raise CannotRun("%s; run it by such a one: the sides have Pythons of their own" % problem)


def _plan_of(packed: Packed, wheel: str, options: argparse.Namespace) -> Plan:
    sides = chosen_sides(packed.record, options.side)
    if options.python:
        sides = {name: side._replace(python=options.python) for name, side in sides.items()}
    source = find_pip().source
    name = wheel[len(OWN) :]
    own = ["make an environment of %s with what it requires, from %s" % (name, source)]
    return Plan(packed.record, sides, source, packed.sizes, options.keep, own)


@contextlib.contextmanager
def _working_folder(keep: Optional[str]) -> Iterator[str]:
    """Yield the folder to work in; a temporary one is removed."""
    if keep:
        os.makedirs(keep, exist_ok=True)
        yield os.path.abspath(keep)
        return
    with tempfile.TemporaryDirectory(prefix="mlms-repro-") as folder:
        yield folder


def _tell(line: str) -> None:
    print(line)
    sys.stdout.flush()


def _run_in(python: str, path: str, content: str, folder: str, options: argparse.Namespace) -> int:
    """Have the bundle's own pytest-mlms replay it; return its exit status.

    Raises CannotRun where it ended without a verdict, whose status may be one.
    """
    command = [python, "-I", "-m", "pytest_mlms", "repro", "--replay", path]
    command += ["--side", options.side, "--mlms-cache", os.path.join(folder, "cache")]
    if options.python:
        command += ["--python", options.python]
    predictors = os.path.join(content, "predictors")
    if os.path.isdir(predictors):
        command += ["--mlms-predictors", predictors]
    told = os.path.join(content, ".told")
    status = _wait_for(command, {**os.environ, AGREED: told})
    if status not in (CANNOT_RUN, INTERRUPTED) and not os.path.exists(told):
        raise CannotRun("its pytest-mlms ended with status %d, before a verdict" % status)
    return status


def _wait_for(command: Sequence[str], environment: Dict[str, str]) -> int:
    """Run a replay to its end; return its status. It is interrupted where we are, or are killed.

    In a session of its own it gets a Ctrl-C once, from here. Signals that end us are held until it
    is known, and by itself until its lifeline is there.
    """
    reading, writing = os.pipe()
    with open(reading, "rb"), open(writing, "wb"), signals_held() as release:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env={**environment, LIFELINE: str(reading)},
            start_new_session=True,
            pass_fds=[reading],
        )
        try:
            release()
            return process.wait()
        except BaseException:
            _end(process)
            raise


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Interrupt a process; another Ctrl-C kills it and what it started in its session."""
    try:
        process.send_signal(signal.SIGINT)
        process.wait()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
