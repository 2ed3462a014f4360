"""Simulation of the upgrade gate: how often its decisions are wrong, where the truth is known.

Rounds are simulated call by call and go through the functions that judge real ones. Each item draws
its rounds from some hundred of a kind of noise, and the offsets of its processes anew.
"""

from __future__ import annotations

import functools
import math
from collections import Counter, abc
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple, TypeAlias

import numpy as np
from gate_noise import (
    BESIDE,
    NOISES,
    OF_CALLS,
    OF_PROCESS,
    UNLIKE_NOISES,
    EqualRound,
    Generator,
    Noise,
    figures_of_process,
    plan_of,
)
from gate_report import row_of

from pytest_mlms.core.quantities import QUANTITIES, upgrade_rules
from pytest_mlms.core.records import Verdict
from pytest_mlms.decide.upgrade.criteria import Criteria
from pytest_mlms.decide.upgrade.decision import (
    are_gates_decided,
    compare_rounds,
    compare_stalls,
    is_decided,
    verdict_of,
)
from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.round_estimate import ROUNDS, RoundSpan

__all__ = [
    "GATES_HEADER",
    "ITEMS_HEADER",
    "PROCESS_HEADER",
    "UNLIKE_HEADER",
    "Decision",
    "Simulation",
    "SimulationPlan",
    "simulation_report",
    "unlike_report",
]

Figures = Mapping[str, Figure]

TOLERANCE = upgrade_rules()["latency"].tolerance
START = 0.65  # seconds of a round beside its turns: two processes of ONNX Runtime, the warm-up
SOON = 10.0  # seconds

ITEMS_HEADER = (
    "what varies",
    "identical: REGRESSED",
    "PASSED",
    "s",
    "+2 %: PASSED",
    "+3 %: REGRESSED, PASSED",
    "+5 %: REGRESSED, within 10 s",
    "s",
    "+10 %: REGRESSED, within 10 s",
)


GATES_HEADER = ("at the edge of", *OF_CALLS)

PROCESS_HEADER = (
    "of a process",
    "deviation",
    "identical: REGRESSED",
    "at the edge",
    "worse: REGRESSED",
)

UNLIKE_HEADER = (
    "what varies",
    "mean",
    "at it: REGRESSED, PASSED",
    "no change: REGRESSED, PASSED, rounds, s",
    "+3 %: REGRESSED, PASSED",
    "+4.5 %: PASSED",
    "+5 %: REGRESSED, rounds",
    "+8 %: REGRESSED, rounds",
)


class SimulatedRound(NamedTuple):
    """The figures of a round, the seconds of its turns, and its order of start in decisions."""

    figures: Figures
    seconds: float = 0.0
    order: int = 0


Rounds: TypeAlias = abc.Generator[SimulatedRound, bool, None]
"""Rounds of an item, each after being told whether it is for guards only."""


class Decision(NamedTuple):
    """The verdict of an item after its rounds and seconds, and the quantities that regressed."""

    verdict: Verdict
    rounds: int
    seconds: float = 0.0
    regressed: Sequence[str] = ()

    @property
    def is_soon(self) -> bool:
        """True if the item regressed within ten seconds."""
        return self.verdict is Verdict.REGRESSED and self.seconds <= SOON


def decide(rounds: Rounds, gates: Sequence[str], span: RoundSpan = ROUNDS) -> Decision:
    """Decide as an item does: after each round, until it is decided."""
    seen: list[SimulatedRound] = []
    for_guards = False
    for count in range(1, span.most + 1):
        seen.append(rounds.send(for_guards) if seen else next(rounds))
        if count < span.least:
            continue
        figures = [one.figures for one in seen]
        comparisons = compare_rounds(figures, {}, gates, span, [one.order for one in seen])
        stalls = compare_stalls(figures, span=span)
        comparisons += [stalls] if stalls else []
        if is_decided(comparisons, count, span.least):
            break
        for_guards = are_gates_decided(comparisons)
    regressed = [one.quantity for one in comparisons if one.verdict is Verdict.REGRESSED]
    seconds = sum(START + one.seconds for one in seen)
    return Decision(verdict_of(comparisons), count, seconds, regressed)


@dataclass(frozen=True)
class SimulationPlan:
    """How many decisions a cell has, and from how many simulated rounds they are drawn.

    ``processes`` compute at the same time, as many as there are cores where it is None. Items have
    the rounds of ``span``.
    """

    decisions: int = 1000
    library: int = 200
    seed: int = 1
    processes: int | None = None
    span: RoundSpan = ROUNDS
    noises: Sequence[Noise] = NOISES


@dataclass(frozen=True)
class Simulation:
    """Items with one kind of noise, whose rounds are drawn from a library."""

    noise: Noise
    plan: SimulationPlan

    def items(self, effect: float) -> list[Decision]:
        """Decide on whole items, whose candidate takes ``effect`` longer by every clock."""
        generator = np.random.default_rng(self.plan.seed)
        decisions = []
        for _ in range(self.plan.decisions):
            rounds = self._rounds(effect, generator)
            decisions.append(decide(rounds, ("latency",), self.plan.span))
        return decisions

    def gates(self, name: str, effect: float) -> list[Decision]:
        """Decide on items whose only quantity is ``name``, which is worse by ``effect``."""
        generator = np.random.default_rng(self.plan.seed)
        decisions = []
        for _ in range(self.plan.decisions):
            rounds = self._rounds_of(name, effect, generator)
            decisions.append(decide(rounds, (name,), self.plan.span))
        return decisions

    def _rounds(self, effect: float, generator: Generator) -> Rounds:
        rounds = self._rounds_of_calls(effect, generator, (*OF_CALLS, *BESIDE))
        measured = next(rounds)
        while True:
            once = figures_of_process(OF_PROCESS, generator)
            for_guards = yield measured._replace(figures={**measured.figures, **once})
            measured = rounds.send(for_guards)

    def _rounds_of(self, name: str, effect: float, generator: Generator) -> Rounds:
        if name in OF_CALLS:
            yield from self._rounds_of_calls(effect, generator, (name,), ("latency", name))
        while True:
            equal = figures_of_process({name: OF_PROCESS[name]}, generator)
            yield SimulatedRound({name: worse_figure(name, equal[name], math.log1p(effect))})

    def _rounds_of_calls(
        self,
        effect: float,
        generator: Generator,
        names: Sequence[str],
        gates: Sequence[str] = ("latency",),
    ) -> Rounds:
        """Yield the quantities ``names`` of rounds of the library, in an item with these gates.

        Processes have offsets of their own. Sides of the library are equal, so either of them may
        be B, but by a coarse clock, which makes steps of the effect. A round ends as a real one.
        """
        plan = plan_of(Criteria({"latency": TOLERANCE}, gates, rounds=self.plan.span))
        shift = math.log1p(effect)
        in_calls = shift if self.noise.step else 0.0
        shift -= in_calls
        library = simulated_library(self.noise, self.plan, in_calls)
        changes: list[float] = []
        slow_calls: list[tuple[int, int]] = []
        call_seconds: list[float] = []
        for_guards = b_first = False
        while True:
            count = len(changes)
            if count:
                b_first = not b_first if count % 2 else bool(generator.integers(2))
            drawn = library[int(generator.integers(len(library)))]
            order = np.array(1 if b_first else -1)
            change = shift + float(self.noise.log_ratios(generator, order)) - self.noise.mean
            swaps = not self.noise.step and bool(generator.integers(2))
            of_round = plan.for_round(changes, for_guards, slow_calls, call_seconds)
            look, seconds, of_call = drawn.end(of_round, (1 + math.exp(change)) / 2)
            figures = {}
            for name in names:
                if name in look.figures:
                    figure = look.figures[name]
                    figures[name] = worse_figure(name, swapped(figure) if swaps else figure, change)
            changes.append(change + (-look.change if swaps else look.change))
            slow_calls.append(look.slow[::-1] if swaps else look.slow)
            call_seconds.append(of_call)
            told = int(order) if self.noise.first else 0
            for_guards = yield SimulatedRound(figures, seconds, told)


@functools.lru_cache(maxsize=2)
def simulated_library(
    noise: Noise, plan: SimulationPlan, change: float = 0.0
) -> Sequence[EqualRound]:
    """Return rounds of equal sides, but for a change of B."""
    generator = np.random.default_rng(plan.seed)
    return [EqualRound(noise, generator, change) for _ in range(plan.library)]


def swapped(figure: Figure) -> Figure:
    """Return the figure of a round whose sides have changed their places."""
    return figure._replace(a=figure.b, b=figure.a, value=-figure.value)


def worse_figure(name: str, figure: Figure, change: float) -> Figure:
    """Return the figure of a B that is worse by ``change``, a logarithm, in what that changes."""
    if name in BESIDE:
        return figure
    worse = QUANTITIES[name].sign * change
    return figure._replace(b=figure.b * math.exp(worse), value=figure.value + worse)


def simulation_report(plan: SimulationPlan) -> Iterator[str]:
    """Yield the lines of three tables, whose cells are percent of decisions, or seconds.

    Items of what a process has once take little time: there are three times as many.
    """
    with ProcessPoolExecutor(plan.processes) as pool:
        plans = [plan] * len(plan.noises)
        rows = list(pool.map(simulated_rows, plan.noises, plans))
    yield from _table(ITEMS_HEADER, [row.of_items for row in rows])
    yield ""
    yield from _table(GATES_HEADER, [row.of_gates for row in rows])
    yield ""
    of_process = replace(plan, decisions=3 * plan.decisions)
    yield from _table(PROCESS_HEADER, process_rows(of_process))


def unlike_report(plan: SimulationPlan) -> Iterator[str]:
    """Yield the lines of the table of noises that the two sides may not share, as they come."""
    yield row_of(UNLIKE_HEADER)
    yield "|" + "---|" * len(UNLIKE_HEADER)
    with ProcessPoolExecutor(plan.processes) as pool:
        plans = [plan] * len(UNLIKE_NOISES)
        yield from map(row_of, pool.map(unlike_cells, UNLIKE_NOISES, plans))


def unlike_cells(noise: Noise, plan: SimulationPlan) -> list[str]:
    """Return the row of a kind of noise, whose items are judged by their latency alone.

    Changes are those of the mean over processes. Where the noise has a mean itself, its first cell
    is of a candidate whose processes are otherwise those of the baseline.
    """
    simulation = Simulation(noise, plan)

    def decided(effect: float) -> list[Decision]:
        return simulation.gates("latency", effect)

    own = math.expm1(noise.mean)
    none = decided(0.0)
    return [
        noise.name,
        f"{100 * own:+.1f} %",
        _both(decided(own)) if own > 0 else "",
        f"{_both(none)}, {_rounds_of(none)}, {_seconds(none)}",
        _both(decided(TOLERANCE)),
        _share(decided(1.5 * TOLERANCE), Verdict.PASSED),
        *[_found_after(decided(effect)) for effect in (0.05, 0.08)],
    ]


def _rounds_of(decisions: Sequence[Decision]) -> str:
    return f"{fmean(decision.rounds for decision in decisions):.1f}"


def _found_after(decisions: Sequence[Decision]) -> str:
    return f"{_share(decisions, Verdict.REGRESSED)}, {_rounds_of(decisions)}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield row_of(header)
    yield "|" + "---|" * len(header)
    yield from map(row_of, rows)


class Rows(NamedTuple):
    """The rows of a kind of noise: of whole items, and of each quantity as a gate."""

    of_items: Sequence[str]
    of_gates: Sequence[str]


def simulated_rows(noise: Noise, plan: SimulationPlan) -> Rows:
    """Return the rows of a kind of noise."""
    simulation = Simulation(noise, plan)
    gates = [_edge(simulation, name) for name in OF_CALLS]
    return Rows(_item_cells(simulation), [noise.name, *gates])


def _item_cells(simulation: Simulation) -> list[str]:
    same = simulation.items(0.0)
    more = simulation.items(0.05)
    return [
        simulation.noise.name,
        _false_alarms(same),
        _share(same, Verdict.PASSED),
        _seconds(same),
        _share(simulation.items(0.02), Verdict.PASSED),
        _both(simulation.items(0.03)),
        _found(more),
        _seconds(more),
        _found(simulation.items(0.10)),
    ]


def process_rows(plan: SimulationPlan) -> list[list[str]]:
    """Return the rows of what a process has once: at the edge, and as far beyond it again."""
    simulation = Simulation(plan.noises[0], plan)
    rows = []
    for name, deviation in OF_PROCESS.items():
        worse = 3 * upgrade_rules()[name].tolerance
        found = _share(simulation.gates(name, worse), Verdict.REGRESSED)
        identical = _false_alarms(simulation.gates(name, 0.0))
        cells = [name, f"{100 * deviation:.0f} %", identical, _edge(simulation, name)]
        rows.append([*cells, f"+{100 * worse:.0f} %: {found}"])
    return rows


def _edge(simulation: Simulation, name: str) -> str:
    return _both(simulation.gates(name, upgrade_rules()[name].tolerance))


def _both(decisions: Sequence[Decision]) -> str:
    return f"{_share(decisions, Verdict.REGRESSED)}, {_share(decisions, Verdict.PASSED)}"


def _share(decisions: Sequence[Decision], verdict: Verdict) -> str:
    """Return the percentage of a verdict."""
    count = sum(decision.verdict is verdict for decision in decisions)
    return f"{100 * count / len(decisions):.1f}"


def _found(decisions: Sequence[Decision]) -> str:
    soon = sum(decision.is_soon for decision in decisions)
    return f"{_share(decisions, Verdict.REGRESSED)}, {100 * soon / len(decisions):.1f}"


def _false_alarms(decisions: Sequence[Decision]) -> str:
    """Return how many decisions are false alarms, and the quantities that made them."""
    count = sum(decision.verdict is Verdict.REGRESSED for decision in decisions)
    names: Counter[str] = Counter()
    for decision in decisions:
        names.update(decision.regressed)
    makers = ", ".join(f"{name} {times}" for name, times in names.most_common(3))
    text = f"{count} of {len(decisions):,}"
    return f"{text} ({makers})" if makers else text


def _seconds(decisions: Sequence[Decision]) -> str:
    return f"{fmean(decision.seconds for decision in decisions):.1f}"
