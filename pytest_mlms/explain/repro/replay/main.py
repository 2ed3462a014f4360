"""The command ``python repro.zip``: a bundle is replayed, after it has said what it will do.

Exit status: 0 reproduced, 1 not reproduced, 2 it couldn't run or was called wrongly, 3 undecided,
130 Ctrl-C.
"""

import argparse
import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    NoReturn,
    Optional,
    Sequence,
)

from .agent import Ended, Failed, Launch
from .environments import agent_variables, find_pip, make_environment, python_of
from .interpreters import find_interpreter
from .npz import read_heads, read_npz
from .observe import observe
from .plan import Plan, megabytes, plan_lines
from .record import Malformed
from .sides import NEW, OLD, Sides
from .task import CannotRun, Seen, Task
from .unpacking import Packed, opened

REPRODUCED = 0
NOT_REPRODUCED = 1
CANNOT_RUN = 2
UNDECIDED = 3
INTERRUPTED = 130

_MOST_INPUTS = 1 << 26  # bytes of inputs whose shapes are told before anybody has agreed
_SHOWN_INPUTS = 64
_WHEELS = "wheels/"
_TIMEOUT = 600.0  # seconds for an answer of an agent


class Terminated(Exception):
    """The process was asked to end."""


class Code(NamedTuple):
    """The code that runs a bundle: the folders of the agent, and of this package.

    ``harmless`` returns those of a bundle's variables that neither load code nor name a file.
    """

    agent: str
    replay: str
    harmless: Callable[[Mapping[str, str]], Mapping[str, str]] = dict


def main(
    arguments: Optional[Sequence[str]] = None,
    bundle: Optional[str] = None,
    code: Optional[Code] = None,
) -> int:
    """Replay a bundle, by default the file that runs; return the exit status.

    Without ``code`` it is the bundle's own.
    """
    if bundle is None:
        _print_what_a_terminal_lacks()
    options = _parser().parse_args(arguments)
    path = bundle or os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        signal.signal(signal.SIGTERM, _terminate)
        return _replay(path, options, code)
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
        description="Replay a failure that pytest-mlms saw. Exit status: 0 reproduced, "
        "1 not reproduced, 2 it couldn't run, 3 undecided, 130 interrupted.",
    )
    parser.add_argument(
        "--side", choices=(OLD, NEW, "both"), default="both", help="(default: both)"
    )
    parser.add_argument("--yes", action="store_true", help="don't ask")
    parser.add_argument("--plan", action="store_true", help="only say what it would do")
    parser.add_argument(
        "--keep", metavar="DIR", help="work in this folder, leave it there, and use it again"
    )
    parser.add_argument(
        "--python", metavar="VERSION|PATH", help="another Python than that of the record"
    )
    return parser


def _replay(path: str, options: argparse.Namespace, code: Optional[Code]) -> int:
    with opened(path) as packed:
        _check_predictor(code, packed)
        plan = _plan_of(packed, options)
        for line in plan_lines(plan):
            print(line)
        if options.plan:
            return REPRODUCED
        sys.stdout.flush()
        if not (options.yes or _agrees()):
            return CANNOT_RUN
        with _working_folder(options.keep) as folder:
            content = os.path.join(folder, "bundle")
            shutil.rmtree(content, ignore_errors=True)
            packed.unpack(content)
            own = Code(os.path.join(content, "predictors"), os.path.join(content, "replay"))
            return _run(plan, code or own, content, folder)


def _check_predictor(code: Optional[Code], packed: Packed) -> None:
    name = packed.record.predictor + ".py"
    if code is None and "predictors/" + name not in packed.sizes:
        raise Malformed("it has no predictors/%s" % name)
    if code is not None and not os.path.isfile(os.path.join(code.agent, name)):
        problem = "there is no predictor %s but the bundle's own" % packed.record.predictor
        raise CannotRun("%s; run the zip itself if you trust it" % problem)
    for side in filter(None, (packed.record.old, packed.record.new)):
        variables = dict(side.variables)
        refused = variables.keys() - (code.harmless(variables) if code else variables)
        if refused:
            problem = "the variable %s may load code" % sorted(refused)[0]
            raise CannotRun("%s; run the zip itself if you trust it" % problem)


@contextlib.contextmanager
def _working_folder(keep: Optional[str]) -> Iterator[str]:
    """Yield the folder to work in; a temporary one is removed."""
    if keep:
        os.makedirs(keep, exist_ok=True)
        yield os.path.abspath(keep)
        return
    with tempfile.TemporaryDirectory(prefix="mlms-repro-") as folder:
        yield folder


def _plan_of(packed: Packed, options: argparse.Namespace) -> Plan:
    record = packed.record
    sides = {}
    if record.old is not None and options.side != NEW:
        sides[OLD] = record.old
    if options.side != OLD:
        sides[NEW] = record.new
    if not sides:
        raise CannotRun("it has no old side; leave out --side")
    found = {name: find_interpreter(side.python, options.python) for name, side in sides.items()}
    wheels = [name[len(_WHEELS) :] for name in sorted(packed.sizes) if name.startswith(_WHEELS)]
    size = sum(packed.sizes.values())
    return Plan(record, sides, found, find_pip(), shapes_of(packed), size, options.keep, wheels)


def shapes_of(packed: Packed) -> str:
    """Return the shapes of the inputs of a bundle, or their size: nothing is unpacked for them."""
    name = packed.record.inputs
    if packed.sizes.get(name, _MOST_INPUTS + 1) > _MOST_INPUTS:
        return "%s (%s)" % (name, megabytes(packed.sizes.get(name, 0)))
    with _told_inputs():
        heads = read_heads(packed.read(name))
    more = ["and %d more" % (len(heads) - _SHOWN_INPUTS)] if len(heads) > _SHOWN_INPUTS else []
    return ", ".join([*map(str, heads[:_SHOWN_INPUTS]), *more])


@contextlib.contextmanager
def _told_inputs() -> Iterator[None]:
    """Raise Malformed for an .npz file of another form."""
    try:
        yield
    except ValueError as error:
        raise Malformed("its inputs can't be read: %s" % error) from None


def _agrees() -> bool:
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


def _launches(plan: Plan, code: Code, content: str, folder: str) -> Dict[str, Launch]:
    """Make the environments; return how to start the agents of each side."""
    record = plan.record
    wheels = os.path.join(content, "wheels") if plan.wheels else None
    found = {}
    for name, side in plan.sides.items():
        interpreter = plan.interpreters[name]
        place = os.path.join(folder, "environment-" + name)
        _tell("%s: making an environment of %d packages" % (name, len(side.requirements)))
        make_environment(side, interpreter, plan.pip, place, wheels)
        found[name] = Launch(
            command=(python_of(place), "-s", "-B"),
            environment=agent_variables(os.environ, record.threads, side.variables),
            worker=os.path.join(code.agent, "_run", "worker.py"),
            predictor=os.path.join(code.agent, record.predictor + ".py"),
            log=os.path.join(folder, name + ".log"),
            timeout=_TIMEOUT,
        )
    return found


def _tell(line: str) -> None:
    print(line)
    sys.stdout.flush()


def _run(plan: Plan, code: Code, content: str, folder: str) -> int:
    launches = _launches(plan, code, content, folder)
    print()
    task = _task_of(plan, launches, code, content, folder)
    words = ("REPRODUCED", "NOT REPRODUCED")
    with Sides(launches) as sides:
        if len(launches) == 1 and plan.record.old is not None:
            words = ("AS EXPECTED", "NOT AS EXPECTED")
            seen = _one_side(next(iter(launches)), task, sides)
        else:
            seen = observe(task, sides, _tell)
    print("expected: %s" % plan.record.expected.summary)
    print("seen:     %s" % seen.summary)
    for line in seen.details:
        print("  %s" % line)
    if seen.undecided:
        print("UNDECIDED: neither of both is shown; run it again where nothing else runs")
        return UNDECIDED
    print(words[0] if seen.shows else words[1])
    return REPRODUCED if seen.shows else NOT_REPRODUCED


def _one_side(name: str, task: Task, sides: Sides) -> Seen:
    """Run one of two sides: it is as expected where only a new side that crashes fails."""
    fails = name == NEW and task.expected.kind == "crash"
    if fails:
        return observe(task, sides)
    try:
        path = sides.write_outputs(name, task)
    except (Failed, Ended) as error:
        lines = str(error).splitlines()
        return Seen(False, "the %s side fails: %s" % (name, lines[0]), tuple(lines[1:]))
    outputs = ", ".join(map(str, read_npz(path)))
    return Seen(True, "the %s side runs, and gives %s" % (name, outputs))


def _task_of(
    plan: Plan, launches: Dict[str, Launch], code: Code, content: str, folder: str
) -> Task:
    record = plan.record
    with _told_inputs():
        inputs = read_npz(os.path.join(content, record.inputs))
    python = next(reversed(list(launches.values()))).command[0]
    script = os.path.join(code.replay, "compare.py")

    def compare(ours: str, reference: str, closeness: Dict[str, Any]) -> Dict[str, Any]:
        words = [ours, reference, json.dumps(closeness)]
        found: Dict[str, Any] = _json_of([python, "-s", "-B", script, *words])
        return found

    return Task(
        expected=record.expected,
        load={
            "files": {role: os.path.join(content, name) for role, name in record.files.items()},
            "device": record.device,
            "threads": record.threads,
            "options": record.options,
            "allow_code": False,
        },
        inputs=inputs,
        reference=os.path.join(content, record.reference) if record.reference else None,
        work=folder,
        compare=compare,
    )


def _json_of(command: List[str]) -> Any:
    done = subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        env=agent_variables(os.environ),
    )
    if done.returncode:
        lines = done.stderr.splitlines() or ["no reason"]
        raise CannotRun("the outputs can't be compared: %s" % lines[-1])
    return json.loads(done.stdout)
