"""Plan of a replay, as a text to be read before anything runs."""

from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence

from .environments import hide_user
from .record import ANSWERS, CRASH, LIMIT, OUTPUTS, RATIO, BundleSide, Record

OLD = "old"
NEW = "new"

_WIDTH = 92


class Plan(NamedTuple):
    """The sides to run, and where their environments are made.

    ``sizes`` has the bytes of each file of the bundle. ``folder`` is where things stay, None for a
    temporary folder. ``own`` are the first steps of a replay that brings its own pytest-mlms.
    """

    record: Record
    sides: Dict[str, BundleSide]
    source: str
    sizes: Dict[str, int]
    folder: Optional[str] = None
    own: Sequence[str] = ()

    @property
    def wheels(self) -> List[str]:
        """The packages that come along."""
        names = sorted(name for name in self.sizes if name.startswith("wheels/"))
        return [name[len("wheels/") :] for name in names]


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield the lines of a plan."""
    record = plan.record
    yield record.title
    yield "expected: %s" % record.expected.summary
    for note in record.notes:
        yield "note: %s" % note
    yield ""
    yield "This will"
    number = 0
    for number, step in enumerate([_unpacking(plan), *plan.own], 1):
        yield "%d. %s;" % (number, step)
    yield "%d. make for each side an environment that pip installs these packages into:" % (
        number + 1
    )
    for name, side in plan.sides.items():
        yield from _side_lines(name, side, plan.source)
    for wheel in plan.wheels:
        yield "     %s comes with the bundle, and from no index" % wheel
    yield "%d. run in each the agent of pytest-mlms, %s.py, which" % (number + 2, record.predictor)
    yield "   - loads %s on %s%s" % (_files(record), record.device, _threads(record))
    if record.options:
        yield "     with the options %s" % _options(record)
    yield "   - runs it on %s (%s);" % (record.inputs, megabytes(plan.sizes.get(record.inputs, 0)))
    yield "%d. %s." % (number + 3, _last_step(plan))
    yield ""
    yield "Packages, the agent and the model are code of other people: go on only where you would"
    yield "run code of whoever sent you this."


def megabytes(size: int) -> str:
    """Return a number of bytes for a person."""
    return "%.1f MiB" % (size / (1 << 20))


def _unpacking(plan: Plan) -> str:
    size = megabytes(sum(plan.sizes.values()))
    if plan.folder:
        return "unpack %s into the folder %s, and leave it there" % (size, plan.folder)
    return "unpack %s into a temporary folder, and remove it at the end" % size


def _side_lines(name: str, side: BundleSide, source: str) -> Iterator[str]:
    yield "   %s: %s, Python %s" % (name, side.name, side.python)
    places = [hide_user(option) for option in side.options]
    yield "     from %s%s" % (source, "".join(", and " + place for place in places))
    yield from _wrapped(side.requirements)
    for variable, value in side.variables:
        yield "     with %s=%s" % (variable, value)


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
    expected = plan.record.expected
    if plan.record.old and len(plan.sides) == 1:
        side = next(iter(plan.sides))
        return "say whether the %s side runs; there is nothing to compare it with" % side
    texts = {
        OUTPUTS: "compare the outputs%s" % (" with recorded ones" if not plan.record.old else ""),
        ANSWERS: "compare the outputs with those that were wrong",
        CRASH: "say how the processes ended",
        RATIO: "measure %s of both in turns, in rounds of fresh processes" % expected.quantity,
        LIMIT: "measure %s in fresh processes, against its limit" % expected.quantity,
    }
    return texts[expected.kind]
