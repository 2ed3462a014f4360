"""Plan of a replay, as a text to be read before anything runs."""

from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence

from .environments import Pip, hide_user
from .interpreters import Interpreter
from .record import ANSWERS, CRASH, LIMIT, OUTPUTS, RATIO, BundleSide, Record
from .sides import NEW, OLD

_WIDTH = 92


class Plan(NamedTuple):
    """The sides to run with their interpreters, and where their environments are made.

    ``inputs`` is what a person reads of them, ``size`` the bytes of all files of the bundle.
    ``folder`` is None for a temporary one, which is removed.
    """

    record: Record
    sides: Dict[str, BundleSide]
    interpreters: Dict[str, Interpreter]
    pip: Pip
    inputs: str
    size: int
    folder: Optional[str]
    wheels: Sequence[str]


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield the lines of a plan."""
    record = plan.record
    yield record.title
    yield "expected: %s" % record.expected.summary
    for note in record.notes:
        yield "note: %s" % note
    yield ""
    yield "This will"
    size = megabytes(plan.size)
    if plan.folder:
        yield "1. unpack %s into the folder %s, and leave it there;" % (size, plan.folder)
    else:
        yield "1. unpack %s into a temporary folder, and remove it at the end;" % size
    yield "2. make in it, for each side, an environment that pip installs these packages into:"
    for name, side in plan.sides.items():
        yield from _side_lines(name, side, plan)
    for wheel in plan.wheels:
        yield "     %s comes with the bundle, and from no index" % wheel
    yield "3. run in each the agent of pytest-mlms, predictors/%s.py, which" % record.predictor
    yield "   - loads %s on %s%s" % (_files(record), record.device, _threads(record))
    if record.options:
        yield "     with the options %s" % _options(record)
    yield "   - runs it on %s;" % plan.inputs
    yield "4. %s." % _last_step(plan)
    yield ""
    yield "Packages, the agent and the model are code of other people: go on only where you would"
    yield "run code of whoever sent you this."


def megabytes(size: int) -> str:
    """Return a number of bytes for a person."""
    return "%.1f MiB" % (size / (1 << 20))


def _side_lines(name: str, side: BundleSide, plan: Plan) -> Iterator[str]:
    interpreter = plan.interpreters[name]
    yield "   %s: %s, Python %s (%s)" % (name, side.name, interpreter.version, interpreter.path)
    if interpreter.version != side.python:
        yield "     it was seen with Python %s" % side.python
    places = [hide_user(option) for option in side.options]
    yield "     from %s%s" % (plan.pip.source, "".join(", and " + place for place in places))
    yield from _wrapped(side.requirements)
    for name, value in side.variables:
        yield "     with %s=%s" % (name, value)


def _wrapped(words: Sequence[str]) -> Iterator[str]:
    line: List[str] = []
    for word in words:
        if line and sum(map(len, line)) + len(line) + len(word) > _WIDTH:
            yield "       " + " ".join(line)
            line = []
        line.append(word)
    if line:
        yield "       " + " ".join(line)


def _files(record: Record) -> str:
    return ", ".join(record.files[role] for role in sorted(record.files))


def _threads(record: Record) -> str:
    if not record.threads:
        return ""
    return " with %d thread%s" % (record.threads, "" if record.threads == 1 else "s")


def _options(record: Record) -> str:
    return ", ".join("%s=%r" % pair for pair in sorted(record.options.items()))


def _last_step(plan: Plan) -> str:
    kind = plan.record.expected.kind
    quantity = plan.record.expected.quantity
    if kind in (OUTPUTS, CRASH, RATIO) and OLD not in plan.sides and plan.record.old:
        return "say whether the new side runs; there is nothing to compare it with"
    if NEW not in plan.sides:
        return "say whether the old side runs; there is nothing to compare it with"
    texts = {
        OUTPUTS: "compare the outputs%s" % (" with recorded ones" if not plan.record.old else ""),
        ANSWERS: "compare the outputs with those that were wrong",
        CRASH: "say how the processes ended",
        RATIO: "measure %s of both in turns, in up to 12 rounds of fresh processes" % quantity,
        LIMIT: "measure %s in up to 12 fresh processes, against its limit" % quantity,
    }
    return texts[kind]
