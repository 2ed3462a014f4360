"""The cause of a change, from what an upgrade between the stacks on both sides says of it.

All functions are pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_mlms.core.quantities import QUANTITIES, upgrade_rules
from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.core.serialization import from_plain
from pytest_mlms.decide.upgrade.crash import CRASH
from pytest_mlms.decide.upgrade.labels import straddling_text
from pytest_mlms.keep.history.changes import Cause, Change

_LEAST_TOLERANCE = 0.01
"""Below this an upgrade seldom decides within its budget."""

_UNMEASURED = (Verdict.ERROR, Verdict.INVALID, Verdict.SKIPPED)
_COMPARED_AS = {
    "latency_mean": "latency",
    "latency_p50": "latency",
    "deviation": "agreement",
    "difference_max": "agreement",
    "difference_mean": "agreement",
    "relative_difference_max": "agreement",
    "relative_difference_mean": "agreement",
}
"""Quantity of a series -> the quantity of upgrades that it is compared by, where names differ."""


@dataclass(frozen=True)
class Circumstances:
    """Differences between both runs beside the software.

    ``plugin`` names both versions of this plugin where they differ. ``control`` names the change of
    the host's control item at the same time.
    """

    plugin: str = ""
    control: str = ""


class Finding(NamedTuple):
    """The cause of an open change, None where it stays open, and the reason.

    ``run`` is the run of the gate.
    """

    change: Change
    cause: Cause | None
    reason: str
    run: str | None = None


class Gate(NamedTuple):
    """A quantity of upgrades and its tolerance; None for that of the manifest or the default."""

    quantity: str
    tolerance: float | None


def gate_of(change: Change, named: Mapping[str, float]) -> Gate | None:
    """Return what an upgrade has to decide for a suspicion; None for what it can't compare.

    ``named`` are the manifest's tolerances. The tolerance is at most half of the suspected change,
    so that the change is beyond it and no change is within.
    """
    name = _COMPARED_AS.get(change.quantity, change.quantity)
    of_outputs = {**upgrade_rules("inputs"), **upgrade_rules("outputs")}
    if name in of_outputs and of_outputs[name].asked:
        return Gate(name, named.get(name, of_outputs[name].tolerance))
    if name == "agreement" or name in of_outputs:
        return Gate(name, None)
    rule = upgrade_rules().get(name)
    if rule is None or name not in QUANTITIES:
        return None
    usual = named.get(name, rule.tolerance)
    if not 0 < change.ratio < math.inf:  # from or to a level of 0
        return Gate(name, usual)
    logarithm = abs(math.log(change.ratio))
    half = math.expm1(logarithm / 2)
    tolerance = min(usual, half)
    return Gate(name, max(_LEAST_TOLERANCE, tolerance))


def decide(change: Change, upgrade: Mapping[str, Any], circumstances: Circumstances) -> Finding:
    """Return the cause of a change by the line of an upgrade in results.jsonl."""
    cause, reason = _cause(change, upgrade, circumstances)
    return Finding(change, cause, reason, upgrade["run"])


def _cause(
    change: Change, upgrade: Mapping[str, Any], circumstances: Circumstances
) -> tuple[Cause | None, str]:
    """Return the cause of a change, None where it stays open, and the reason."""
    comparisons = upgrade.get("comparisons") or []
    if not comparisons or upgrade["verdict"] in _UNMEASURED:
        return None, _problem(upgrade)
    name = _COMPARED_AS.get(change.quantity, change.quantity)
    by_quantity = {compared["quantity"]: compared for compared in comparisons}
    own = by_quantity.get(name)
    is_decided = own is not None and own["verdict"] != Verdict.INCONCLUSIVE
    outputs = _changed_outputs(comparisons)
    if CRASH in outputs and not is_decided:
        return "software", f"REGRESSED: {by_quantity[CRASH]['lacking'].partition(chr(10))[0]}"
    if outputs and not is_decided:
        names = ", ".join(outputs)
        return "software", f"REGRESSED in {names}: the stacks compute different outputs"
    if own is None:
        return None, f"the upgrade did not compare {name}"
    return _cause_by(own, change, circumstances)


def _problem(upgrade: Mapping[str, Any]) -> str:
    """Return why an upgrade measured nothing."""
    message = str(upgrade.get("message") or "it measured nothing")
    first_line = message.splitlines()[0]
    return f"the upgrade is {upgrade['verdict']}: {first_line}"


def _changed_outputs(comparisons: list[Mapping[str, Any]]) -> list[str]:
    """Return the quantities over inputs that regressed: they end an upgrade before its times do."""
    found = []
    for compared in comparisons:
        if compared["of"] not in ("rounds", "calls") and compared["verdict"] == Verdict.REGRESSED:
            found.append(compared["quantity"])
    return found


def _cause_by(
    compared: Mapping[str, Any], change: Change, circumstances: Circumstances
) -> tuple[Cause | None, str]:
    """Return the cause of a change by the comparison of its quantity, and the reason."""
    verdict = compared["verdict"]
    shown = _shown(compared)
    expected = Verdict.REGRESSED if change.is_worse else Verdict.IMPROVED
    if verdict == expected:
        return "software", f"{verdict} in {shown}"
    if not change.is_worse and _is_surely_more_right(compared, change.better):
        return "software", f"better in {shown}"
    if verdict == Verdict.INCONCLUSIVE:
        why = compared["lacking"] or straddling_text(from_plain(Comparison, compared))
        advice = "confirm it again, on a quieter machine"
        return None, f"{verdict} in {shown}: {why}; {advice}"
    cause, why = cause_without_software(circumstances)
    return cause, f"{verdict} in {shown}; {why}"


def _is_surely_more_right(compared: Mapping[str, Any], better: str) -> bool:
    """Return whether a quantity over inputs gained: its interval is on the better side of 0."""
    low = compared["low"]
    high = compared["high"]
    if compared["of"] in ("rounds", "outputs"):
        return False
    if low is None or high is None:
        return False
    if better == "higher":
        return bool(low > 0)
    return bool(high < 0)


def _shown(compared: Mapping[str, Any]) -> str:
    """Return the quantity with its change and the interval, where there are such."""
    name = compared["quantity"]
    numbers = [compared[key] for key in ("ratio", "low", "high")]
    if None in numbers:
        return str(name)
    ratio, low, high = numbers
    sign = "×" if compared["of"] == "rounds" else ""
    return f"{name}, {sign}{ratio:.3f} ({low:.3f} to {high:.3f})"


def cause_without_software(circumstances: Circumstances) -> tuple[Cause, str]:
    """Return the cause of a change that the software did not make, and its reason."""
    if circumstances.plugin:
        return "method", f"pytest-mlms changed: {circumstances.plugin}"
    if circumstances.control:
        return "machine", f"the host's control item stepped, too: {circumstances.control}"
    return "noise", "nothing else is known to have changed"
