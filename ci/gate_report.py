"""Report of the study of the upgrade gate: the pages docs/gate.md and docs/gate_beside_load.md."""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gate_models import SOURCES, Network

from pytest_mlms.provide.host.machine import machine_state

EFFECTS = (0.0, 0.02, 0.05, 0.10)
TOLERANCE = 0.03
VERDICTS = ("REGRESSED", "INCONCLUSIVE", "PASSED", "IMPROVED")
WRONG_WITHOUT_EFFECT = ("REGRESSED", "INCONCLUSIVE")
EXPLAINED = (
    "The last two columns are what pytest-benchmark's `--benchmark-compare-fail` says if the sides "
    "run one after the other in fresh processes, for as long as the gate's turns."
)
VERIFIED = (
    "The models, and the additional CPU time of their extra layers, measured in separate processes:"
)


@dataclass(frozen=True)
class Item:
    """A decision of the gate, and those of the other rules in the same time."""

    network: str
    effect: float
    verdict: str
    ratio: float
    cpu_ratio: float
    seconds: float
    rounds: int
    decided_by: list[str]
    others: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Conditions:
    """How the study was run.

    ``asked`` decisions were planned. ``spent`` is in seconds, ``turn_seconds`` is those of a
    round's turns, and ``threads`` are those of a side. ``beside`` describes the load beside it,
    ``busy`` the shares of the CPUs' time.
    """

    asked: int
    spent: float
    turn_seconds: float
    threads: int
    beside: str
    busy: Mapping[str, float | None]


def make_report(
    items: Sequence[Item], networks: Sequence[Network], rules: Sequence[str], about: Conditions
) -> str:
    """Return the page."""
    lines = [
        "# What the gate finds, and what it flags wrongly",
        "",
        *describe_study(items, about),
        "",
        *decisions_by_effect(items, rules),
        "",
        *describe_durations(items),
        *([EXPLAINED] if rules else []),
        "",
        *verified_work(networks),
        *unexpected_decisions(items),
    ]
    return "\n".join(lines) + "\n"


def describe_study(items: Sequence[Item], about: Conditions) -> list[str]:
    """Return what was run, and on what machine."""
    machine = machine_state()
    cpu = machine.get("cpu") or {}
    cores = machine.get("cores") or {}
    busy = about.busy["busy"] or 0
    steal = about.busy["steal"] or 0
    study = (
        f"Written by `ci/gate_study` on {datetime.date.today()}: {len(items)} of {about.asked} "
        f"decisions in {about.spent / 60:.0f} minutes, {about.turn_seconds:g} s of turns a round, "
        f"tolerance {TOLERANCE:.0%}, threads: {about.threads}, beside {about.beside}."
    )
    place = (
        f"{cpu.get('model')}, {cores.get('logical')} cores, {machine.get('system')}, "
        f"load {machine.get('load_average')}; busy {busy:.0%} and steal {steal:.0%} of the time."
    )
    return [study, place]


def describe_durations(items: Sequence[Item]) -> list[str]:
    """Return how long the decisions took."""
    seconds = [item.seconds for item in items]
    median = statistics.median(seconds)
    rounds = statistics.median(item.rounds for item in items)
    durations = f"median {median:.1f}, longest {max(seconds):.1f}"
    text = f"Seconds per decision without starting the agents: {durations}"
    return [f"{text}; rounds: median {rounds:g}."]


def decisions_by_effect(items: Sequence[Item], rules: Sequence[str]) -> list[str]:
    """Return the table of decisions, a row for each real change."""
    flags = [f"`{rule}` flags" for rule in rules]
    header = ["real change", "by CPU time", "decisions", *VERDICTS, "median ratio", *flags]
    lines = [row_of(header), "|" + "---|" * len(header)]
    for effect in EFFECTS:
        own = [item for item in items if item.effect == effect]
        if own:
            lines.append(row_of(effect_cells(effect, own, rules)))
    return lines


def effect_cells(effect: float, items: Sequence[Item], rules: Sequence[str]) -> list[str]:
    """Return the cells of a row: the decisions on one real change."""
    cpu_change = statistics.median(item.cpu_ratio for item in items) - 1
    ratio = statistics.median(item.ratio for item in items)
    verdicts = [item.verdict for item in items]
    cells = [f"+{effect:.0%}" if effect else "none", f"{cpu_change:+.2%}", str(len(items))]
    cells += [str(verdicts.count(name)) for name in VERDICTS]
    cells.append(f"{ratio:.4f}")
    for rule in rules:
        flagged = sum(item.others[rule] for item in items)
        cells.append(f"{flagged} of {len(items)}")
    return cells


def verified_work(networks: Sequence[Network]) -> list[str]:
    """Return the table of the models, and how much more work their variants did."""
    lines = [
        VERIFIED,
        "",
        row_of(["model", "+2 %", "+5 %", "+10 %", "identical"]),
        "|---|---|---|---|---|",
    ]
    for network in networks:
        changes = [network.verified[effect] for effect in (*EFFECTS[1:], 0.0)]
        name = f"{network.name}: {SOURCES[network.name].description}"
        lines.append(row_of([name, *(f"{change:+.2%}" for change in changes)]))
    return lines


def unexpected_decisions(items: Sequence[Item]) -> list[str]:
    """Return the decisions that are wrong or open; +2 % may be either at a tolerance of 3 %."""
    lines = []
    for item in items:
        is_found = item.verdict == "REGRESSED"
        is_right = is_found if item.effect else item.verdict not in WRONG_WITHOUT_EFFECT
        if not is_right and item.effect != 0.02:
            names = ", ".join(item.decided_by)
            lines.append(
                f"- {item.network}, {item.effect:+.0%}: {item.verdict} {names} (latency "
                f"×{item.ratio:.4f}, CPU ×{item.cpu_ratio:.4f}, {item.rounds} rounds)"
            )
    if not lines:
        return []
    return ["", "Wrong or undecided decisions:", "", *lines]


def row_of(cells: Sequence[str]) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |"
