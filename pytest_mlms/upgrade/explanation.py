"""Text of an upgrade's result: pure functions from records to lines that a person reads."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_mlms.quantities import upgrade_rules
from pytest_mlms.records import Comparison, Verdict
from pytest_mlms.units import format_quantity
from pytest_mlms.upgrade.advice import advice_on
from pytest_mlms.upgrade.layer_diff import LayerChange
from pytest_mlms.upgrade.result import UpgradeResult
from pytest_mlms.upgrade.rounds import CLOCKS
from pytest_mlms.upgrade.setting import UpgradeSetting

__all__ = ["explain_upgrade", "format_change", "layer_table"]

_VERDICTS = list(Verdict)  # worst first
_NO_LAYER_SLOWER = (
    "no layer explains the change: traced, B takes no longer; it lost the time outside of its "
    "layers, or too little for the profiler to see"
)
_UNCHANGED = 5e-8  # seconds; less changes none of the digits shown
_LONGEST_NAME = 40  # characters


def explain_upgrade(result: UpgradeResult, setting: UpgradeSetting) -> str:
    """Return the text of a result: what was found, how surely, on what machine, what to try."""
    lines = [
        *_quantities(result),
        *_precision(result),
        _method(result),
        f"machine: {_machine(result, setting)}",
        *_layers(result),
        *advice_on(result, setting),
    ]
    indented = [f"  {line}" for line in lines]
    return "\n".join([_headline(result, setting), *indented])


def format_change(compared: Comparison, space: str = " ") -> str:
    """Return B over A with its interval, such as "×1.079 (1.071 to 1.088)".

    ``space`` is the space within the brackets. "-" where there is no ratio.
    """
    if math.isnan(compared.ratio):
        return "-"
    low = f"{max(0.0, compared.low):.3f}"
    high = "unbounded" if math.isinf(compared.high) else f"{compared.high:.3f}"
    return f"×{compared.ratio:.3f} ({low}{space}to{space}{high})"


def _headline(result: UpgradeResult, setting: UpgradeSetting) -> str:
    return f"{setting.b} (B) against {setting.a} (A): {_summary(result)}"


def _summary(result: UpgradeResult) -> str:
    if result.wrong_outputs:
        return f"REGRESSED, B computes something else{_faster_because_wrong(result)}"
    if result.regressed:
        names = [compared.quantity for compared in result.regressed]
        return f"REGRESSED in {', '.join(names)}"
    if result.undecided_gates or not result.comparisons:
        return "INCONCLUSIVE, the measurements do not decide it"
    if result.latency is not None and result.latency.verdict is Verdict.IMPROVED:
        return "IMPROVED"
    return "PASSED"


def _faster_because_wrong(result: UpgradeResult) -> str:
    if result.latency is None or result.latency.high >= 1:
        return ""
    return ", and is faster because it is wrong"


def _quantities(result: UpgradeResult) -> list[str]:
    """Return a line for each quantity, the worst first, and one for those that are not judged."""
    lines = []
    not_judged = []
    for compared in sorted(result.comparisons, key=_badness):
        if _is_worth_a_line(compared):
            lines.append(_quantity_line(compared))
        else:
            not_judged.append(compared.quantity)
    if not_judged:
        lines.append(f"not judged after {len(result.rounds)} round: {', '.join(not_judged)}")
    return lines


def _badness(compared: Comparison) -> tuple[int, bool]:
    return _VERDICTS.index(compared.verdict), not compared.gate


def _is_worth_a_line(compared: Comparison) -> bool:
    """Return False for a guard that only lacks rounds, as all of them do after the first."""
    if compared.gate or compared.verdict is not Verdict.INCONCLUSIVE:
        return True
    return "rounds" not in compared.lacking


def _quantity_line(compared: Comparison) -> str:
    return f"{compared.verdict.value:<12} {compared.quantity}: {_finding(compared)}"


def _finding(compared: Comparison) -> str:
    if compared.quantity == "agreement":
        return compared.lacking or f"outputs differ by {_multiple(compared)} what is allowed"
    parts = [
        f"A {format_quantity(compared.a, compared.unit)}",
        f"B {format_quantity(compared.b, compared.unit)}",
        _change(compared),
        f"tolerance {100 * compared.tolerance:.3g} %",
    ]
    text = ", ".join(parts)
    if compared.lacking:
        text += f"; {compared.lacking}"
    if compared.verdict is Verdict.INCONCLUSIVE and not compared.gate:
        text += " (no gate: fails only if surely worse)"
    return text


def _multiple(agreement: Comparison) -> str:
    if agreement.ratio < 0.01:
        return "less than 0.01 times"
    return f"up to {agreement.ratio:.3g} times"


def _change(compared: Comparison) -> str:
    if compared.of == "inputs":
        interval = f"{100 * compared.low:+.2f} to {100 * compared.high:+.2f}"
        return f"{100 * compared.ratio:+.2f} ({interval}) % of {compared.replicates} inputs"
    base = upgrade_rules()[compared.quantity].base
    if not base:
        return format_change(compared)
    return f"{format_change(compared)} with {format_quantity(base, compared.unit)} added to both"


def _precision(result: UpgradeResult) -> list[str]:
    latency = result.latency
    if latency is None:
        return []
    if math.isnan(latency.floor):
        return ["noise floor: unknown, there is no interval"]
    floor = f"±{100 * latency.floor:.2g} %"
    detectable = f"{100 * latency.detectable:.2g} %"
    found = f"the smallest slowdown that it would have found, four times of five: {detectable}"
    return [f"noise floor of this item: {floor}; {found}"]


def _method(result: UpgradeResult) -> str:
    pairs = sum(record.pairs for record in result.rounds)
    rounds = _plural(len(result.rounds), "round")
    clock = "none" if result.clock is None else f"{result.clock} ({CLOCKS[result.clock]})"
    return f"{pairs:,} pairs ({_turns(result)}) in {rounds} of fresh processes; clock: {clock}"


def _turns(result: UpgradeResult) -> str:
    calls = [record.calls for record in result.rounds]
    fewest = min(calls)
    most = max(calls)
    if most == 1:
        return "turns of a call"
    if fewest == most:
        return f"turns of {most} calls"
    return f"turns of {fewest} to {most} calls"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _machine(result: UpgradeResult, setting: UpgradeSetting) -> str:
    parts = [*_processor(setting), _cores(result), *_load(setting)]
    if not all(record.turns_exclusive for record in result.rounds):
        parts.append("the waiting side could not be stopped")
    if not all(record.steady for record in result.rounds):
        parts.append("warm-up did not reach a steady state")
    return ", ".join([*parts, *setting.gpu_notes])


def _processor(setting: UpgradeSetting) -> list[str]:
    cpu = setting.machine.get("cpu")
    return [str(cpu.get("model"))] if cpu else []


def _cores(result: UpgradeResult) -> str:
    cores: set[int] = set()
    for record in result.rounds:
        cores.update(record.cores)
    if not cores:
        return "not held to cores"
    return f"cores {', '.join(str(core) for core in sorted(cores))}"


def _load(setting: UpgradeSetting) -> list[str]:
    parts = []
    load_average = setting.machine.get("load_average")
    if load_average:
        parts.append(f"load {load_average[0]:g}")
    for name in ("busy", "steal"):
        share = setting.cpu_shares.get(name)
        if share is not None:
            parts.append(f"{name} {100 * share:.0f} %")
    return parts


def _layers(result: UpgradeResult) -> list[str]:
    if not result.regressed:
        return []
    if result.layers_lacking:
        return [f"no layer times: {result.layers_lacking}"]
    if not result.layers:
        return []
    lines = ["layers that changed (in a traced pass of its own; µs a call):"]
    lines += layer_table(result.layers)
    whole = result.layers[-1]
    if whole.change <= 0:
        lines.append(_NO_LAYER_SLOWER)
    return lines


def layer_table(layers: Sequence[LayerChange]) -> list[str]:
    """Return the lines of a table: layer, A, B, change, and share of the whole change.

    Layers that did not change are left out. The last row is the total.
    """
    changed = [layer for layer in layers[:-1] if abs(layer.change) >= _UNCHANGED]
    rows = [["layer", "A", "B", "Δ", "share"]]
    for layer in [*changed, *layers[-1:]]:
        rows.append(_layer_row(layer))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [_aligned(row, widths) for row in rows]


def _layer_row(layer: LayerChange) -> list[str]:
    change = f"{layer.change * 1e6:+.1f}"
    share = "-" if layer.share is None else f"{100 * layer.share:.0f} %"
    return [_layer_name(layer), _micros(layer.a), _micros(layer.b), change, share]


def _layer_name(layer: LayerChange) -> str:
    name = layer.name
    if len(name) > _LONGEST_NAME:
        name = f"…{name[1 - _LONGEST_NAME :]}"
    if not layer.type or layer.type in name:
        return name
    return f"{name} ({layer.type})"


def _micros(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:.1f}"


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    """Return a line of the table: the first cell to the left, numbers to the right."""
    cells = [row[0].ljust(widths[0])]
    for cell, width in zip(row[1:], widths[1:], strict=True):
        cells.append(cell.rjust(width))
    return "  ".join(cells)
