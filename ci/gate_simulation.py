"""Simulation of the upgrade gate: how often its decisions are wrong, where the truth is known.

Rounds are simulated call by call and go through the functions that judge real ones. Each item draws
its rounds from some hundred of a kind of noise, and the offsets of its processes anew.
"""

from __future__ import annotations

import math
from collections import Counter, abc
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple, TypeAlias

import numpy as np
from gate_many import Decided, Library, simulate_many
from gate_noise import (
    NOISES,
    OF_CALLS,
    OF_PROCESS,
    PAIR,
    UNLIKE_NOISES,
    Generator,
    Look,
    Noise,
    figures_of_process,
    simulated_looks,
)
from gate_report import row_of

from pytest_mlms.quantities import QUANTITIES, upgrade_rules
from pytest_mlms.records import Verdict
from pytest_mlms.upgrade.criteria import SHARE_OF_TOLERANCE, Criteria, least_calls, precision_of
from pytest_mlms.upgrade.decision import (
    are_gates_decided,
    compare_rounds,
    is_decided,
    verdict_of,
)
from pytest_mlms.upgrade.figures import Figure
from pytest_mlms.upgrade.interleave_plan import InterleavePlan
from pytest_mlms.upgrade.round_estimate import ROUNDS, RoundSpan

__all__ = ["Decision", "Simulation", "SimulationPlan", "simulation_report", "unlike_report"]

Figures = Mapping[str, Figure]

BUDGET = 60.0  # seconds
PRECISION = SHARE_OF_TOLERANCE * 0.03
START = 0.65  # seconds of a round beside its turns: two processes of ONNX Runtime, the warm-up
TURNS = 0.75  # seconds
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


UNLIKE_HEADER = (
    "what varies",
    "mean",
    "at it: REGRESSED, PASSED",
    "no change: REGRESSED, PASSED, rounds",
    "+3 %: REGRESSED, PASSED",
    "+4.5 %: PASSED",
    "+5 %: REGRESSED, rounds",
    "+8 %: REGRESSED, rounds",
)


class SimulatedRound(NamedTuple):
    """The figures of a round, its pairs of turns, and its order of start as decisions take it."""

    figures: Figures
    pairs: int = 0
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
        if is_decided(comparisons, count, span.least):
            break
        for_guards = are_gates_decided(comparisons)
    regressed = [one.quantity for one in comparisons if one.verdict is Verdict.REGRESSED]
    seconds = sum(START + PAIR * one.pairs for one in seen)
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
    """Items with one kind of noise, whose rounds are drawn from a ``library``."""

    noise: Noise
    library: Sequence[Sequence[Look]]
    plan: SimulationPlan

    @classmethod
    def of(cls, noise: Noise, plan: SimulationPlan) -> Simulation:
        """Simulate the rounds of the library."""
        return cls(noise, simulated_library(noise, plan), plan)

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
        rounds = self._rounds_of_calls(effect, generator, "latency")
        measured = next(rounds)
        while True:
            once = figures_of_process(OF_PROCESS, generator)
            for_guards = yield measured._replace(figures={**measured.figures, **once})
            measured = rounds.send(for_guards)

    def _rounds_of(self, name: str, effect: float, generator: Generator) -> Rounds:
        if name in OF_CALLS:
            for measured in self._rounds_of_calls(effect, generator, name):
                yield measured._replace(figures={name: measured.figures[name]})
        while True:
            equal = figures_of_process({name: OF_PROCESS[name]}, generator)
            yield SimulatedRound({name: worse_figure(name, equal[name], math.log1p(effect))})

    def _rounds_of_calls(self, effect: float, generator: Generator, gate: str) -> Rounds:
        """Yield rounds of the library, whose processes have offsets of their own.

        Its sides are equal, so either of them may be B. A round ends as a real one does.
        """
        plan = self._plan_of(gate)
        changes: list[float] = []
        slow_calls: list[tuple[int, int]] = []
        for_guards = False
        b_first = False
        while True:
            b_first = bool(generator.integers(2)) if len(changes) % 2 == 0 else not b_first
            looks = self.library[int(generator.integers(len(self.library)))]
            drawn = _end_of(looks, plan.for_round(changes, for_guards, slow_calls))
            order = np.array(1 if b_first else -1)
            change = float(self.noise.log_ratios(generator, order)) - self.noise.mean
            direction = float(generator.choice([-1, 1]))
            change += math.log1p(effect)
            figures = {}
            for name, figure in drawn.figures.items():
                equal = figure._replace(value=direction * figure.value)
                figures[name] = worse_figure(name, equal, change)
            told = int(order) if self.noise.first else 0
            changes.append(figures["latency"].value)
            a, b = drawn.slow
            slow_calls.append((a, b) if direction > 0 else (b, a))
            for_guards = yield SimulatedRound(figures, drawn.pairs, told)

    def _plan_of(self, gate: str) -> InterleavePlan:
        criteria = Criteria({"latency": 0.03}, (gate,))
        return InterleavePlan(
            TURNS,
            BUDGET,
            seed=0,
            rounds=self.plan.span,
            precision=precision_of(criteria),
            least_calls=least_calls(criteria),
        )


def _end_of(looks: Sequence[Look], plan: InterleavePlan) -> Look:
    """Return the look with which a round ends."""
    most = plan.seconds / PAIR
    for look in looks:
        if look.pairs >= most or look.figures["latency"].error <= plan.precision:
            break
    return look


def simulated_library(noise: Noise, plan: SimulationPlan) -> list[list[Look]]:
    """Return rounds of equal sides."""
    generator = np.random.default_rng(plan.seed)
    pairs = round(TURNS / PAIR)
    return [simulated_looks(noise, pairs, generator) for _ in range(plan.library)]


def worse_figure(name: str, figure: Figure, change: float) -> Figure:
    """Return the figure of a B that is worse by ``change``, a logarithm."""
    value = figure.value + QUANTITIES[name].sign * change
    return figure._replace(b=figure.a * math.exp(value), value=value)


def simulation_report(plan: SimulationPlan) -> Iterator[str]:
    """Yield the lines of three tables, whose cells are percent of decisions, or seconds."""
    with ProcessPoolExecutor(plan.processes) as pool:
        plans = [plan] * len(plan.noises)
        rows = list(pool.map(simulated_rows, plan.noises, plans))
    yield from _table(ITEMS_HEADER, [row.of_items for row in rows])
    yield ""
    yield from _table(["at the edge of", *OF_CALLS], [row.of_gates for row in rows])
    yield ""
    header = [
        "of a process",
        "deviation",
        "identical: REGRESSED",
        "at the edge",
        "worse: REGRESSED",
    ]
    yield from _table(header, process_rows(plan))


def unlike_report(plan: SimulationPlan) -> Iterator[str]:
    """Yield the lines of the table of noises that the two sides may not share, as they come."""
    yield row_of(UNLIKE_HEADER)
    yield "|" + "---|" * len(UNLIKE_HEADER)
    for noise in UNLIKE_NOISES:
        yield row_of(unlike_cells(noise, plan))


def unlike_cells(noise: Noise, plan: SimulationPlan) -> list[str]:
    """Return the row of a kind of noise, whose items are judged by their latency alone.

    Changes are those of the mean over processes. Where the noise has a mean itself, its first cell
    is of a candidate whose processes are otherwise those of the baseline.
    """
    generator = np.random.default_rng(plan.seed)
    most = round(TURNS / PAIR)
    rounds = InterleavePlan(TURNS, BUDGET, seed=0, rounds=plan.span, precision=PRECISION)
    library = Library.of(noise, plan.library, most, generator)

    def decided(effect: float) -> Decided:
        changed = library.with_change(math.log1p(effect), most, generator)
        return simulate_many(changed, rounds, PAIR, plan.decisions, generator)

    own = math.expm1(noise.mean)
    none = decided(0.0)
    seconds = START * none.rounds.mean() + PAIR * none.pairs.mean()
    return [
        noise.name,
        f"{100 * own:+.1f} %",
        _risks(decided(own)) if own > 0 else "",
        f"{_risks(none)}, {none.rounds.mean():.1f}, {seconds:.1f} s",
        _risks(decided(0.03)),
        f"{100 * decided(0.0451).passed.mean():.1f}",
        *[_found_after(decided(effect)) for effect in (0.05, 0.08)],
    ]


def _risks(decided: Decided) -> str:
    return f"{100 * decided.regressed.mean():.1f}, {100 * decided.passed.mean():.1f}"


def _found_after(decided: Decided) -> str:
    return f"{100 * decided.regressed.mean():.1f}, {decided.rounds.mean():.1f}"


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
    simulation = Simulation.of(noise, plan)
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
    simulation = Simulation(plan.noises[0], (), plan)
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
