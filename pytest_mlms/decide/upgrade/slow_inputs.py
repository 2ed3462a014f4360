"""Inputs that got slower while the others did not: groups of one shape, and single ones.

The mix of all inputs may hide what got worse for one of its shapes, so each group is decided, too.

A slow-down of few inputs that nothing tells from the others is lost in the median and below the
tolerance of the mean. So each round names the inputs that look slower on B, and each further round
times these again, on fresh processes. What was chosen for being slow by chance isn't slow again.
All that was timed again counts, also for inputs that are suspected no more: those that are left
were chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

import numpy as np

from pytest_mlms.core.quantities import upgrade_rules
from pytest_mlms.core.records import Comparison, InputGroup, Verdict
from pytest_mlms.core.statistics import fisher_probability, pool_rounds
from pytest_mlms.decide.upgrade.criteria import Criteria
from pytest_mlms.decide.upgrade.decision import RISK_OF_CALLS, verdict_of_interval
from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.round_estimate import ROUNDS, RoundSpan, exp_of
from pytest_mlms.decide.upgrade.rounds import Array, Clock, Round, RoundInputs
from pytest_mlms.measure.evaluate.timed_inputs import Elements, Mix


class GroupDecision(NamedTuple):
    """The verdict on the group that got worst, and a row for each group."""

    worst: Comparison
    groups: Sequence[InputGroup]


def compare_groups(
    mix: Mix,
    rounds: Sequence[Mapping[str, Figure]],
    latency: Comparison,
    gate: bool,
    span: RoundSpan = ROUNDS,
) -> GroupDecision | None:
    """Return the decision on groups; None where no group has two rounds.

    ``rounds`` has the latency of each group that a round timed, and the tolerance is that of
    ``latency``. A group is REGRESSED by Holm's procedure (1979, Scandinavian Journal of Statistics
    6:65): the risk is divided by the number of groups that are not yet shown to be worse. The worst
    one is PASSED where every group of the mix is shown to be within the tolerance.
    """
    found: dict[str, list[Figure]] = {}
    for name in mix.names:
        figures = [of_round[name] for of_round in rounds if name in of_round]
        if len(figures) >= 2:
            found[name] = figures
    if not found:
        return None
    limit = math.log1p(latency.tolerance)
    risks = _risks(found, limit, span.risk_of_failing)
    groups = []
    for name, share in zip(*mix, strict=True):
        if name in found:
            groups.append(_group(name, share, found[name], limit, risks[name], span))
    worst = max(groups, key=lambda group: (group.verdict is Verdict.REGRESSED, group.ratio or 0.0))
    compared = _worst(worst, groups, latency, gate, len(found[worst.name]))
    untimed = [name for name in mix.names if name not in found]
    if untimed and compared.verdict is Verdict.PASSED:
        lacking = f"inputs of shape {untimed[0]} were timed in less than two rounds"
        compared = compared.but(verdict=Verdict.INCONCLUSIVE, lacking=lacking)
    return GroupDecision(compared, groups)


def groups_beside(
    of_rounds: Iterable[Comparison],
    mix: Mix,
    rounds: Sequence[Mapping[str, Figure]],
    tolerances: Mapping[str, float],
    terms: Criteria,
) -> GroupDecision | None:
    """Return the decision on groups beside that on the latency of all; None without either.

    ``tolerances`` override the default, which is that of latency.
    """
    for compared in of_rounds:
        if compared.quantity == "latency":
            tolerance = tolerances.get("group_latency", compared.tolerance)
            latency = compared.but(tolerance=tolerance)
            return compare_groups(
                mix, rounds, latency, "group_latency" in terms.gates, terms.rounds
            )
    return None


def _risks(found: Mapping[str, Sequence[Figure]], limit: float, risk: float) -> dict[str, float]:
    """Return the risk of failing of each group, by Holm: the largest excess has the smallest."""
    distances = {}
    for name, figures in found.items():
        pooled = pool_rounds([figure.value for figure in figures])
        excess = pooled.mean - limit
        distances[name] = excess / pooled.error if pooled.error else math.copysign(math.inf, excess)
    ordered = sorted(distances, key=distances.__getitem__, reverse=True)
    risks: dict[str, float] = {}
    left = len(ordered)
    for name in ordered:
        risks[name] = risk / left
        pooled = pool_rounds([figure.value for figure in found[name]])
        left -= pooled.below(risks[name]) > limit
    return risks


def _group(
    name: str,
    share: float,
    figures: Sequence[Figure],
    limit: float,
    risk: float,
    span: RoundSpan,
) -> InputGroup:
    pooled = pool_rounds([figure.value for figure in figures])
    low = pooled.below(risk)
    high = pooled.above(span.risk_of_passing)
    verdict = verdict_of_interval(low, high, limit)
    needed = span.to_fail if verdict is Verdict.REGRESSED else span.least
    if len(figures) < needed:
        verdict = Verdict.INCONCLUSIVE
    baseline = median(figure.a for figure in figures)
    latency = median(figure.b for figure in figures)
    low, ratio, high = map(exp_of, (low, pooled.mean, high))
    calls = sum(figure.calls for figure in figures)
    return InputGroup(name, share, latency, low, high, calls, baseline, ratio, verdict)


def _worst(
    worst: InputGroup, groups: Iterable[InputGroup], latency: Comparison, gate: bool, rounds: int
) -> Comparison:
    verdict = worst.verdict or Verdict.INCONCLUSIVE
    within = (Verdict.PASSED, Verdict.IMPROVED)
    if verdict is not Verdict.REGRESSED:
        are_within = all(group.verdict in within for group in groups)
        verdict = Verdict.PASSED if are_within else Verdict.INCONCLUSIVE
    return Comparison(
        quantity="group_latency",
        a=worst.baseline or math.nan,
        b=worst.latency,
        unit="s",
        tolerance=latency.tolerance,
        gate=gate,
        replicates=rounds,
        of="rounds",
        ratio=worst.ratio or math.nan,
        low=worst.low,
        high=worst.high,
        verdict=verdict,
        about=f"inputs of shape {worst.name}, {100 * worst.share:.2g} % of all",
    )


_NEW = 8  # suspects of a round
_MOST = 16  # that are timed again
_LEAST_ROUNDS = 3  # in which an input is slow again
_NOTICED = 0.6  # of the logarithm of the tolerance, from which an input is suspected
_CALLS_AGAIN = 3  # of an input in a round


@dataclass
class _Suspect:
    """An input that looked slower; ``again`` has the changes of later rounds, ``seconds`` both
    sides' times there."""

    first: float
    again: list[float] = field(default_factory=list)
    seconds: list[tuple[float, float]] = field(default_factory=list)

    @property
    def change(self) -> float:
        """How much slower it was when it was timed again, else how slow it looked."""
        return float(np.median(self.again)) if self.again else self.first


class SlowInputs:
    """The inputs that look slower on B than its others, over rounds."""

    def __init__(self, tolerance: float | None = None) -> None:
        self._is_gate = tolerance is not None
        default = upgrade_rules("groups")["slow_inputs"].tolerance
        self._tolerance = default if tolerance is None else tolerance
        self._limit = math.log1p(self._tolerance)
        self._suspects: dict[Elements, _Suspect] = {}
        self._seen: set[Elements] = set()
        self._again: list[float] = []
        self._observed = 0
        self._mirrored = 0

    @property
    def watch(self) -> list[Elements]:
        """The inputs that the next round times again: those beyond the tolerance come first.

        Of these and of the others, it is those that were timed again most often.
        """

        def standing(elements: Elements) -> tuple[bool, int, float]:
            suspect = self._suspects[elements]
            return suspect.change > self._limit, len(suspect.again), suspect.first

        return sorted(self._suspects, key=standing, reverse=True)[:_MOST]

    def add(self, inputs: RoundInputs, measured: Round, clock: Clock) -> None:
        """Take a round: first what it says of earlier suspects, then its own."""
        if not any(inputs.elements):  # random ones, which no other round has
            return
        clock = "wall" if clock == "cpu" else clock
        noticed = _NOTICED * self._limit
        of_batches = _changes(inputs.numbers, measured, clock)
        centres = _centres(of_batches, inputs)

        def excess(number: int, change: float) -> float:
            return change - centres[int(inputs.groups[number])]

        if inputs.again is not None:
            numbers = np.asarray(inputs.numbers_again)[:, None]
            for number, change in _changes(numbers, inputs.again, clock).items():
                suspect = self._suspects.get(inputs.elements[number])
                if suspect is not None:
                    self._again.append(excess(number, change))
                    suspect.again.append(excess(number, change))
                    suspect.seconds.append(_seconds(number, numbers, inputs.again, clock))
        self._drop(noticed)

        excesses = {}
        for number, change in of_batches.items():
            excesses[inputs.elements[number]] = excess(number, change)
        few = _changes(inputs.numbers, measured, clock, _CALLS_AGAIN)
        self._observed += len(few)
        self._mirrored += sum(excess(*each) < -self._limit for each in few.items())
        self._seen.update(excesses)
        fresh = [each for each in excesses if each not in self._suspects]
        fresh.sort(key=lambda elements: -excesses[elements])
        for elements in fresh[:_NEW]:
            if excesses[elements] > noticed:
                self._suspects[elements] = _Suspect(excesses[elements])

    def _drop(self, noticed: float) -> None:
        """Forget the suspects that are no longer slow."""
        for elements, suspect in list(self._suspects.items()):
            if suspect.again and suspect.change < noticed:
                del self._suspects[elements]

    @property
    def confirmed(self) -> dict[Elements, tuple[float, float]]:
        """The inputs that were slow in three further rounds, with the seconds of both sides.

        Of so many inputs, none is slow so often by chance, as often as inputs are as much faster.
        """
        limit = self._limit
        faster = sum(change < -limit for change in self._again) / max(1, len(self._again))
        share = max(faster, (self._mirrored + 1) / (self._observed + 2))
        found = {}
        for elements, suspect in self._suspects.items():
            slow = sum(change > limit for change in suspect.again)
            chance = len(self._seen) * _at_least(slow, len(suspect.again), share)
            if slow >= _LEAST_ROUNDS and chance <= RISK_OF_CALLS:
                a, b = np.median(suspect.seconds, axis=0)
                found[elements] = (float(a), float(b))
        return found

    def compare(self) -> Comparison | None:
        """Return the verdict; None where there is nothing to tell, and nobody named a tolerance.

        It is PASSED where none was slow again, and all that looks slower has been timed again.

        That inputs are slow again is compared with how often inputs of all rounds are as much
        faster, in as many calls, by Fisher's exact test.
        """
        limit = self._limit
        again = self._again
        slow = sum(change > limit for change in again)
        if not self._seen or not (slow or self._is_gate):
            return None
        chance = fisher_probability(self._mirrored, self._observed, slow, len(again))
        confirmed = self.confirmed
        suspects = self._suspects.values()
        pending = sum(each.change > limit and not each.again for each in suspects)
        verdict = Verdict.INCONCLUSIVE
        if confirmed and chance <= RISK_OF_CALLS:
            verdict = Verdict.REGRESSED
        elif not slow and not pending:
            verdict = Verdict.PASSED

        changes = [change for change in again if change > limit] or [0.0]
        sides = list(confirmed.values())
        if not sides:
            sides = [seconds for suspect in suspects for seconds in suspect.seconds]
        a, b = np.mean(sides, axis=0) if sides else (math.nan, math.nan)
        is_open = slow > 0 and not confirmed
        count = len(self._suspects) if is_open else len(confirmed)
        which = "inputs that were timed, not yet shown" if is_open else "inputs that were timed"
        found = Comparison(
            quantity="slow_inputs",
            a=float(a),
            b=float(b),
            unit="s",
            tolerance=self._tolerance,
            gate=self._is_gate,
            replicates=len(again),
            of="calls",
            ratio=math.exp(float(np.mean(changes))),
            low=math.exp(min(changes)),
            high=math.exp(max(changes)),
            verdict=verdict,
            about=f"{count:,} of {len(self._seen):,} {which}",
        )
        if slow or not pending:
            return found
        lacking = f"{pending:,} of {len(self._seen):,} inputs looked slower and weren't timed again"
        nothing = found.but(a=math.nan, b=math.nan, ratio=math.nan, low=-math.inf, high=math.inf)
        return nothing.but(lacking=lacking, about="")


def _at_least(hits: int, count: int, share: float) -> float:
    """Return the probability of so many hits or more of a count, where each has this share."""
    numbers = range(hits, count + 1)
    return sum(math.comb(count, n) * share**n * (1 - share) ** (count - n) for n in numbers)


def _changes(
    numbers: Array, measured: Round, clock: Clock, most: int | None = None
) -> dict[int, float]:
    """Return the median log(b / a) of the calls on each batch, of the first ``most`` of them."""
    a = measured.a.times(clock)
    b = measured.b.times(clock)
    known = (a > 0) & (b > 0)
    changes = np.log(np.where(known, b, 1.0) / np.where(known, a, 1.0))
    return {
        int(number): float(np.median(changes[(numbers == number) & known][:most]))
        for number in np.unique(numbers[known])
    }


def _seconds(number: int, numbers: Array, measured: Round, clock: Clock) -> tuple[float, float]:
    chosen = numbers == number
    a, b = (np.median(side.times(clock)[chosen]) for side in measured)
    return float(a), float(b)


def _centres(of_batches: Mapping[int, float], inputs: RoundInputs) -> Sequence[float]:
    """Return the median change of each group's batches, of all where a group has none."""
    everything = float(np.median(list(of_batches.values()))) if of_batches else 0.0
    centres = []
    for group in range(len(inputs.mix.names)):
        members = [
            change for number, change in of_batches.items() if inputs.groups[number] == group
        ]
        centres.append(float(np.median(members)) if members else everything)
    return centres
