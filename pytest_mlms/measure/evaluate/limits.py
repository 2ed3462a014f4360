"""Limits against estimates: pure functions. The interval decides, not the value."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence

from pytest_mlms.core.quantities import QUANTITIES, Quantity
from pytest_mlms.core.records import Decision, Estimate, Limit, OwnScale, Verdict
from pytest_mlms.core.units import format_apart, format_quantity

_WORST_FIRST = list(Verdict)
_NOT_MEASURED = Estimate(
    value=math.nan,
    low=0.0,
    high=math.inf,
    confidence=0.95,
    replicates=0,
    of="samples",
    lacking="it was not measured",
)
QUIETER = "measure where nothing else runs, or on cores of its own (taskset)"
"""Advice where other programs took the cores."""

_ROUNDING = 1e-9
"""By which a share of inputs without any error may miss its best value.

What isn't a share may be as small as that: a difference of outputs, or a mean error of labels.
"""

_LEAST_MARGIN = -sys.float_info.max  # results have no infinity
_NARROWER = {
    "performance": "raise --mlms-budget or --mlms-duration, or quieten the machine",
    "soak": "a longer --mlms-soak narrows it, and so does a quieter machine",
}
"""Kind of quantity -> what narrows its interval; a larger dataset, for those over inputs."""

_VERBS = {
    Verdict.FAILED: "is not",
    Verdict.REGRESSED: "is not",
    Verdict.PASSED: "is",
    Verdict.INCONCLUSIVE: "is not shown to be",
    Verdict.INVALID: "is not",
}


def scale_of(limit: Limit) -> Quantity | OwnScale:
    """Return what knows the unit of a limit's quantity, and the side that the limit bounds."""
    return limit.own or QUANTITIES[limit.quantity]


def judge(limits: Iterable[Limit], estimates: Mapping[str, Estimate]) -> list[Decision]:
    """Return a decision for each limit, in their order.

    A quantity that was not measured is inconclusive.
    """
    decisions = []
    for limit in limits:
        estimate = estimates.get(limit.quantity, _NOT_MEASURED)
        verdict = decide(limit, estimate)
        decisions.append(Decision(limit, estimate, verdict))
    return decisions


def decide(limit: Limit, estimate: Estimate) -> Verdict:
    """Return the verdict of an interval on a limit.

    PASSED where the interval lies wholly on the right side, FAILED where it lies wholly on the
    wrong one, INCONCLUSIVE where it straddles the limit or where something is missing. INVALID in
    place of FAILED where only contention breaks the limit: the value without the wait for a core
    meets it. A limit that allows no input to be wrong is one on the inputs that there are: no
    number of them shows that others are right, too.
    """
    if estimate.lacking:
        return Verdict.INCONCLUSIVE
    if _allows_no_error(limit):
        error = abs(estimate.value - limit.value)
        allowed = _ROUNDING if scale_of(limit).unit == "fraction" else 0.0
        return Verdict.PASSED if error <= allowed else Verdict.FAILED
    if scale_of(limit).bound == "min":
        passed = estimate.low >= limit.value
        failed = estimate.high < limit.value
    else:
        passed = estimate.high <= limit.value
        failed = estimate.low > limit.value
    if passed:
        return Verdict.PASSED
    if not failed:
        return Verdict.INCONCLUSIVE
    if _is_met_without_wait(limit, estimate):
        return Verdict.INVALID
    return Verdict.FAILED


def _allows_no_error(limit: Limit) -> bool:
    """Return whether a limit is the end of its quantity's range, such as 100 % of right inputs."""
    scale = scale_of(limit)
    if not isinstance(scale, Quantity) or scale.kind in ("performance", "soak"):
        return False
    if scale.bound == "max":
        return limit.value == 0
    return scale.unit == "fraction" and limit.value == 1


def _is_met_without_wait(limit: Limit, estimate: Estimate) -> bool:
    value = estimate.less_wait
    if value is None:
        return False
    if scale_of(limit).bound == "min":
        return value >= limit.value
    return value <= limit.value


def worst(verdicts: Collection[Verdict]) -> Verdict:
    """Return the worst verdict; PASSED where there is none.

    A limit that is broken in any case outweighs one that contention broke.
    """
    if Verdict.FAILED in verdicts:
        return Verdict.FAILED
    return min(verdicts, key=_WORST_FIRST.index, default=Verdict.PASSED)


def margin(decisions: Sequence[Decision]) -> float:
    """Return the least margin of the decisions, as a share of the limit.

    A margin is how far the worst end of an interval is inside its limit. It is negative outside,
    and infinite where there are no limits.
    """
    margins = [math.inf]
    for decision in decisions:
        margins.append(_relative_margin(decision.limit, decision.estimate))
    return max(min(margins), _LEAST_MARGIN)


def _relative_margin(limit: Limit, estimate: Estimate) -> float:
    inside = _inside(limit, estimate)
    if limit.value == 0:
        return math.copysign(math.inf, inside)
    return inside / abs(limit.value)


def _inside(limit: Limit, estimate: Estimate) -> float:
    """Return how far the worst end of the interval is inside the limit, in the base unit."""
    if scale_of(limit).bound == "min":
        return estimate.low - limit.value
    return limit.value - estimate.high


def explain(decision: Decision) -> str:
    """Return a text with the value, its interval, the limit, and the line that set it.

    For an open decision also what would help.
    """
    limit = decision.limit
    set_by = f"limit set by {limit.place}"
    if limit.default:
        set_by = (
            f"the default limit; thresholds: {limit.quantity} in {limit.place.path} sets another"
        )
    lines = [_measurement(decision), f"  {set_by}"]
    if decision.verdict is Verdict.INCONCLUSIVE:
        lines.append(f"  {_advice(decision)}")
    elif decision.reason:
        lines.append(f"  {decision.reason}")
    elif decision.verdict is Verdict.INVALID:
        lines.append(f"  {_advice_on_wait(decision)}")
    return "\n".join(lines)


def summarize(decisions: Sequence[Decision]) -> str:
    """Return the text of ``explain`` in one line, without the place of the first limit.

    Of several decisions without a value for the same reason, it names their quantities, and the
    lines of the other limits.
    """
    first, *others = decisions
    if others:
        names = [_name(first)]
        for decision in others:
            place = decision.limit.place
            line = f"line {place.line}" if place.path == first.limit.place.path else str(place)
            is_known = decision.limit.default or place == first.limit.place
            names.append(_name(decision) + ("" if is_known else f" ({line})"))
        return f"{', '.join(names)}: {_advice(first)}"
    if first.verdict is Verdict.INCONCLUSIVE:
        return f"{_measurement(first)}; {_advice(first)}"
    return _measurement(first)


def alike(undecided: Iterable[Decision]) -> list[list[Decision]]:
    """Return decisions in groups: one of those without a value for the same reason."""
    groups: dict[object, list[Decision]] = {}
    for decision in undecided:
        estimate = decision.estimate
        cause = estimate.lacking if math.isnan(estimate.value) else id(decision)
        groups.setdefault(cause, []).append(decision)
    return list(groups.values())


def _measurement(decision: Decision) -> str:
    """Return the limit, the verdict on it, and the measured value."""
    limit = decision.limit
    quantity = scale_of(limit)
    is_disturbed = decision.verdict is Verdict.INVALID and decision.reason
    verb = _VERBS[Verdict.INCONCLUSIVE] if is_disturbed else _VERBS[decision.verdict]
    side = "at least" if quantity.bound == "min" else "at most"
    value, bound = format_apart(decision.estimate.value, limit.value, quantity.unit)
    interval = _describe_interval(decision.estimate, quantity.unit)
    return f"{_name(decision)} {verb} {side} {bound}: measured {value}{interval}"


def _name(decision: Decision) -> str:
    inputs = f" with inputs of shape {decision.group}" if decision.group else ""
    return f"{decision.limit.quantity}{inputs}"


def _describe_interval(estimate: Estimate, unit: str) -> str:
    """Return the interval behind a comma; "" for a single value, which has none."""
    if estimate.replicates == 1 and estimate.confidence == 1:
        return ""
    samples = f"{estimate.replicates} {estimate.of}"
    if estimate.confidence == 1:  # computed over all that there is
        return f", over {samples}"
    low = format_quantity(estimate.low, unit)
    high = format_quantity(estimate.high, unit)
    confidence = f"{100 * estimate.confidence:.3g} % confidence"
    return f", interval {low} to {high} ({confidence}, {samples})"


def _advice(decision: Decision) -> str:
    if decision.estimate.lacking:
        return f"undecided: {decision.estimate.lacking}"
    if decision.reason:
        return f"undecided: {decision.reason}"
    reason = "undecided: the limit is inside the interval"
    if decision.limit.own:
        return f"{reason}; more values narrow it"
    longer = _longer(decision) if decision.limit.quantity == "soak_growth" else math.inf
    if longer < math.inf:
        return f"{reason}; some {longer} times the --mlms-soak would narrow it enough"
    kind = QUANTITIES[decision.limit.quantity].kind
    return f"{reason}; {_NARROWER.get(kind, 'a larger dataset narrows it')}"


def _longer(decision: Decision) -> float:
    """Return how many times as many calls the interval of a growth needs to leave its limit out.

    It is as wide as the noise of what a process holds, divided by the calls.
    """
    estimate, limit = decision.estimate, decision.limit.value
    end = estimate.high if estimate.value < limit else estimate.low
    if estimate.value == limit:
        return math.inf
    return math.ceil(abs((end - estimate.value) / (limit - estimate.value)))


def _advice_on_wait(decision: Decision) -> str:
    value = decision.estimate.less_wait
    assert value is not None, "only a value without the wait makes a decision INVALID"
    shown = format_quantity(value, scale_of(decision.limit).unit)
    reason = f"invalid: contention broke it, {shown} without the wait for a core meets the limit"
    return f"{reason}; {QUIETER}"
