"""The judgement on a pair of stacks, from the line of its upgrade in results.jsonl.

All functions are pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import UNDER_LOAD, Comparison, Verdict
from pytest_mlms.core.serialization import from_plain
from pytest_mlms.decide.upgrade.crash import CRASH
from pytest_mlms.decide.upgrade.labels import straddling_text
from pytest_mlms.explain.bisect.search import Outcome

__all__ = [
    "AGREEMENT",
    "BATCH_AGREEMENT",
    "CRASH",
    "HANG",
    "Judgement",
    "ending_of",
    "judgement_of",
]

AGREEMENT = "agreement"
BATCH_AGREEMENT = "batch_agreement"
LATENCY = "latency"
HANG = "hang"
"""The ending of an agent that doesn't end."""

_SIGNAL = re.compile(r"killed by (SIG\w+)")
_STATUS = re.compile(r"exit status (\d+)")
_RAISED = re.compile(r"'\w+' raised (\w+)")

_OUTCOMES = {
    Verdict.REGRESSED: Outcome.BAD,
    Verdict.PASSED: Outcome.GOOD,
    Verdict.IMPROVED: Outcome.GOOD,
}
_Line = Mapping[str, Any]
_FAILURES = (Verdict.ERROR, Verdict.INVALID, Verdict.SKIPPED, Verdict.FAILED)


@dataclass(frozen=True)
class Judgement:
    """The outcome of judging a stack against an earlier one by one quantity.

    Attributes:
        outcome: Good, bad or neither.
        quantity: The quantity that decided it; "crash" for a stack that crashes or doesn't load.
        verdict: The gate's verdict on the quantity, or on the item where it has none.
        a: The earlier stack's value in ``unit``.
        b: The later stack's value in ``unit``.
        unit: The base unit.
        of: What the samples are, such as rounds or inputs.
        ratio: B over A; of accuracy the difference, of outputs the multiple of what is allowed.
        low: The lower end of its interval.
        high: The upper end of its interval.
        tolerance: How much worse B may be, as a share.
        reason: Why it is undecided, or the error.
        layers: The layers that changed, as ``pytest_mlms.core.records.LayerChange``.
    """

    outcome: Outcome
    quantity: str
    verdict: str
    a: float | None = None
    b: float | None = None
    unit: str = ""
    of: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    tolerance: float | None = None
    reason: str = ""
    layers: tuple[tuple[Any, ...], ...] = ()

    @property
    def is_worse(self) -> bool:
        """True if the later stack is surely worse, if only by less than the tolerance.

        It is where the interval of the ratio leaves out 1.
        """
        if self.of != "rounds" or self.low is None or self.high is None:
            return False
        quantity = QUANTITIES.get(self.quantity)
        if quantity and quantity.sign < 0:
            return self.high < 1
        return self.low > 1


def judgement_of(line: _Line, quantity: str | None) -> Judgement:
    """Return the judgement by a quantity; by None, the first that regressed, else the main one."""
    name = quantity or _regressed(line)
    if name == CRASH:
        return _judge_crash(line)
    compared = _comparison(line, name)
    if line["verdict"] in _FAILURES or compared is None:
        reason = _problem(line, name)
        return Judgement(Outcome.UNDECIDED, name, str(line["verdict"]), reason=reason)
    return Judgement(
        outcome=_outcome_of(compared),
        quantity=name,
        verdict=str(compared["verdict"]),
        a=compared["a"],
        b=compared["b"],
        unit=compared["unit"],
        of=compared["of"],
        ratio=compared["ratio"],
        low=compared["low"],
        high=compared["high"],
        tolerance=compared["tolerance"],
        reason=_reason(line, compared),
        layers=tuple(tuple(layer) for layer in line.get("layers") or ()),
    )


def _regressed(line: _Line) -> str:
    """Return the first quantity that regressed: a crash, outputs, the main one, others."""
    if _crash_of(line):
        return CRASH
    names = []
    for compared in _comparisons(line):
        if compared["verdict"] == Verdict.REGRESSED:
            names.append(compared["quantity"])
    main = _main_quantity(line)
    for name in (AGREEMENT, BATCH_AGREEMENT, main):
        if name in names:
            return name
    return names[0] if names else main


def _main_quantity(line: _Line) -> str:
    """Return what an upgrade is about: latency, and under load that of queries, or their peak."""
    compared = {one["quantity"] for one in _comparisons(line)}
    return next((name for name in UNDER_LOAD if name in compared), LATENCY)


def _judge_crash(line: _Line) -> Judgement:
    verdict = str(line["verdict"])
    crash = _crash_of(line)
    if crash:
        return Judgement(Outcome.BAD, CRASH, "CRASHED", reason=crash)
    if verdict in _FAILURES:
        return Judgement(Outcome.UNDECIDED, CRASH, verdict, reason=_first_line(line))
    exits = _comparison(line, CRASH)  # of which some failed, which may be chance
    if exits is not None and exits["gate"]:
        return Judgement(Outcome.UNDECIDED, CRASH, str(exits["verdict"]), reason=exits["lacking"])
    return Judgement(Outcome.GOOD, CRASH, "RUNS")


def ending_of(text: str) -> str:
    """Return how an agent ended, by the first line of its error; "" where it is another error.

    It is a signal, "status 3", the class of an error of the framework, or HANG.
    """
    # An error of the framework may tell of the end of its compiler.
    for pattern, form in ((_RAISED, "{}"), (_SIGNAL, "{}"), (_STATUS, "status {}")):
        found = pattern.search(text)
        if found:
            return form.format(found[1])
    return HANG if "had not ended" in text else ""


def _crash_of(line: _Line) -> str:
    """Return the error of the later stack that ended an upgrade; "" where none did.

    The upgrade puts the role and the name of a stack in front of its errors. In lines of earlier
    versions a crash is an ERROR, also where the earlier stack fails, too.
    """
    compared = _comparison(line, CRASH)
    if compared is not None and compared["verdict"] != Verdict.REGRESSED:
        return ""  # it may be chance
    if compared is None and line["verdict"] != Verdict.ERROR:
        return ""
    message = str(compared["lacking"]).partition("\n")[0] if compared else _first_line(line)
    stack = line["stack"]["name"]
    _, _, error = f": {message}".partition(f": candidate {stack}: ")
    return error


def _comparisons(line: _Line) -> Sequence[_Line]:
    return line.get("comparisons") or []


def _comparison(line: _Line, name: str) -> _Line | None:
    for compared in _comparisons(line):
        if compared["quantity"] == name:
            return compared
    return None


def _outcome_of(compared: _Line) -> Outcome:
    verdict = compared["verdict"]
    if verdict in _OUTCOMES:
        return _OUTCOMES[verdict]
    is_of_inputs = compared["of"] == "inputs"
    if is_of_inputs and _is_as_right(compared):
        return Outcome.GOOD
    return Outcome.UNDECIDED


def _is_as_right(compared: _Line) -> bool:
    """Return whether the same inputs are not answered worse.

    Bounds over few inputs reach beyond any tolerance, also where both sides answer the same.
    """
    change = compared["ratio"]
    if change is None:
        return False
    quantity = QUANTITIES.get(compared["quantity"])
    sign = quantity.sign if quantity else -1
    return bool(sign * change <= 0)


def _reason(line: _Line, compared: _Line) -> str:
    missing = str(compared["lacking"])
    if compared["verdict"] != Verdict.INCONCLUSIVE:
        return missing
    outputs = _comparison(line, AGREEMENT)
    if outputs and outputs["verdict"] == Verdict.REGRESSED:
        return "the outputs differ, which ends an upgrade; bisect --quantity agreement first"
    return missing or straddling_text(from_plain(Comparison, compared))


def _problem(line: _Line, name: str) -> str:
    if line["verdict"] in _FAILURES:
        return _first_line(line)
    crash = _crash_of(line)
    if crash:
        return f"it crashes, which ends an upgrade; bisect --quantity crash first: {crash}"
    return f"the upgrade did not compare {name}"


def _first_line(line: _Line) -> str:
    message = str(line.get("message") or "")
    lines = message.splitlines()
    if lines:
        return lines[0]
    verdict = line["verdict"]
    return f"{verdict}, without a message"
