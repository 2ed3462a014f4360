"""Text of an upgrade's result: pure functions from records to lines that a person reads."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from pytest_mlms.core.records import Comparison, LayerChange, Verdict
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.advice import advice_on
from pytest_mlms.decide.upgrade.crash import CRASH_SUMMARY
from pytest_mlms.decide.upgrade.criteria import MISSING
from pytest_mlms.decide.upgrade.labels import (
    NOT_SHOWN,
    change_text,
    deciding,
    difference_label,
    group_lines,
    is_told,
    percent,
    precision_text,
    short_changes,
    software_text,
    tolerance_label,
    verdict_label,
)
from pytest_mlms.decide.upgrade.layer_diff import explains
from pytest_mlms.decide.upgrade.result import UpgradeResult
from pytest_mlms.decide.upgrade.round_estimate import LEAST_ROUNDS, unseen_share
from pytest_mlms.decide.upgrade.round_record import RoundRecord, SideRecord
from pytest_mlms.decide.upgrade.rounds import CLOCKS, SIDES
from pytest_mlms.decide.upgrade.setting import UpgradeSetting

_VERDICTS = list(Verdict)  # worst first
_NO_LAYER_SLOWER = (
    "no layer explains the change: traced, B takes no longer; it lost the time outside of its "
    "layers, or too little for the profiler to see"
)
_SLOW_START = 1.25  # ratio of both sides' starts of turns that is named
_UNCHANGED = 5e-8  # seconds; less changes none of the digits shown
_OF_LAUNCHES = 0.9  # share of the time between events below which kernels wait for launches
_LONGEST_NAME = 40  # characters
_LONGEST_SHORT = 60  # characters of the first line, beside the model and the case


def explain_upgrade(result: UpgradeResult, setting: UpgradeSetting) -> str:
    """Return the text of a result: the findings, how sure they are, the machine, and advice.

    What decided against an upgrade comes first, in a line that is enough for a summary.
    """
    lines = [
        *_quantities(result),
        *group_lines(result.input_groups),
        *_named_inputs(result),
        *_method(result),
        *_software(result, setting),
        f"machine: {_machine(result, setting)}",
        *_layers(result),
        *advice_on(result, setting),
    ]
    headline = f"{setting.b} (B) against {setting.a} (A): {_summary(result)}"
    indented = [f"  {line}" for line in lines]
    return "\n".join([*_in_short(result), headline, *indented])


def _in_short(result: UpgradeResult) -> list[str]:
    """Return the line with the figures that decided; the headline alone says that B crashes."""
    found = deciding(result.verdict, result.comparisons)
    if not found or result.crashed:
        return []
    forms = short_changes(found[0])
    short = next((form for form in forms if len(form) <= _LONGEST_SHORT), forms[-1])
    return [f"{short}, and {len(found) - 1} more" if len(found) > 1 else short]


def _summary(result: UpgradeResult) -> str:
    if result.crashed:
        return CRASH_SUMMARY
    if result.wrong_outputs:
        is_faster = result.latency is not None and result.latency.high < 1
        effects = _lost_accuracy(result) + ", and is faster because it is wrong" * is_faster
        return f"REGRESSED, B computes something else{effects}"
    if result.regressed:
        names = [compared.quantity for compared in result.regressed]
        return f"REGRESSED in {', '.join(names)}"
    if result.undecided_gates or not result.comparisons:
        return "INCONCLUSIVE, the measurements do not decide it"
    if result.main is not None and result.main.verdict is Verdict.IMPROVED:
        return f"IMPROVED{_undecided(result)}"
    return f"PASSED{_undecided(result)}"


def _undecided(result: UpgradeResult) -> str:
    """Return the quantities that an upgrade which passed is worse in, as far as is known."""
    names = [compared.quantity for compared in result.comparisons if is_told(compared)]
    return f", but see {', '.join(names)}" if names else ""


def _lost_accuracy(result: UpgradeResult) -> str:
    """Return the first quantity of the task that got worse, with both values."""
    for compared in result.regressed:
        if compared.of == "inputs":
            a, b = (format_quantity(value, compared.unit) for value in (compared.a, compared.b))
            return f" ({compared.quantity} {a} -> {b})"
    return ""


def _quantities(result: UpgradeResult) -> list[str]:
    """Return a line for each quantity, the worst first, and one for those that are not judged."""
    lines = []
    not_judged = []
    worst_first = sorted(
        result.comparisons, key=lambda each: (_VERDICTS.index(each.verdict), not each.gate)
    )
    for compared in worst_first:
        if _is_worth_a_line(compared):
            line = f"{verdict_label(compared):<12} {compared.quantity}: {_finding(compared)}"
            lines.append(line + _parts_of_start(compared, result))
        else:
            not_judged.append(compared.quantity)
    if not_judged:
        rounds = _plural(len(result.rounds), "round")
        lines.append(f"not judged after {rounds}: {', '.join(not_judged)}")
    return lines


def _named_inputs(result: UpgradeResult) -> list[str]:
    """Return the inputs that got worst, and those that got slower, with both sides of each."""
    lines = []
    for what, named in (("worst", result.worse_inputs), ("slower", result.slow_inputs)):
        if named:
            lines += [f"inputs that got {what} (A -> B):", *[f"  {line}" for line in named]]
    return lines


def _is_worth_a_line(compared: Comparison) -> bool:
    """Return False for a guard that lacks rounds, as all of them do after the first two."""
    if compared.gate or compared.verdict is not Verdict.INCONCLUSIVE or is_told(compared):
        return True
    few = compared.of == "rounds" and compared.replicates < LEAST_ROUNDS
    return not (few and compared.lacking)


def _parts_of_start(compared: Comparison, result: UpgradeResult) -> str:
    if compared.quantity != "start_time":
        return ""
    parts = _start_parts(result.rounds)
    return f" ({parts})" if parts else ""


def _start_parts(rounds: Sequence[RoundRecord]) -> str:
    """Return the median parts of the rounds' starts, A -> B; "" where an agent told no import."""
    parts: dict[str, list[str]] = {}
    for side in SIDES:
        processes = [_start_seconds(record.sides[side]) for record in rounds]
        if not all(processes):
            return ""
        for name in processes[0]:
            seconds = median(process[name] for process in processes)
            parts.setdefault(name, []).append(format_quantity(seconds, "s"))
    return ", ".join(f"{name} {' -> '.join(values)}" for name, values in parts.items())


def _start_seconds(side: SideRecord) -> dict[str, float]:
    """Return the seconds of each part; none where an agent doesn't tell them all."""
    if side.interpreter_seconds is None or side.import_seconds is None:
        return {}
    return {
        "interpreter": side.interpreter_seconds,
        "import": side.import_seconds,
        "load": side.load_seconds,
        "first call": side.first_seconds,
    }


def _finding(compared: Comparison) -> str:
    if compared.of == "outputs":
        return _difference_of_outputs(compared)
    without_values = ("processes", "calls", MISSING)
    if compared.lacking and compared.of in without_values:
        return compared.lacking.replace("\n", "\n    ")
    text = f"{change_text(compared)}, tolerance {tolerance_label(compared)}"
    if compared.about:
        text += f"; {compared.about}"
    if compared.lacking:
        text += f"; {compared.lacking}"
    if verdict_label(compared) == NOT_SHOWN:
        return f"{text}; a larger dataset would show more"
    if compared.verdict is Verdict.INCONCLUSIVE and not compared.gate:
        text += " (a guard: fails only if surely worse)"
    return text


def _difference_of_outputs(agreement: Comparison) -> str:
    found = difference_label(agreement)
    if not agreement.lacking:
        return found
    if agreement.ratio > 1:
        return f"{found}; {agreement.lacking}"
    return agreement.lacking


def _starts(result: UpgradeResult) -> str:
    """Return on which side turns begin slowly, if the sides differ in that; else ""."""
    starts = [record.starts for record in result.rounds if len(record.starts) == len(SIDES)]
    if not starts:
        return ""
    a, b = (median(each[side] for each in starts) for side in SIDES)
    if max(a, b) < _SLOW_START * min(a, b):
        return ""
    return (
        f", whose first calls aren't timed: they take {a:.2f} times as long as later ones on A, "
        f"{b:.2f} times on B"
    )


def _method(result: UpgradeResult) -> list[str]:
    """Return the precision and the number of measurements, and their blind spot."""
    lines = [] if result.main is None else [precision_text(result.main)]
    if not result.rounds:
        return lines
    pairs = sum(record.pairs for record in result.rounds)
    rounds = _plural(len(result.rounds), "round")
    clock = "none" if result.clock is None else f"{result.clock} ({CLOCKS[result.clock]})"
    measured = f"{pairs:,} pairs ({_turns(result)}{_starts(result)}) in {rounds} of fresh processes"
    lines.append(f"{measured}; clock: {clock}")
    if not result.regressed and not result.undecided_gates:
        share = percent(unseen_share(len(result.rounds)), ".0f")
        lines.append(
            f"a kind of processes that less than {share} are of may be unseen (--mlms-rounds)"
        )
    return lines


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
    ending = "" if count == 1 else "s"
    return f"{count} {noun}{ending}"


def _software(result: UpgradeResult, setting: UpgradeSetting) -> list[str]:
    """Return the versions of both sides, and what else differs between them.

    A stack's name, such as "lock", may not have versions, and pip may have moved what nobody asked
    for.
    """
    lines = []
    if result.rounds:
        sides = result.rounds[0].sides
        a, b = (software_text(sides[side].versions, sides[side].python) for side in SIDES)
        lines += [f"both sides: {a}"] if a == b else [f"A: {a}", f"B: {b}"]
    if setting.changed_packages:
        lines.append(f"packages that differ (A → B): {', '.join(setting.changed_packages)}")
    if setting.differences:
        lines.append(f"what else differs (A → B): {', '.join(setting.differences)}")
    if setting.caches:
        lines.append(f"caches of compilers: {setting.caches}")
    return lines


def _machine(result: UpgradeResult, setting: UpgradeSetting) -> str:
    """Return the processor, the cores and their load, and what disturbed the rounds."""
    cpu = setting.machine.get("cpu")
    parts = [str(cpu.get("model"))] if cpu else []
    parts.append(_cores(result))
    load_average = setting.machine.get("load_average")
    if load_average:
        parts.append(f"load {load_average[0]:g}")
    for name in ("busy", "steal"):
        share = setting.cpu_shares.get(name)
        if share is not None:
            parts.append(f"{name} {percent(share, '.0f')}")
    if not all(record.turns_exclusive for record in result.rounds):
        parts.append("the waiting side could not be stopped")
    if not all(record.steady for record in result.rounds):
        parts.append("warm-up did not reach a steady state")
    return ", ".join([*parts, *_launches(result), *setting.gpu_notes])


def _launches(result: UpgradeResult) -> list[str]:
    """Return the sides whose events time launches, for which the GPU waits."""
    found = []
    for side in SIDES:
        told = [record.sides[side].event_times for record in result.rounds]
        known = [(alone, ahead) for alone, ahead in filter(None, told) if ahead is not None]
        if not known:
            continue
        alone, ahead = map(median, zip(*known, strict=True))
        if ahead < _OF_LAUNCHES * alone:
            taken = " of ".join(format_quantity(seconds, "s") for seconds in (ahead, alone))
            found.append(f"{side.upper()} is host-bound (kernels take {taken} between its events)")
    return found


def _cores(result: UpgradeResult) -> str:
    cores: set[int] = set()
    for record in result.rounds:
        cores.update(record.cores)
    if not cores:
        return "not held to cores"
    numbers = map(str, sorted(cores))
    return f"cores {', '.join(numbers)}"


def _layers(result: UpgradeResult) -> list[str]:
    if not result.regressed:
        return []
    if result.layers_lacking:
        return [f"no layer times: {result.layers_lacking}"]
    if not result.layers:
        return []
    whole = result.layers[-1].change
    if whole <= 0:
        return [_NO_LAYER_SLOWER]
    if not explains(result.layers, result.comparisons):
        taken = format_quantity(whole, "s")
        return [f"no layer explains the change: traced, all of them take {taken} longer in B"]
    heading = "layers that changed (in a traced pass of its own; µs a call):"
    return [heading, *layer_table(result.layers)]


def layer_table(layers: Sequence[LayerChange]) -> list[str]:
    """Return the lines of a table: layer, A, B, change, and share of the whole change.

    Layers that did not change are left out. The last of ``layers`` is the total.
    """
    rows = [["layer", "A", "B", "Δ", "share"]]
    for layer in layers[:-1]:
        if abs(layer.change) >= _UNCHANGED:
            rows.append(_layer_row(layer))
    total = layers[-1]
    rows.append(_layer_row(total))
    widths = []
    for column in zip(*rows, strict=True):
        widths.append(max(map(len, column)))
    return [_aligned(row, widths) for row in rows]


def _layer_row(layer: LayerChange) -> list[str]:
    change = f"{layer.change * 1e6:+.1f}"
    share = "-"
    if layer.share is not None:
        share = percent(layer.share, ".0f")
    return [_layer_name(layer), _micros(layer.a), _micros(layer.b), change, share]


def _layer_name(layer: LayerChange) -> str:
    name = layer.name
    if len(name) > _LONGEST_NAME:
        name = f"…{name[1 - _LONGEST_NAME :]}"
    if not layer.type or layer.type in name:
        return name
    return f"{name} ({layer.type})"


def _micros(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e6:.1f}"


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    """Return a line of the table: the first cell to the left, numbers to the right."""
    cells = [row[0].ljust(widths[0])]
    for cell, width in zip(row[1:], widths[1:], strict=True):
        cells.append(cell.rjust(width))
    return "  ".join(cells)
