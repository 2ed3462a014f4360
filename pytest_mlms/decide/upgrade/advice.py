"""Advice on an upgrade that regressed or was not decided: what to change or to try."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, variance
from typing import NamedTuple

from pytest_mlms.core.errors import StackError
from pytest_mlms.core.quantities import upgrade_rules
from pytest_mlms.core.records import Comparison, Verdict, regressed_comparison
from pytest_mlms.decide.upgrade.crash import MOST_EXITS
from pytest_mlms.decide.upgrade.criteria import MISSING
from pytest_mlms.decide.upgrade.labels import is_told, percent
from pytest_mlms.decide.upgrade.paired_evidence import BATCH_AGREEMENT
from pytest_mlms.decide.upgrade.result import UpgradeResult
from pytest_mlms.decide.upgrade.rounds import SIDES
from pytest_mlms.decide.upgrade.setting import UpgradeSetting, culprit_command, search_instead
from pytest_mlms.measure.evaluate.doubts import ProcessKinds, find_kinds
from pytest_mlms.provide.stacks.exact import framework_releases

_OF_PROCESS = {
    *("start_time", "first_inference", "load_time"),
    *("peak_memory", "import_memory", "device_memory"),
}
"""Quantities that a process has once: more turns say no more of them."""

_FOLLOWS_LATENCY = {"cpu_time", "wall_time", "latency_p90", "latency_p95", "throughput"}
"""Quantities that have at least the tolerance of latency."""

_WRONG_OUTPUTS = (
    "try: test_agreement and test_accuracy with each stack say more; "
    "no tolerance of speed matters here"
)


def advice_on(result: UpgradeResult, setting: UpgradeSetting) -> list[str]:
    """Return the lines of advice on a result, none where it passed and nothing is told."""
    if result.crashed:
        return _culprit(result, setting)
    if result.wrong_outputs:
        return _on_wrong_outputs(result, setting)
    if result.regressed:
        allow = f"try: if this is intended, allow it: {_allowance(result, setting)}"
        return [*_culprit(result, setting), allow]
    if any(gate.of != "outputs" for gate in result.undecided_gates):
        return [f"try: {_on_open(result, setting)}"]
    if result.undecided_gates:  # the lines of outputs say what decides them
        return []
    return list(_on_told(result, setting))


def _on_wrong_outputs(result: UpgradeResult, setting: UpgradeSetting) -> list[str]:
    """Return what says more of outputs, or of the pictures that they are made of."""
    of_outputs = {compared.quantity for compared in result.regressed if compared.of == "outputs"}
    if result.other_pictures and "agreement" in of_outputs:
        pillow = [text for text in setting.changed_packages if text.lower().startswith("pillow ")]
        found = f" ({pillow[0]})" if pillow else ""
        manifest = setting.place.rpartition(":")[0]
        advice = (
            f"try: the stacks decode pictures otherwise{found}, their outputs for the same pixels "
            f"agree; give both stacks one Pillow, or, if the other pixels are intended, leave "
            f"'preprocess: stack' out of evaluate in {manifest}"
        )
        return [advice]
    if of_outputs == {BATCH_AGREEMENT}:
        place = _tolerances([BATCH_AGREEMENT], setting)
        return [*_culprit(result, setting), f"try: if this is intended, allow it: {place}"]
    return [_WRONG_OUTPUTS, *_culprit(result, setting)]


def _on_told(result: UpgradeResult, setting: UpgradeSetting) -> Iterator[str]:
    """Yield what decides the guards that look worse, of an upgrade that passed."""
    told = [compared for compared in result.comparisons if is_told(compared)]
    are_open = [compared for compared in told if compared.verdict is Verdict.INCONCLUSIVE]
    of_inputs = [compared.quantity for compared in are_open if compared.of == "inputs"]
    others = ("inputs", "processes")  # of which no tolerance decides more
    of_rounds = [compared.quantity for compared in are_open if compared.of not in others]
    within = [compared.quantity for compared in told if compared not in are_open]
    if of_inputs:
        yield f"try: a larger dataset decides {', '.join(of_inputs)}"
    if of_rounds:
        names = ", ".join(of_rounds)
        place = _tolerances(of_rounds, setting)
        yield f"try: rounds go on until {names} is decided where it is named: {place}"
    if within:
        yield f"try: if this is not intended, judge it: {_tolerances(within, setting)}"


def _culprit(result: UpgradeResult, setting: UpgradeSetting) -> list[str]:
    """Return the command that finds the release and writes a report, if there are several.

    Where an index has not both releases, the text says what can be done instead.
    """
    compared = regressed_comparison(result.comparisons)
    if compared is None:
        return []
    told: list[Mapping[str, str]] = [{}, {}]
    if result.rounds:
        told = [result.rounds[0].sides[side].versions for side in SIDES]
    try:
        changed = framework_releases(setting.framework, setting.packages, told)
    except StackError as error:
        return [search_instead(str(error))]
    if changed is None:
        return []
    if setting.other_indexes:
        return [search_instead(setting.other_indexes)]
    releases = (f"{changed.package}=={changed.a}", f"{changed.package}=={changed.b}")
    more = list(setting.culprit_words)
    if compared.quantity in setting.typed:
        more += ["--tolerance", percent(compared.tolerance)]
    command = culprit_command(setting.point, *releases, compared.quantity, more)
    return [f"which release, in which layer, and a report to send upstream: {command}"]


def _allowance(result: UpgradeResult, setting: UpgradeSetting) -> str:
    """Return where to set the tolerances of what regressed."""
    names = _to_allow(result.regressed)
    places = []
    if "latency" in names and setting.tolerance_given:
        places.append("--mlms-tolerance")
        names.remove("latency")
    if names:
        places.append(_tolerances(names, setting))
    return ", ".join(places)


def _tolerances(names: Sequence[str], setting: UpgradeSetting) -> str:
    """Return where a manifest names the tolerances of quantities."""
    entries = ", ".join(f"{_key_of(name)}: … %" for name in names)
    return f"thresholds: upgrade: {{{entries}}} in {setting.place}"


def _key_of(name: str) -> str:
    """Return the key under ``thresholds.upgrade`` for the tolerance of a quantity."""
    rule = upgrade_rules(None)[name]
    return rule.key or name


def _to_allow(regressed: Sequence[Comparison]) -> list[str]:
    """Return the quantities whose tolerances have to be wider.

    With that of latency the guards that follow it get wider, too.
    """
    allowed_by_latency: set[str] = set()
    if any(compared.quantity == "latency" for compared in regressed):
        allowed_by_latency = _FOLLOWS_LATENCY
    names = []
    for compared in regressed:
        if compared.gate or compared.quantity not in allowed_by_latency:
            names.append(compared.quantity)
    return names


def _on_open(result: UpgradeResult, setting: UpgradeSetting) -> str:
    """Return what to do about the gates that are open: no round decides one that isn't measured."""
    missing = [gate.quantity for gate in result.undecided_gates if gate.of == MISSING]
    if missing:
        return f"name no gate that isn't measured here: {', '.join(missing)}"
    if all(gate.of in ("processes", "outputs") for gate in result.undecided_gates):
        return (
            f"another run, or --mlms-budget, in the time of which once more up to {MOST_EXITS} "
            f"exits of a side are counted"
        )
    return _how_to_decide(result, setting)


def _how_to_decide(result: UpgradeResult, setting: UpgradeSetting) -> str:
    """Return the ways to a decision on the gates that are open."""
    gates = [gate for gate in result.undecided_gates if gate.of not in ("processes", "outputs")]
    rounds = len(result.rounds)
    least, most = setting.rounds
    if rounds < least:
        return f"--mlms-budget ({setting.budget:g} s was too little for {least} rounds)"
    if all(gate.of == "inputs" for gate in gates):
        return "a larger dataset"
    noises = [_noise_of(gate.quantity, result) for gate in gates]
    kinds = [str(noise.kinds) for noise in noises if noise.kinds is not None]
    ways = []
    if rounds < most:
        ways.append(f"--mlms-budget (it had time for {rounds} of {most} rounds)")
    elif kinds or not all(noise.is_of_turns for noise in noises):
        ways.append(f"--mlms-rounds {2 * most}")
    if kinds:
        ways.append(f"finding what differs between processes (B over A: {kinds[0]})")
        return ", ".join(ways) + "; longer turns and a quieter machine don't narrow that"
    if any(noise.is_of_turns for noise in noises):
        ways.append("a larger --mlms-duration")
    if any(gate.quantity not in _OF_PROCESS for gate in gates) and set(setting.threads) != {1}:
        ways.append("evaluate.threads: 1")
    ways.append("a quieter machine")
    hints = [_tolerance_hint(gate) for gate in gates]
    return ", ".join(ways) + "".join(hints)


class _Noise(NamedTuple):
    """The reason why rounds differ: two kinds of processes, or their own error if that is large."""

    kinds: ProcessKinds | None
    is_of_turns: bool


def _noise_of(quantity: str, result: UpgradeResult) -> _Noise:
    figures = [record.figures[quantity] for record in result.rounds if quantity in record.figures]
    figures = [figure for figure in figures if math.isfinite(figure.error)]
    of_turns = quantity not in _OF_PROCESS
    if len(figures) < 2:
        return _Noise(None, of_turns)
    errors = [figure.error for figure in figures]
    kinds = find_kinds([math.exp(figure.value) for figure in figures], max(errors))
    spread = variance(figure.value for figure in figures)
    return _Noise(kinds, of_turns and fmean(error**2 for error in errors) > spread / 2)


def _tolerance_hint(gate: Comparison) -> str:
    """Return what another tolerance would do for an open gate, "" where its noise is not known."""
    if gate.floor < gate.tolerance:
        return f"; {gate.quantity} is near its tolerance: a wider or narrower one decides it"
    if gate.floor >= gate.tolerance:
        floor = percent(gate.floor, ".2g")
        return (
            f"; the noise floor of {gate.quantity}, ±{floor}, is not below its tolerance: "
            f"a wider one could be decided here"
        )
    return ""
