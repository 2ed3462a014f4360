"""What a person is told of an upgrade: pure functions from comparisons and plain facts to text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_mlms.records import Comparison, Verdict
from pytest_mlms.units import format_quantity
from pytest_mlms.upgrade.decision import CLOCKS, LEAST_ROUNDS, MOST_ROUNDS, TOLERANCES, Clock
from pytest_mlms.upgrade.layer_diff import LayerChange

__all__ = ["change_of", "explain_upgrade", "layer_lines", "point_of", "sides_of"]


def explain_upgrade(comparisons: Sequence[Comparison], facts: Mapping[str, Any]) -> str:
    """Return the text of an upgrade: what was found, how surely, on what machine, and what to try.

    ``facts`` has ``a`` and ``b`` (the stacks' names), ``clock``, ``rounds``, ``machine``,
    ``layers``, ``budget``, ``place`` (the manifest's line for tolerances), ``threads`` (that both
    sides are asked for; None: their own choice), and ``asked`` (whether the command line gave
    latency's).
    """
    verdicts = {one.verdict for one in comparisons}
    lines = [
        _headline(comparisons, facts),
        *(f"  {_line(one)}" for one in _worst_first(comparisons) if _told(one)),
    ]
    untold = [one.quantity for one in comparisons if not _told(one)]
    if untold:
        lines.append(f"  not judged after {len(facts['rounds'])} round: {', '.join(untold)}")
    latency = next((one for one in comparisons if one.quantity == "latency"), None)
    if latency:
        lines.append(f"  {_precision(latency)}")
    lines.append(f"  {_how(facts)}")
    lines.append(f"  machine: {_machine(facts)}")
    lines += [f"  {line}" for line in _layers(facts)] if Verdict.REGRESSED in verdicts else []
    advice = _advice(comparisons, facts)
    return "\n".join([*lines, f"  {advice}"] if advice else lines)


def sides_of(line: Mapping[str, Any]) -> str:
    """Return what an upgrade's line is a comparison of.

    The framework too where the stack's name doesn't say it.
    """
    b, framework = line["stack"]["name"], line["framework"]
    return f"{b} (B) against {line['against']['name']} (A){f', {framework}' if framework not in b else ''}"


def point_of(line: Mapping[str, Any]) -> str:
    """Return the rest of an upgrade's case, beside its sides."""
    return f"{line['device']}-b{line['batch_size']}"


def _headline(comparisons: Sequence[Comparison], facts: Mapping[str, Any]) -> str:
    wrong = [one for one in comparisons if one.verdict is Verdict.REGRESSED]
    names = f"{facts['b']} (B) against {facts['a']} (A)"
    if any(one.quantity in ("agreement", "top1", "top5") for one in wrong):
        faster = any(one.quantity == "latency" and one.high < 1 for one in comparisons)
        return f"{names}: REGRESSED, B computes something else{', and is faster because it is wrong' * faster}"
    if wrong:
        return f"{names}: REGRESSED in {', '.join(one.quantity for one in wrong)}"
    if (
        any(one.gate and one.verdict is Verdict.INCONCLUSIVE for one in comparisons)
        or not comparisons
    ):
        return f"{names}: INCONCLUSIVE, the measurements can't tell"
    improved = any(
        one.quantity == "latency" and one.verdict is Verdict.IMPROVED for one in comparisons
    )
    return f"{names}: {'IMPROVED' if improved else 'PASSED'}"


def _worst_first(comparisons: Sequence[Comparison]) -> list[Comparison]:
    order = list(Verdict)
    return sorted(comparisons, key=lambda one: (order.index(one.verdict), not one.gate))


def _told(one: Comparison) -> bool:
    """Whether there is something to tell of it.

    A guard that is open for want of rounds is one of many.
    """
    return one.gate or one.verdict is not Verdict.INCONCLUSIVE or "rounds" not in one.lacking


def _line(one: Comparison) -> str:
    head = f"{one.verdict.value:<12} {one.quantity}: "
    tolerance = f"tolerance {100 * one.tolerance:.3g} %"
    if one.quantity == "agreement":
        times = "less than 0.01" if one.ratio < 0.01 else f"up to {one.ratio:.3g}"
        return head + (one.lacking or f"outputs differ by {times} times what is allowed")
    values = f"A {format_quantity(one.a, one.unit)}, B {format_quantity(one.b, one.unit)}"
    if one.of == "inputs":
        ends = f"{100 * one.low:+.2f} to {100 * one.high:+.2f}"
        return (
            head
            + f"{values}, {100 * one.ratio:+.2f} ({ends}) % of {one.replicates} inputs, {tolerance}"
        )
    base = TOLERANCES[one.quantity].base if one.quantity in TOLERANCES else 0.0
    added = f" with {format_quantity(base, one.unit)} added to both" if base else ""
    text = head + f"{values}, {change_of(one)}{added}, {tolerance}"
    guard = (
        ""
        if one.gate or one.verdict is not Verdict.INCONCLUSIVE
        else " (a guard: fails only if surely worse)"
    )
    return text + (f"; {one.lacking}" if one.lacking else "") + guard


def change_of(one: Comparison, space: str = " ") -> str:
    """Return B over A with its interval, as in "x1.079 (1.071 to 1.088)".

    ``space`` is the one within the brackets.
    """
    if math.isnan(one.ratio):
        return "-"
    high = "unbounded" if math.isinf(one.high) else f"{one.high:.3f}"
    return f"×{one.ratio:.3f} ({max(0.0, one.low):.3f}{space}to{space}{high})"


def _precision(latency: Comparison) -> str:
    if math.isnan(latency.floor):
        return "noise floor: unknown, there is no interval"
    return (
        f"noise floor of this item: ±{100 * latency.floor:.2g} %; the smallest slowdown that it would have found, "
        f"four times of five: {100 * latency.detectable:.2g} %"
    )


def _how(facts: Mapping[str, Any]) -> str:
    rounds = facts["rounds"]
    pairs, clock = sum(one["pairs"] for one in rounds), facts.get("clock")
    calls = {one["calls"] for one in rounds}
    many = f"{min(calls)} to {max(calls)}" if len(calls) > 1 else f"{min(calls)}"
    turns = "turns of a call" if calls == {1} else f"turns of {many} calls"
    told = CLOCKS[_clock(clock)] if clock else "none"
    return (
        f"{pairs:,} pairs ({turns}) in {len(rounds)} round{'s' * (len(rounds) != 1)} of fresh processes; "
        f"clock: {clock} ({told})"
    )


def _clock(name: Any) -> Clock:
    clock: Clock = name
    return clock


def _machine(facts: Mapping[str, Any]) -> str:
    machine, parts = facts.get("machine") or {}, []
    if machine.get("cpu"):
        parts.append(str(machine["cpu"].get("model")))
    cores = sorted({core for one in facts["rounds"] for core in one["cores"]})
    parts.append(f"cores {', '.join(map(str, cores))}" if cores else "cores not held")
    if machine.get("load_average"):
        parts.append(f"load {machine['load_average'][0]:g}")
    shares = facts.get("cpu_shares") or {}
    parts += [
        f"{name} {100 * shares[name]:.0f} %"
        for name in ("busy", "steal")
        if shares.get(name) is not None
    ]
    if not all(one["turns_exclusive"] for one in facts["rounds"]):
        parts.append("the side without the turn could not be stopped")
    if not all(one["steady"] for one in facts["rounds"]):
        parts.append("still getting faster when it was timed")
    parts += facts.get("gpu_notes") or []
    return ", ".join(parts)


def _layers(facts: Mapping[str, Any]) -> list[str]:
    layers = [LayerChange(*layer) for layer in facts.get("layers") or []]
    if layers:
        lines = ["layers that moved (a traced pass of its own; µs a call):", *layer_lines(layers)]
        return lines if layers[-1].change > 0 else [*lines, _ELSEWHERE]
    lacking = facts.get("layers_lacking")
    return [f"no layer times: {lacking}"] if lacking else []


_ELSEWHERE = "traced, B takes no longer: what it lost is outside of its layers, or too little for its profiler to see"
_STILL = 5e-8  # seconds: no change to the digits that are shown


def layer_lines(layers: Sequence[LayerChange]) -> list[str]:
    """Return the table layer | A | B | change | share of the whole change, the last row.

    Without what stood still.
    """
    rows = [("layer", "A", "B", "Δ", "share")]
    for layer in [*(one for one in layers[:-1] if abs(one.change) >= _STILL), *layers[-1:]]:
        name = layer.name if len(layer.name) <= 40 else f"…{layer.name[-39:]}"
        cells = ["-" if value is None else f"{value * 1e6:.1f}" for value in (layer.a, layer.b)]
        share = "-" if layer.share is None else f"{100 * layer.share:.0f} %"
        kind = f" ({layer.type})" if layer.type and layer.type not in name else ""
        rows.append((name + kind, *cells, f"{layer.change * 1e6:+.1f}", share))  # type: ignore[arg-type]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]


def _advice(comparisons: Sequence[Comparison], facts: Mapping[str, Any]) -> str:
    regressed = [one for one in comparisons if one.verdict is Verdict.REGRESSED]
    if {"agreement", "top1", "top5"} & {one.quantity for one in regressed}:
        return "try: test_agreement and test_accuracy with each stack say more; no tolerance of speed matters here"
    if regressed:
        return f"try: if this is meant, allow it: {_allowance(regressed, facts)}"
    opened = [one for one in comparisons if one.gate and one.verdict is Verdict.INCONCLUSIVE]
    if not opened:
        return ""
    rounds = len(facts["rounds"])
    if rounds < LEAST_ROUNDS:
        return (
            f"try: --mlms-budget ({facts['budget']:g} s was too little for {LEAST_ROUNDS} rounds)"
        )
    if {one.of for one in opened} == {"inputs"}:
        return "try: a larger dataset"
    means = (
        [f"--mlms-budget (it had time for {rounds} of {MOST_ROUNDS} rounds)"]
        if rounds < MOST_ROUNDS
        else []
    )
    if not {one.quantity for one in opened} <= _OF_PROCESS:
        means += [
            "a larger --mlms-duration",
            *(["evaluate.threads: 1"] if set(facts["threads"]) != {1} else []),
        ]
    return f"try: {', '.join([*means, 'a quieter machine'])}{''.join(map(_edge, opened))}"


def _edge(one: Comparison) -> str:
    """Return what another tolerance would do for what is open.

    Nothing where its noise isn't known.
    """
    if one.floor < one.tolerance:
        return f"; {one.quantity} is near its tolerance: a wider or narrower one decides it"
    if one.floor >= one.tolerance:
        noise = f"the noise floor of {one.quantity}, ±{100 * one.floor:.2g} %"
        return f"; {noise}, is not below its tolerance: a wider one could be decided here"
    return ""


_OF_PROCESS = {"first_inference", "load_time", "peak_memory"}  # which more turns don't tell
_AS_LATENCY = {
    "cpu_time",
    "wall_time",
    "latency_p90",
    "latency_p95",
    "throughput",
}  # held to no less than latency is


def _allowance(regressed: Sequence[Comparison], facts: Mapping[str, Any]) -> str:
    """Return where what is worse may be allowed: the tolerances that it takes, and no others."""
    along = _AS_LATENCY if any(one.quantity == "latency" for one in regressed) else set()
    names = [one.quantity for one in regressed if one.gate or one.quantity not in along]
    where = ["--mlms-tolerance"] if facts["asked"] and "latency" in names else []
    keys = [
        "tolerance" if name == "latency" else name
        for name in names
        if not (where and name == "latency")
    ]
    if keys:
        where.append(
            f"thresholds: upgrade: {{{', '.join(f'{key}: … %' for key in keys)}}} in {facts['place']}"
        )
    return ", ".join(where)
