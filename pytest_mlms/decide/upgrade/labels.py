"""Short texts on an upgrade that tables and explanations share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pytest_mlms.core.quantities import QUANTITIES, upgrade_rules
from pytest_mlms.core.records import (
    Comparison,
    InputGroup,
    Verdict,
    change_form,
    main_comparison,
)
from pytest_mlms.core.units import format_quantity

NOT_SHOWN = "not shown to be worse"
"""Label of a guard of accuracy whose interval reaches beyond the tolerance."""


_MUCH_WORSE = 1.25

_AS_GOOD_AS_OPEN = 1000

_LEAST_WRITTEN_OUT = 99.5  # percent


def with_variant(stack: str, variant: str | None) -> str:
    """Return the name in texts of a stack that runs a variant of a model."""
    if not variant or stack.endswith(variant):
        return stack
    return variant if stack == "here" else f"{stack} {variant}"


def sides_label(candidate: str, baseline: str, framework: str) -> str:
    """Return both sides' names, with the framework where the candidate's name does not have it."""
    label = f"{candidate} (B) against {baseline} (A)"
    if framework in candidate:
        return label
    return f"{label}, {framework}"


def software_text(versions: Mapping[str, str], python: str) -> str:
    """Return versions as "onnxruntime 1.31.0, numpy 2.4.6, Python 3.11.7"; "" for none."""
    known = [f"{name} {version}" for name, version in versions.items()]
    if python:
        known.append(f"Python {python}")
    return ", ".join(known)


def point_label(
    device: str, batch_size: int, scenario: str | None, shape: str | None = None
) -> str:
    """Return the rest of the case, beside its sides."""
    words = [device, f"b{batch_size}", scenario, shape]
    return "-".join(word for word in words if word)


def verdict_label(compared: Comparison) -> str:
    """Return the verdict on a quantity as a person reads it."""
    is_undecided = compared.verdict is Verdict.INCONCLUSIVE
    if compared.of == "inputs" and is_undecided and not compared.gate:
        return NOT_SHOWN
    return compared.verdict.value


def deciding_label(verdict: Verdict, comparisons: Sequence[Comparison]) -> str:
    """Return the quantities that decided an upgrade.

    "" where it is latency alone, whose columns a table has.
    """
    names = [compared.quantity for compared in deciding(verdict, comparisons)]
    return "" if names == ["latency"] else ", ".join(names)


def tolerance_label(compared: Comparison) -> str:
    """Return the tolerance; for one that is wider than the asked one also that, and why."""
    return f"{percent(compared.tolerance)}{widening_label(compared)}"


def worst_change(compared: Comparison) -> float:
    """Return the change from A to B, as a share, at which a comparison is at its tolerance.

    A rate that is less by a tolerance of 5 % is that of 1.05 times the time: 4.76 % less.
    """
    known = QUANTITIES.get(compared.quantity)
    sign = known.sign if known is not None else 1
    if compared.of == "inputs":
        return sign * compared.tolerance
    return math.expm1(sign * math.log1p(compared.tolerance))


def straddling_text(compared: Comparison) -> str:
    """Return why an interval decides nothing."""
    return f"the interval straddles the tolerance of {tolerance_label(compared)}"


def widening_label(compared: Comparison) -> str:
    """Return the asked tolerance in place of a wider one, and why; else ""."""
    reason = _widening(compared, "the least change that is judged")
    if compared.asked is not None:
        return f" (instead of {percent(compared.asked)}: {reason})"
    return f" ({reason})" if reason else ""  # of an earlier version


def widened_forms(compared: Comparison) -> tuple[str, ...]:
    """Return a tolerance that is wider than the asked one and why, the longest form first.

    There are none for another tolerance.
    """
    reason = _widening(compared, "the least that is judged")
    if not reason:
        return ()
    asked = "" if compared.asked is None else f" instead of {percent(compared.asked)}"
    tolerance = f"tolerance {percent(compared.tolerance)}"
    return f"{tolerance}{asked}: {reason}", f"{tolerance}: {reason}", f"{tolerance}{asked}"


def _widening(compared: Comparison, least: str) -> str:
    """Return why a tolerance is wider than the asked one; "" where it isn't."""
    if compared.least_change:
        return f"{format_quantity(compared.least_change, compared.unit)} is {least}"
    return "" if compared.asked is None else "it is as wide as that of latency"


def group_lines(groups: Sequence[InputGroup]) -> list[str]:
    """Return a line for each group of inputs, with the change of its latency in an upgrade."""
    lines = []
    for group in groups:
        latency = format_quantity(group.latency, "s")
        part = f"inputs of shape {group.name} ({percent(group.share, '.2g')})"
        if group.ratio is None or group.baseline is None:
            tokens = {"to the first token": group.ttft, "for each further one": group.tpot}
            texts = [
                f"{format_quantity(value, 's')} {text}" for text, value in tokens.items() if value
            ]
            lines.append(", ".join([f"{part}: {latency}", *texts, f"of {group.inputs:,} inputs"]))
            continue
        baseline = format_quantity(group.baseline, "s")
        interval = f"{max(0.0, group.low):.3f} to {group.high:.3f}"
        lines.append(f"{part}: A {baseline}, B {latency}, ×{group.ratio:.3f} ({interval})")
    return lines


def difference_label(agreement: Comparison) -> str:
    """Return how far the outputs of both sides are apart, and on how many inputs they are so."""
    if agreement.told:
        return agreement.told
    return f"outputs differ by {_multiple(agreement)} what is allowed"


def _multiple(agreement: Comparison) -> str:
    if agreement.ratio < 0.01:
        return "less than 0.01 times"
    return f"up to {agreement.ratio:.3g} times"


def precision_text(latency: Comparison) -> str:
    """Return the noise floor of an upgrade, and the smallest slowdown that it would have found."""
    if not math.isfinite(latency.floor):
        return "noise floor: unknown, there is no interval"
    floor = percent(latency.floor, ".2g")
    detectable = percent(latency.detectable, ".2g")
    found = f"the smallest slowdown that it would have found, four times of five: {detectable}"
    return f"noise floor of this item: ±{floor}; {found}"


def percent(share: float, form: str = ".3g") -> str:
    """Return a share in percent; ``form`` is the format of the number.

    A large number is written out, where "g" would give it an exponent.
    """
    number = 100 * share
    if form.endswith("g") and _LEAST_WRITTEN_OUT <= abs(number) < math.inf:
        form = ",.0f"
    return f"{number:{form}} %"


def spread_text(value: float | None, low: float | None, high: float | None) -> str:
    """Return half of an interval as a share of its value, "±1.4 %"; "" where that isn't known."""
    if not value or low is None or high is None or math.isinf(high - low):
        return ""
    return f"±{percent((high - low) / 2 / abs(value), '.2g')}"


def format_change(compared: Comparison, space: str = " ") -> str:
    """Return B over A with its interval, such as "×1.079 (1.071 to 1.088)".

    For quantities over inputs it is the difference in points, "-0.17 (-0.83 to +0.99 %)", and for
    the agreement of outputs a multiple. ``space`` is the space within the brackets. "-" where there
    is no number.
    """
    if math.isnan(compared.ratio):
        return "-"
    form = change_form(compared.quantity, compared.of)
    if form == "multiple":
        return f"{_multiple(compared)} what is allowed"
    if form == "difference":
        low = f"{100 * compared.low:+.2f}"
        high = percent(compared.high, "+.2f").replace(" ", space)
        return f"{100 * compared.ratio:+.2f} ({low}{space}to{space}{high})"
    low = f"{max(0.0, compared.low):.3f}"
    high = upper_end(compared.high).replace(" ", space)
    return f"×{compared.ratio:.3f} ({low}{space}to{space}{high})"


def short_changes(compared: Comparison) -> tuple[str, ...]:
    """Return the forms of a line on a quantity of an upgrade, the longest first.

    Such as "latency ×1.101 (1.083 to 1.112), tolerance 3 %", and the same with fewer figures.
    """
    name = compared.quantity
    if compared.of == "outputs":
        told = difference_label(compared)
        return told, told.partition(" (")[0]
    lacking = compared.lacking.partition("\n")[0] or "not measured"
    if compared.of == "processes":
        return f"{name}: {lacking}", f"{name}: B fails where A does not"
    if math.isnan(compared.ratio):
        return f"{name}: {lacking}", f"{name}: not measured"
    change = f"{100 * compared.ratio:+.2f} %"
    if change_form(name, compared.of) == "ratio":
        change = f"×{compared.ratio:.3f}"
    tolerance = f"tolerance {percent(compared.tolerance)}"
    whole = f"{name} {format_change(compared)}, {tolerance}"
    if compared.lacking:
        return f"{whole}; {lacking}", whole, f"{name} {change}, {tolerance}", f"{name} {change}"
    return whole, f"{name} {change}, {tolerance}", f"{name} {change}"


def deciding(verdict: Verdict, comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons that made an upgrade REGRESSED or INCONCLUSIVE, the main one first.

    Failed processes and outputs come before it, as they end an upgrade.
    """
    if verdict not in (Verdict.REGRESSED, Verdict.INCONCLUSIVE):
        return []
    found = []
    for compared in comparisons:
        counts = compared.gate or compared.verdict is Verdict.REGRESSED
        if counts and compared.verdict is verdict:
            found.append(compared)
    main = main_comparison(comparisons)
    return sorted(found, key=lambda one: (one.of not in ("processes", "outputs"), one is not main))


def upper_end(ratio: float) -> str:
    """Return the upper end of an interval of ratios, which few rounds leave as good as open."""
    if not math.isfinite(ratio):
        return "unbounded"
    return f"{ratio:.3f}" if ratio < _AS_GOOD_AS_OPEN else f"over {_AS_GOOD_AS_OPEN}"


def is_told(compared: Comparison) -> bool:
    """Return whether a quantity that did not regress is to be told, also of what passed.

    Its estimate is beyond the tolerance, or its value 25 % worse, before anything is added to both:
    by no less than half of what regresses where the baseline has next to nothing. One without an
    interval, as after a single round, tells nothing. Exits that failed are told.
    """
    if compared.of == "processes":
        return compared.verdict is Verdict.INCONCLUSIVE
    quantity = QUANTITIES.get(compared.quantity)
    if compared.verdict is Verdict.REGRESSED or quantity is None or math.isnan(compared.ratio):
        return False
    if compared.of == "inputs":
        return quantity.sign * compared.ratio > compared.tolerance
    if math.isinf(compared.high):
        return False
    if compared.of not in ("rounds", "visits") or not compared.a or compared.ratio <= 0:
        return False
    limit = min(_MUCH_WORSE, 1 + compared.tolerance)
    worse = [compared.ratio**quantity.sign, (compared.b / compared.a) ** quantity.sign]
    base = quantity.upgrade.base if quantity.upgrade else 0.0
    matters = abs(compared.b - compared.a) >= compared.tolerance * base / 2
    return worse[0] > limit or (worse[1] >= _MUCH_WORSE and matters)


def told_forms(comparisons: Sequence[Comparison]) -> list[Sequence[str]]:
    """Return the forms of a line on each quantity that is to be told, the longest first."""
    return [_told(compared) for compared in comparisons if is_told(compared)]


def _told(compared: Comparison) -> Sequence[str]:
    is_open = compared.verdict is Verdict.INCONCLUSIVE
    state = "undecided" if is_open else "within its tolerance"
    name = compared.quantity.replace("_", " ")
    if compared.of == "processes":
        return [f"{state}: {name}: {compared.lacking}"]
    tolerance = f"tolerance {percent(compared.tolerance)}"
    changed = f"{state}: {name} {change_text(compared)}, {tolerance}"
    ratio = f"{state}: {name} {format_change(compared)}, {tolerance}"
    return [f"{changed}{widening_label(compared)}", changed, ratio]


def change_text(compared: Comparison) -> str:
    """Return both values and their change, with the base added to both before the division."""
    a = format_quantity(compared.a, compared.unit)
    b = format_quantity(compared.b, compared.unit)
    rules = {**upgrade_rules("inputs"), **upgrade_rules()}
    rule = rules.get(compared.quantity)
    if compared.of == "inputs":
        return f"A {a}, B {b}, {format_change(compared)} of {compared.replicates} inputs"
    if rule is None or not rule.base:
        return f"A {a}, B {b}, {format_change(compared)}"
    base = format_quantity(rule.base, compared.unit)
    return f"A {a}, B {b}, judged with {base} added to both: {format_change(compared)}"
