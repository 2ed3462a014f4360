"""Observations of outputs and crashes: the model is run once on each side."""

from typing import Any, Dict

from .agent import Ended, Failed
from .record import ANSWERS, CRASH, LIMIT, OUTPUTS, RATIO
from .rounds import observe_limit, observe_ratio
from .sides import NEW, OLD, Sides
from .task import CannotRun, Seen, Task

HANG = "hang"  # as an expectation has it
_EXITS = 4  # processes that may fail at their exit


def observe(task: Task, sides: Sides, tell: Any = None) -> Seen:
    """Do what a task says, and return what was seen.

    ``tell`` is called with a line for each round. Raises CannotRun where the old side fails.
    """
    kind = task.expected.kind
    if kind == RATIO:
        return observe_ratio(task, sides, tell or _silent)
    if kind == LIMIT:
        return observe_limit(task, sides, tell or _silent)
    known = {OUTPUTS: _observe_outputs, ANSWERS: _observe_outputs, CRASH: _observe_crash}
    return known[kind](task, sides)


def _silent(line: str) -> None:
    pass


def _observe_outputs(task: Task, sides: Sides) -> Seen:
    reference = task.reference or sides.old_outputs(task)
    closeness = task.expected.closeness
    found: Dict[str, Any] = {}
    try:
        for ours in sides.each_outputs(NEW, task):
            found = task.compare(ours, reference, closeness)
            if found["deviation"] > 1:
                break
    except (Failed, Ended) as error:
        return Seen(False, "the new side has no outputs: %s" % _first_line(error), _lines(error))
    differ = found["deviation"] > 1
    shows = differ if task.expected.kind == OUTPUTS else not differ and "place" in found
    return Seen(
        shows=shows,
        summary=_outputs_text(found, differ),
        ratio=found["deviation"],
        output=found.get("output", ""),
        place=tuple(found.get("place", ())),
    )


def _outputs_text(found: Dict[str, Any], differ: bool) -> str:
    if found["problem"]:
        return "outputs can't be compared: %s" % found["problem"]
    if "place" not in found:
        return "there are no outputs to compare"
    index = ",".join(map(str, found["place"]))
    place = "%s[%s]: %s instead of %s" % (
        found["output"],
        index,
        _number(found["ours"]),
        _number(found["reference"]),
    )
    if not differ:
        share = "%.3g of what is allowed" % found["deviation"]
        return "outputs agree; the largest difference, %s, is %s" % (place, share)
    return "outputs differ in %d of %d elements of %s; most at %s, %.3g × what is allowed" % (
        found["elements"],
        found["of"],
        found["output"],
        place,
        found["deviation"],
    )


def _number(value: Any) -> str:
    return "%.6g" % value if isinstance(value, float) else repr(value)


def _observe_crash(task: Task, sides: Sides) -> Seen:
    if OLD in sides.launches:
        try:
            _exercise(OLD, task, sides)
        except (Failed, Ended) as error:
            raise CannotRun("the old side can't run the model here: %s" % error) from None
    try:
        for _ in range(_EXITS if task.expected.at_exit else 1):
            _exercise(NEW, task, sides)
    except (Failed, Ended) as error:
        return _seen_crash(error, task.expected.crash)
    return Seen(False, "the new side runs the model without an error")


def _exercise(side: str, task: Task, sides: Sides) -> None:
    sides.exercise(side, task)
    if task.expected.at_exit:
        sides.leave(side)


def _seen_crash(error: Exception, expected: str) -> Seen:
    how = crash_of(error)
    same = not expected or how == expected
    text = "the new side fails: %s" % _first_line(error)
    if not same:
        text = "the new side fails in another way (%s, not %s)" % (how, expected)
    return Seen(same, text, _lines(error))


def crash_of(error: Exception) -> str:
    """Return how a side failed, as expectations have it: a signal, a status or an error's class."""
    text = _first_line(error)
    if isinstance(error, Failed):
        return text.partition(":")[0]
    if text.startswith("had not ended"):
        return HANG
    word = text.split()[-1]
    return "status %s" % word if "exit status" in text else word


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def _lines(error: Exception) -> Any:
    return tuple(str(error).splitlines()[1:])
