"""Expectation of a bundle, from an item's line of results.jsonl: pure functions."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.quantities import QUANTITIES, upgrade_rules
from pytest_mlms.core.records import Verdict
from pytest_mlms.core.text import anonymous
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.output_verdict import PICTURES
from pytest_mlms.explain.bisect.judgement import (
    AGREEMENT,
    BATCH_AGREEMENT,
    CRASH,
    Judgement,
    ending_of,
    judgement_of,
)
from pytest_mlms.explain.bisect.search import Outcome
from pytest_mlms.explain.repro.bundle import Expectation
from pytest_mlms.explain.repro.replay.record import (
    ANSWERS,
    LIMIT,
    MOST_CALLS,
    OUTPUTS,
    RATIO,
    SCENARIOS,
)
from pytest_mlms.explain.repro.replay.record import CRASH as CRASHES

_PROCESS = re.compile(r" \(process \d+\)")
_ADVICE = re.compile(r"(?<= can't be imported in )(.*); [^;]*: (?='hello' raised )")
"""Advice on files of the run, which a reader of the bundle hasn't."""
_LOG = re.compile(r" \(log: [^)\n]*\)")

_AT_EXIT = re.compile(r"failed at its exit|had not ended")
_EXITS = re.compile(r"of (\d+) exits of each side B failed in (\d+)")
_MOST_TEXT = 500  # characters of a summary
_SURE = 4  # times as many calls as give one other output, or exits as give one failure: of 50
# replays one doesn't see it

_OF_OUTPUTS = ("inputs", "outputs")
_LATENCIES = ("latency", "throughput")
_ONCE = ("load_time", "first_inference", "import_memory")
"""Quantities of a process before it is under load."""

Line = Mapping[str, Any]


def can_replay(quantity: str, of: str) -> bool:
    """Return whether a bundle shows that a quantity of an upgrade got worse."""
    return quantity in (CRASH, *_compared()) or _is_of_outputs(quantity, of)


def _compared() -> list[str]:
    """Return the quantities that rounds without a load compare."""
    return [name for name in upgrade_rules() if not QUANTITIES[name].under_load]


def can_reduce(quantity: str, of: str) -> bool:
    """Return whether a part of a model may show it: outputs, a crash, or the time of calls."""
    return quantity.startswith((CRASH, *_LATENCIES)) or _is_of_outputs(quantity, of)


def _is_of_outputs(quantity: str, of: str) -> bool:
    """Return whether a replay's outputs show it: both sides have the same batches there."""
    return of in _OF_OUTPUTS and quantity != BATCH_AGREEMENT


def expectation_of(line: Line, quantity: str | None = None) -> Expectation:
    """Return what a replay of an item is held against; raises MlmsError where nothing failed.

    ``quantity`` chooses one of an upgrade; None: the first that regressed. The tolerance of outputs
    is the default, as lines don't have the manifest's.
    """
    if line["kind"] == "soak":
        problem = f"{line['nodeid']} is a soak, and a replay has too few calls for what time does"
        raise MlmsError(f"{problem}; run it again: {line.get('reproduce', '')}")
    if line["kind"] == "upgrade":
        return _of_upgrade(line, quantity)
    if quantity:
        raise MlmsError(f"--quantity is for upgrades, and {line['nodeid']} is none; leave it out")
    if line["verdict"] == Verdict.ERROR:
        return _of_crash(line, str(line.get("message") or ""))
    if line["verdict"] != Verdict.FAILED:
        raise _nothing(line)
    if line["kind"] == "agreement":
        return _of_agreement(line)
    return _of_limit(line)


def _nothing(line: Line, judgement: Judgement | None = None) -> MlmsError:
    problem = f"{line['nodeid']} is {line['verdict']}"
    if judgement is not None and line["verdict"] == Verdict.REGRESSED:
        problem = f"{judgement.quantity} of {line['nodeid']} is {judgement.verdict}"
        problem += f" ({judgement.reason})" * bool(judgement.reason)
        return MlmsError(f"{problem}; leave out --quantity, or name one that is REGRESSED")
    problem += ": there is no failure to reproduce"
    return MlmsError(f"{problem}; name an item that is REGRESSED or FAILED, or that crashed")


def _of_upgrade(line: Line, quantity: str | None) -> Expectation:
    judgement = judgement_of(line, quantity)
    if judgement.outcome is not Outcome.BAD:
        raise _nothing(line, judgement)
    if judgement.quantity == CRASH:
        return _of_crash(line, judgement.reason)
    if _is_of_outputs(judgement.quantity, judgement.of):
        return _of_outputs(line, judgement)
    return _of_ratio(line, judgement)


def _of_crash(line: Line, text: str) -> Expectation:
    first = text.partition("\n")[0]
    how = ending_of(first)
    if not how:
        problem = f"{line['nodeid']} ended with an error that is not the framework's"
        raise MlmsError(f"{problem}: {first}")
    at_exit = is_at_exit(first)
    first = told_to_others(first, (line.get("machine") or {}).get("host") or "")
    summary = f"the new side fails: {first}"[:_MOST_TEXT]
    return Expectation(
        kind=CRASHES,
        quantity=CRASH,
        verdict=str(line["verdict"]),
        summary=summary,
        crash=how,
        at_exit=at_exit,
        calls=_exits_to_see(line) if at_exit else 1,
    )


def is_at_exit(text: str) -> bool:
    """Return whether the first line of an agent's error tells of its end, not of a call."""
    return _AT_EXIT.search(text.partition("' raised ")[0]) is not None


def _exits_to_see(line: Line) -> int:
    """Return how many exits show a failure that only some of them had."""
    for compared in line.get("comparisons") or ():
        counts = _EXITS.search(str(compared.get("lacking") or ""))
        if compared["quantity"] == CRASH and counts:
            exits, failed = map(int, counts.groups())
            return min(MOST_CALLS, math.ceil(_SURE * exits / failed)) if failed else 1
    return 1


def told_to_others(text: str, host: str) -> str:
    """Return why a side failed, without what only whoever ran it has: paths, logs, and advice."""
    for own, told in ((_PROCESS, ""), (_ADVICE, r"\1: "), (_LOG, "")):
        text = own.sub(told, text)
    return anonymous(text, host)


def _of_outputs(line: Line, judgement: Judgement) -> Expectation:
    found = line.get("outputs") or {}
    if list(found.get("elsewhere") or ()) == [PICTURES] and not found["beyond"]:
        problem = f"{line['nodeid']}: its stacks decode other pictures, and agree for the same"
        raise MlmsError(f"{problem}; a bundle has pictures that are decoded, and can't show it")
    if judgement.quantity == AGREEMENT:
        by = "" if judgement.ratio is None else f" by {judgement.ratio:.3g} × what is allowed"
        summary = judgement.reason or f"the outputs differ{by}"
    else:
        change = f"{judgement.a} → {judgement.b}"
        summary = f"{judgement.quantity} {change}: the inputs that got worst have other outputs"
    return Expectation(
        kind=OUTPUTS,
        quantity=judgement.quantity,
        verdict=judgement.verdict,
        summary=summary,
        a=_finite(judgement.a),
        b=_finite(judgement.b),
        unit=judgement.unit,
        ratio=_finite(judgement.ratio),
        tolerance=judgement.tolerance,
        better="higher" if judgement.of == "inputs" else "lower",
        calls=_calls_to_see(found.get("repeated") or {}),
    )


def _calls_to_see(repeated: Mapping[str, Any]) -> int:
    """Return how many calls show outputs that the new side alone gives now and then."""
    calls, differing = map(int, repeated.get("b", (0, 0)))
    if not differing or repeated.get("a", (0, 0))[1]:
        return 1
    return min(MOST_CALLS, math.ceil(_SURE * calls / differing))


def _of_ratio(line: Line, judgement: Judgement) -> Expectation:
    quantity = judgement.quantity
    _check_measured(quantity, _compared())
    if judgement.ratio is None:
        raise MlmsError(f"the line has no ratio of {quantity}; measure it again")
    low, high = _finite(judgement.low), _finite(judgement.high)
    ends = f" (×{low:.3f} to ×{high:.3f})" if low is not None and high is not None else ""
    values = f"{_shown(judgement.a, judgement.unit)} → {_shown(judgement.b, judgement.unit)}"
    allowed = f"{100 * (judgement.tolerance or 0):.3g} %"
    summary = f"{quantity} {values}, ×{judgement.ratio:.3f}{ends}; {allowed} are allowed"
    compared = next(one for one in line["comparisons"] if one["quantity"] == quantity)
    # Where a least change was the tolerance of that machine, it is so where it is replayed; that of
    # latency, which widened another quantity's, is no share of that one.
    has_least = upgrade_rules()[quantity].least_change
    asked = compared.get("asked") if has_least else None
    return Expectation(
        kind=RATIO,
        quantity=quantity,
        verdict=judgement.verdict,
        summary=summary,
        a=_finite(judgement.a),
        b=_finite(judgement.b),
        unit=judgement.unit,
        ratio=_finite(judgement.ratio),
        low=low,
        high=high,
        tolerance=judgement.tolerance if asked is None else asked,
        better=QUANTITIES[quantity].better,
    )


def is_measured(kind: str, quantity: str) -> bool:
    """Return whether a replay of such a kind measures a quantity."""
    if kind == RATIO:
        return quantity in _compared()
    return kind != LIMIT or quantity in _limited()


def _check_measured(quantity: str, measured: Collection[str]) -> None:
    if quantity not in measured:
        known = ", ".join(measured)
        raise MlmsError(f"a bundle can't measure {quantity}; it can measure {known}, and outputs")


def _of_agreement(line: Line) -> Expectation:
    reference = line.get("reference")
    if not reference:
        raise MlmsError(f"{line['nodeid']}: its line doesn't tell the reference; run it again")
    deviation = ((line["estimates"] or {}).get("deviation") or {}).get("value")
    by = f" by {deviation:.3g} × what is allowed" if deviation else ""
    versions = reference.get("versions") or {}
    framework = reference["framework"]
    name = f"{framework} {versions.get(framework, '')}".strip()
    return Expectation(
        kind=OUTPUTS,
        quantity=AGREEMENT,
        verdict=str(line["verdict"]),
        summary=f"the outputs differ from those of {name}{by}",
        ratio=_finite(deviation),
    )


def _of_limit(line: Line) -> Expectation:
    broken = [limit for limit in line.get("limits") or () if limit["verdict"] == Verdict.FAILED]
    if not broken:
        raise _nothing(line)
    limit = broken[0]
    quantity = limit["quantity"]
    if quantity not in QUANTITIES:
        raise MlmsError(f"{line['nodeid']}: its limit is of {quantity}, which can't be replayed")
    value = (line["estimates"] or {}).get(quantity, {}).get("value")
    unit = QUANTITIES[quantity].unit
    bound = limit["max"] if limit.get("max") is not None else limit["min"]
    summary = f"{quantity} is {_shown(value, unit)}; the limit is {_shown(bound, unit)}"
    kind = LIMIT
    if line["kind"] == "accuracy":
        kind = ANSWERS
        summary += "; these inputs are answered worst"
    elif line.get("load") and quantity not in _ONCE:
        problem = f"{line['nodeid']}: its limit is of {quantity} under load"
        raise MlmsError(f"{problem}; a bundle has calls one after the other, and can't judge it")
    else:
        _check_measured(quantity, _limited())
    scenario = str(line.get("scenario") or "")
    return Expectation(
        kind=kind,
        quantity=quantity,
        verdict=str(line["verdict"]),
        summary=summary,
        b=_finite(value),
        unit=unit,
        better=QUANTITIES[quantity].better,
        limit=bound,
        scenario=scenario if scenario in SCENARIOS else SCENARIOS[0],
    )


def _limited() -> list[str]:
    """Return the quantities that processes without a load measure on one batch."""
    return [
        name
        for name, quantity in QUANTITIES.items()
        if quantity.kind == "performance" and not quantity.under_load and name != BATCH_AGREEMENT
    ]


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "unknown"
    return format_quantity(value, unit) if unit else f"{value:.4g}"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
