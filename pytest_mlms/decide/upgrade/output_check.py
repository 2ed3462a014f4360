"""Comparison of the outputs and the accuracy of both sides of an upgrade.

A candidate that is faster because it is wrong is no upgrade. All inputs of the dataset go through
both sides once; accuracy says how wrong other outputs are.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from mlms_predictors._run.protocol import OF_TEXTS

from pytest_mlms.core.errors import AgentError, Crashed, InvalidRun, MlmsError, OutputError
from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.core.tasks import facts_of
from pytest_mlms.decide.upgrade.agents import AgentPair, TurnPlan
from pytest_mlms.decide.upgrade.compared_inputs import (
    Extent,
    OpenPictures,
    PairOfOutputs,
    StackInputs,
    drawn_dataset,
    nearby_outputs,
    outputs_of_random,
    paired_outputs,
)
from pytest_mlms.decide.upgrade.output_verdict import (
    BY_CALL,
    BY_THREADS,
    CONTINUED,
    JOINED,
    OF_FIRST_CALL,
    OF_LOAD,
    OF_PROCESS,
    OWN_THREADS,
    PICTURES,
    TIMED,
    Circumstances,
    OutputsCompared,
    agreement_of,
    by_design,
    compared,
    without_measure,
)
from pytest_mlms.decide.upgrade.paired_evidence import (
    BATCH_AGREEMENT,
    compare_batch_sizes,
    compare_evidence,
)
from pytest_mlms.decide.upgrade.rounds import SIDES, Array, Outputs, SideName
from pytest_mlms.decide.upgrade.served_share import FAIR_CALLS
from pytest_mlms.manifest.schema import TOKENS, Output
from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.measure.evaluate.closeness import Rule, Tolerance
from pytest_mlms.measure.evaluate.output_sweep import (
    SPREADS,
    Nearby,
    OutputFinding,
    OutputSweep,
    rules_of,
)
from pytest_mlms.measure.evaluate.rows import TOGETHER, BatchSizes, ByBatch
from pytest_mlms.measure.evaluate.scoring import Files, Scoring, flips_by_class, worse_inputs
from pytest_mlms.measure.evaluate.tasks.task import Evidence
from pytest_mlms.measure.evaluate.token_choices import (
    can_be_held,
    halved,
    spread_of_choices,
    usual_share,
)
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.provide.cases import Case

_TimedOutputs = Mapping[SideName, Sequence[Outputs]]
"""The outputs of each side for each of the timed batches."""

OpenPair = Callable[[], AbstractContextManager[AgentPair]]

_CHOSEN_TWICE = 2  # batches
_LEAST_VARYING = 0.1  # of what is allowed
_MOST_BY_THREADS = 0.01
"""The share above which a difference by the number of threads is no rounding, but a fault."""


def check_outputs(
    expected: Outputs, actual: Outputs, tolerance: Tolerance | None = None
) -> Comparison:
    """Return the verdict on B's outputs by name, given A's for the same inputs, a row an input.

    ``tolerance`` is the manifest's for an agreement; None: the default for rounding. The ratio is
    the largest difference as a multiple of what is allowed.
    """
    sweep = OutputSweep(rules_by_name(expected, tolerance))
    rows = max([1, *(len(values) for values in expected.values() if values.ndim)])
    sweep.add(expected, actual, [f"row {row}" for row in range(rows)])
    return agreement_of(sweep, Circumstances(tolerance=tolerance))


def rules_by_name(outputs: Outputs, tolerance: Tolerance | None) -> dict[str, Rule]:
    """Return the rule of each output, of whose layout nothing is known."""
    return {name: Rule(tolerance) for name in outputs}


class OutputFindings(NamedTuple):
    """The verdicts on outputs and accuracy, and a line for each of the inputs that got worst.

    Inputs are named where the candidate is worse in a quantity of accuracy, or outputs disagree.
    ``outputs`` says what was compared.
    """

    comparisons: Sequence[Comparison]
    worse_inputs: Sequence[str] = ()
    outputs: OutputsCompared | None = None


def _varying(rule: Rule, channels: Array | None) -> Array | None:
    """Return where on its axis of unlike values an output varies, here or earlier; None: all."""
    is_first = rule.share is None
    if channels is None or (rule.varying is None and not is_first):
        return None
    varying = channels > _LEAST_VARYING
    if is_first or rule.varying is None:
        return varying
    return varying | rule.varying if varying.shape == rule.varying.shape else None


@dataclass
class OutputCheck:
    """Check of the outputs, and of the accuracy where there are labels.

    ``files`` are those that steps of outputs name. ``tolerances`` of accuracy by quantity override
    the default; what they name is compared on all inputs. ``open_unheld`` starts both sides at
    their frameworks' own numbers of threads; None where that is what is timed. ``open_pictures``
    starts what decodes pictures with each stack; None where pytest's own interpreter does that.
    """

    case: Case
    dataset: Dataset | None
    files: Files
    tolerances: Mapping[str, float]
    extent: Extent
    open_unheld: OpenPair | None = None
    open_pictures: OpenPictures | None = None
    _sweep: OutputSweep = field(init=False)
    _about: Circumstances = field(init=False)
    _rounds: int = field(init=False, default=0)
    _accuracy: Sequence[Comparison] = field(init=False, default=())
    _worse: Sequence[str] = field(init=False, default=())
    _flips: str = field(init=False, default="")
    _first: dict[SideName, Sequence[Outputs]] = field(init=False, default_factory=dict)
    _probes: Sequence[Outputs] = field(init=False, default=())
    _batches: Comparison | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        manifest = self.case.loaded.manifest
        agreement = self.case.upgrade_agreement
        tolerance = Tolerance(agreement.rtol, agreement.atol) if agreement else None
        self._sweep = OutputSweep(rules_of(self.case), manifest.classification)
        self._about = Circumstances(tolerance, agreement.inputs if agreement else 1.0)
        self._sweep.may_differ = 1 - self._about.inputs

    @property
    def _outputs(self) -> Sequence[Output]:
        return self.case.loaded.manifest.outputs

    def __call__(
        self,
        pair: AgentPair,
        first: Mapping[SideName, Outputs],
        of_first_call: Mapping[SideName, Outputs] = MappingProxyType({}),
    ) -> OutputFindings:
        """Return the verdicts on agreement and accuracy, and the inputs that got worse.

        ``first`` has the outputs of the first of the timed batches by side, and ``of_first_call``
        those that each process gave for it in its first call. The first call of this compares
        all inputs, each later one what its round timed. Accuracy is compared where outputs
        disagree, too. Raises InvalidRun where the baseline's own outputs cannot be used. After an
        error all is compared again, as half of it says nothing of the other half.
        """
        try:
            return self._findings(pair, first, of_first_call)
        except MlmsError:
            fresh = vars(replace(self))
            vars(self).clear()
            vars(self).update(fresh)
            raise

    def _findings(
        self,
        pair: AgentPair,
        first: Mapping[SideName, Outputs],
        of_first_call: Mapping[SideName, Outputs],
    ) -> OutputFindings:
        self._rounds += 1
        timed = {side: [first[side], *_further_outputs(pair, side)] for side in SIDES}
        self._check_ids(pair, timed)
        if self._rounds == 1:
            self._measure_spread(pair, timed)
            self._compare_unheld(pair)  # which may widen what is allowed, as the spread may
        self._add_timed(pair, timed)
        self._add_repeats(pair, timed)
        self._check_first_call(pair, first, of_first_call)
        self._check_processes(pair, timed)
        self._check_continued(pair, timed)
        self._check_loads(pair)
        if self._rounds == 1:
            rules = copy.deepcopy(self._sweep.rules)  # with the sizes of what is timed
            self._compare_all(pair)
            self._compare_batch_sizes(pair, rules)  # last, as the baseline may end with that
        elif self.dataset is None:
            self._add_random(pair)
        if self._sweep.inputs and len(self._sweep.nan) == self._sweep.inputs:
            raise InvalidRun(
                "the baseline's outputs have NaN for all inputs; there is nothing to compare with"
            )
        agreement = agreement_of(self._sweep, self._about)
        if lacking := self._about.undecided(self._sweep):
            agreement = without_measure(agreement, lacking)
        if self.case.crosses_variants and self.case.upgrade_agreement is None:
            agreement = by_design(agreement, self._sweep, self._about, bool(self._accuracy))
        texts = [agreement.told, self._flips, _other_default(pair)]
        agreement = agreement.but(told="; ".join(filter(None, texts)))
        worse = self._worse
        if agreement.verdict is Verdict.REGRESSED and not worse:
            parts = [self._about.parts.get(each) for each in (PICTURES, CONTINUED)]
            worst = [line for part in parts if part for line in part.worst]
            worse = [*worst, *self._sweep.worst]
        found = compared(self._sweep, self._about)
        batches = [self._batches] if self._batches else []
        return OutputFindings([agreement, *batches, *self._accuracy], worse, found)

    def _measure_spread(self, pair: AgentPair, timed: _TimedOutputs) -> None:
        """Let what the baseline's own outputs vary from call to call count as rounding.

        Raises InvalidRun where what is allowed can't be widened.
        """
        spread = OutputSweep(self._sweep.rules, of_itself=True)
        self._measure_choices(pair, timed["a"])
        for place, expected in enumerate(timed["a"]):
            batch = pair.batch_at(place)
            again = self._predict(pair, "a", batch)
            nearby = self._nearby(pair, batch) if TOKENS in expected else None
            spread.add(self._own(expected), again, [""], nearby)
        found = spread.outputs.values()
        if spread.problem or any(one.ratio > 1 and not one.allowed for one in found):
            self._refuse(pair, spread, "in a second call than in the first")
        self._widen(spread, BY_CALL)

    def _check_ids(self, pair: AgentPair, timed: _TimedOutputs) -> None:
        """Raise InvalidRun where one side tells ids of tokens, and the other only their texts."""
        if self.case.loaded.manifest.generate is None:
            return
        are_texts = {
            side: any((each[TOKENS] >= OF_TEXTS).any() for each in timed[side] if TOKENS in each)
            for side in SIDES
        }
        if are_texts["a"] != are_texts["b"]:
            by_id, by_text = sorted(SIDES, key=are_texts.__getitem__)
            raise InvalidRun(
                f"{pair.labels[by_id]} tells ids of tokens, and {pair.labels[by_text]} only their "
                "texts, which can't be compared; have it tell 'tokens: ids', or write 'tokens: "
                "chunks' for both"
            )

    def _measure_choices(self, pair: AgentPair, timed: Sequence[Outputs]) -> None:
        """Let what the baseline's own logits vary from call to call count as rounding of tokens."""
        if self.case.loaded.manifest.generate is None or TOKENS not in self._sweep.rules:
            return
        rule = self._sweep.rules[TOKENS]
        for place, expected in enumerate(timed[:_CHOSEN_TWICE]):
            held_to = self._nearby(pair, pair.batch_at(place))().held_to
            share = spread_of_choices(expected[TOKENS], held_to) if held_to else 0.0
            if SPREADS * share > (rule.share or usual_share(rule)):
                self._about.spreads[TOKENS, BY_CALL] = share
                rule.share = SPREADS * share

    def _widen(self, spread: OutputSweep, how: str, most: float = math.inf) -> None:
        """Note how the baseline varies, and allow twice of it: of shares below ``most``.

        Where values are unlike each other, that is allowed only of those that vary by a tenth of
        what is allowed or more. Of whole numbers, and of a manifest's tolerance, nothing can be.
        """
        for name, found in spread.outputs.items():
            share = SPREADS * found.ratio * found.allowed
            rule = self._sweep.rules[name]
            if not found.allowed and found.ratio > 1 and self._about.inputs >= 1:
                self._about.spreads[name, how] = math.inf
            if share > found.allowed:
                self._about.spreads[name, how] = share / SPREADS
                if share < most:
                    channels = spread.channels.get(name)
                    rule.varying = _varying(rule, channels)
                    rule.share = max(share, rule.share or 0.0)

    def _predict(self, pair: AgentPair, side: SideName, batch: Outputs) -> Outputs:
        """Return the outputs of a side that the manifest names; errors name the side."""
        with pair.running(side) as predictor:
            return self._own(predictor.predict(batch))

    def _own(self, outputs: Outputs) -> Outputs:
        """Return the outputs that the manifest names."""
        return {one.name: outputs[one.name] for one in self._outputs if one.name in outputs}

    def _add_timed(self, pair: AgentPair, timed: _TimedOutputs) -> None:
        sweep = self._about.part(TIMED, OutputSweep(self._sweep.rules))
        known, earlier = len(sweep.unjudged), sweep.inputs
        for number, (a, b) in enumerate(zip(timed["a"], timed["b"], strict=True)):
            if self._about.inputs < 1 and self._rounds > 1 and number == 0:
                continue  # each round has the first batch, which would count as often
            nearby = self._nearby(pair, pair.batch_at(number))
            names = self._names(f"timed batch {number + 1}")
            inputs = self._inputs(self._rounds, [number])
            sweep.add_call(inputs, self._own(a), self._own(b), names, nearby)
        self._about.unjudged += sweep.unjudged[known:]
        self._about.timed += sweep.inputs - earlier

    def _nearby(self, pair: AgentPair, batch: Outputs, side: SideName = "a") -> Nearby:
        """Return what tells which outputs of a side for a batch rounding decides."""
        return partial(nearby_outputs, pair, self.case, batch, side)

    def _add_repeats(self, pair: AgentPair, timed: _TimedOutputs) -> None:
        """Add what calls gave that were repeated on the same batch."""
        for side in SIDES:
            with pair.running(side) as predictor:
                found = predictor.repeated_calls()
            sweep = OutputSweep(self._sweep.rules, of_itself=True)
            for place, outputs in found.kept:
                known = timed[side][place : place + 1] or [_outputs_at(pair, side, place)]
                nearby = self._nearby(pair, pair.batch_at(place), side)
                names = [f"timed batch {place + 1}"]
                sweep.add(self._own(known[0]), self._own(outputs), names, nearby)
            self._about.repeats[side].add(found, sweep)

    def _check_first_call(
        self,
        pair: AgentPair,
        first: Mapping[SideName, Outputs],
        of_first_call: Mapping[SideName, Outputs],
    ) -> None:
        """Compare the first answer of each process with what it gives for the same batch later."""
        for side, outputs in of_first_call.items():
            inputs = [(self._rounds, row) for row in range(self.case.batch_size)]
            fresh = OutputSweep(self._sweep.rules, of_itself=True)
            sweep = self._about.part(OF_FIRST_CALL, fresh, side)
            nearby = self._nearby(pair, pair.batch_at(0), side)
            names = self._names("timed batch 1")
            sweep.add_call(inputs, self._own(first[side]), self._own(outputs), names, nearby)

    def _check_processes(self, pair: AgentPair, timed: _TimedOutputs) -> None:
        """Compare each side with itself: its process with that of the first round.

        Each round has another of the batches that were timed there, as a share of them may differ.
        Raises InvalidRun where the baseline gives something else.
        """
        if self._rounds == 1:
            self._probes = [pair.batch_at(place) for place in pair.compared]
            self._first = {side: [self._own(each) for each in timed[side]] for side in SIDES}
            return
        place = (self._rounds - 1) % len(self._probes)
        probe = self._probes[place]
        for side in SIDES:
            again = self._predict(pair, side, probe)
            fresh = OutputSweep(self._sweep.rules, of_itself=True)
            sweep = self._about.part(OF_PROCESS, fresh, side)
            nearby = self._nearby(pair, probe, side)
            names = self._names(f"timed batch {place + 1}")
            inputs = self._inputs(1, [place])
            sweep.add_call(inputs, again, self._first[side][place], names, nearby)
            if side == "a" and sweep.beyond:
                self._refuse(pair, sweep, f"in round {self._rounds} than in round 1")

    def _check_continued(self, pair: AgentPair, timed: _TimedOutputs) -> None:
        """Compare an answer of each side with how it goes on behind its own first half.

        What a prompt has is computed at once, and what was generated token by token: a cache that
        is wrong differs. Each round has another of the timed prompts.
        """
        generate = self.case.loaded.manifest.generate
        if generate is None or TOKENS not in self._sweep.rules:
            return
        place = (self._rounds - 1) % len(timed["a"])
        for side in SIDES:
            further, rest = halved(generate, pair.batch_at(place), self._own(timed[side][place]))
            names = self._names(f"timed batch {place + 1}")
            if not rest:
                continue
            nearby = self._nearby(pair, further, side)
            if side == "a" and not can_be_held(rest, nearby().held_to):
                return  # such as a server, whose batches may flip a token: not to be told apart
            problem = ""
            try:
                expected = self._predict(pair, side, further)
            except (Refused, OutputError) as error:
                pair.wait(side)
                if side == "a" or CONTINUED not in self._about.own:
                    return  # such as a model whose prompts have one length
                expected, problem = rest, f"it refuses that prompt: {error}"
            fresh = OutputSweep(self._sweep.rules, of_itself=True)
            sweep = self._about.part(CONTINUED, fresh, side)
            sweep.add_call(self._inputs(self._rounds, [place]), expected, rest, names, nearby)
            sweep.problem = sweep.problem or problem

    def _check_loads(self, pair: AgentPair) -> None:
        """Compare what each side gave under the load of the round with what it gives at rest.

        Batches that queries were joined to are compared between both sides, too. Raises InvalidRun
        where the baseline gives something else under load.
        """
        for side in SIDES:
            with pair.running(side) as predictor:
                served = predictor.served_calls(FAIR_CALLS if self._about.inputs < 1 else 0)
            sweep = OutputSweep(self._sweep.rules, of_itself=True)
            sweep = self._about.part(OF_LOAD, sweep, side=side)
            wrong = []
            for call in served.told:
                batch = call.batch(pair.batches)
                names = [f"{len(call.samples)} queries in a call"] * self.case.batch_size
                names *= len(call.samples)
                at_rest = self._predict(pair, side, batch)
                nearby = self._nearby(pair, batch, side)
                beyond = sweep.add(at_rest, self._own(call.outputs), names, nearby)
                wrong.append(beyond.reshape(len(call.samples), -1).mean(axis=1))
                if side == "a" and sweep.beyond:
                    self._refuse(pair, sweep, "under load than at rest")
                if side == "b" and len(call.samples) > 1:
                    inputs = self._inputs(self._rounds, call.samples)
                    joined = self._about.part(JOINED, OutputSweep(self._sweep.rules))
                    expected = self._predict(pair, "a", batch)
                    joined.add_call(inputs, expected, at_rest, names, self._nearby(pair, batch))
            numbers = range(len(pair.batches))
            samples = [(number and self._rounds, number) for number in numbers]
            self._about.served[side].add(served, samples, wrong)

    def _refuse(self, pair: AgentPair, sweep: OutputSweep, when: str) -> None:
        """Raise InvalidRun for a baseline that differs from itself, where no input may."""
        if self._about.inputs < 1:
            return
        worst = max(sweep.outputs.values(), key=lambda one: one.ratio, default=OutputFinding(""))
        problem = f"{worst.name!r} by {worst.ratio:.3g} times what is allowed"
        raise InvalidRun(
            f"{pair.labels['a']} gave other outputs {when} for the same inputs: "
            f"{sweep.problem or problem}; fix the model's seed, or look for uninitialised memory "
            f"or a race"
        )

    def _inputs(self, drawn: int, batches: Iterable[int]) -> list[tuple[int, int, int]]:
        """Return the keys of the inputs of a round's batches; round 0 stands for any."""
        rows = range(self.case.batch_size)
        return [(number and drawn, number, row) for number in batches for row in rows]

    def _names(self, label: str) -> list[str]:
        return [label] * self.case.batch_size

    def _compare_unheld(self, pair: AgentPair) -> None:
        """Compare the timed batches at the frameworks' own numbers of threads, too."""
        if self.open_unheld is None:
            return
        spread = OutputSweep(self._sweep.rules)
        found = {}
        try:
            with self.open_unheld() as unheld:
                for number in pair.compared:
                    batch = pair.batch_at(number)
                    a, b = (self._predict(unheld, side, batch) for side in SIDES)
                    held = self._predict(pair, "a", batch)
                    spread.add(held, a, [""], self._nearby(pair, batch))
                    found[number] = a, b
                self._widen(spread, BY_THREADS, _MOST_BY_THREADS)
                measured, unmeasured = self._by_threads()
                for number, (a, b) in found.items():
                    names = self._names(f"timed batch {number + 1}")
                    for sweep in (measured, unmeasured):
                        sweep.add(a, b, names, self._nearby(unheld, pair.batch_at(number)))
        except MlmsError as error:
            if isinstance(error, Crashed) and not error.killed:
                raise
            self._about.unheld = f"not compared {OWN_THREADS}: {error}"
            self._about.is_killed = error.killed and error.side == "b"
            return
        judged = [measured] if measured.rules else []
        judged += [unmeasured] if unmeasured.problem or unmeasured.lost else []
        for sweep in judged:
            self._about.note(OWN_THREADS, sweep)
            self._about.unjudged += sweep.unjudged
            self._about.timed += sweep.inputs

    def _by_threads(self) -> tuple[OutputSweep, OutputSweep]:
        """Return sweeps of the outputs of which the baseline is a measure, and of the others.

        Threads change the others by so much that it is a fault.
        """
        most = _MOST_BY_THREADS / SPREADS
        spreads = self._about.spreads.items()
        faulty = {name for (name, how), share in spreads if how == BY_THREADS and share > most}
        rules = self._sweep.rules.items()
        return (
            OutputSweep({name: rule for name, rule in rules if name not in faulty}),
            OutputSweep({name: rule for name, rule in rules if name in faulty}),
        )

    def _compare_batch_sizes(self, pair: AgentPair, rules: Mapping[str, Rule]) -> None:
        """Compare each side with itself: inputs alone, and in a batch of 8.

        Where the baseline can't, the candidate doesn't try, as it might end with that.
        """
        sizes = BatchSizes(self.case, self.dataset, self.extent.seed)
        found: dict[SideName, ByBatch] = {"b": ByBatch()}
        for side in SIDES:
            try:
                with pair.running(side) as predictor:
                    found[side] = sizes.compare(predictor, rules)
            except AgentError as error:
                if side == "b":
                    raise
                reason, _, _ = str(error).partition("\n")
                self._about.unbatched = f"not compared alone and in a batch of {TOGETHER}: {reason}"
                found[side] = ByBatch(refused=self._about.unbatched)
            if found[side].refused:
                break
        tolerance = self.tolerances.get(BATCH_AGREEMENT)
        variants = self.case.crosses_variants
        self._batches = compare_batch_sizes(found, tolerance, self._about.inputs, variants)

    def _compare_all(self, pair: AgentPair) -> None:
        """Compare the outputs of the dataset, or of random inputs, and score those with labels."""
        if self.dataset is None:
            self._about.seed = self.extent.seed
            self._add_random(pair)
            return
        gated = set(self.tolerances) & set(facts_of(self.case.loaded.manifest.task).quantities)
        dataset = self.dataset
        if not gated:
            dataset = drawn_dataset(dataset, self.case, pair, self.extent)
        self._about.of = len(self.dataset)
        if len(dataset) < len(self.dataset):
            self._about.seed = self.extent.seed
        manifest = self.case.loaded.manifest
        only_prompts = manifest.generate is not None and dataset.labels is None
        is_scored = manifest.has_accuracy and not only_prompts
        accuracy = _AccuracyCheck(self, dataset, pair) if is_scored else None
        with contextlib.ExitStack() as opened:
            own = None
            if self.open_pictures is not None:
                own = StackInputs(opened.enter_context(self.open_pictures()))
                self._about.parts[PICTURES] = own.sweep
            pairs = paired_outputs(pair, self.case, dataset, own)
            for found in opened.enter_context(contextlib.closing(pairs)):
                self._add(found)
                if accuracy is not None:
                    accuracy.add(found)
        if accuracy is not None:
            self._take_accuracy(accuracy)

    def _add_random(self, pair: AgentPair) -> None:
        for found in outputs_of_random(pair, self.case, self.extent, self._rounds):
            self._add(found)

    def _add(self, found: PairOfOutputs) -> None:
        if found.refused and not self._sweep.problem:
            self._sweep.problem = f"the candidate refused {found.names[0]}: {found.refused}"
        sides = [self._own(found.sides[side]) for side in SIDES]
        if self.dataset is not None:
            self._sweep.add(sides[0], sides[1], found.names, found.nearby)
        else:  # a batch at an edge is filled with one input
            self._sweep.add_call(found.names, sides[0], sides[1], found.names, found.nearby)

    def _take_accuracy(self, accuracy: _AccuracyCheck) -> None:
        try:
            comparisons = accuracy.compare()
        except OutputError as error:
            self._sweep.problem = self._sweep.problem or str(error)
            return
        self._accuracy = comparisons
        self._flips = accuracy.flips()
        are_worse = any(one.verdict is Verdict.REGRESSED for one in comparisons)
        if are_worse or agreement_of(self._sweep, self._about).verdict is Verdict.REGRESSED:
            self._worse = accuracy.worse_inputs()


def _other_default(pair: AgentPair) -> str:
    """Return that code which names no output gets another one, "" where it doesn't."""
    before, after = pair.a.default_output, pair.b.default_output
    if before == after or not (before and after):
        return ""
    return f"the default output was {before!r} and is {after!r}: code that names none gets another"


def _further_outputs(pair: AgentPair, side: SideName) -> list[Outputs]:
    """Return the outputs of a side for the first of the timed batches but one."""
    return [_outputs_at(pair, side, place) for place in pair.compared[1:]]


def _outputs_at(pair: AgentPair, side: SideName, place: int) -> Outputs:
    return pair.turn(side, TurnPlan(), place, outputs=True).outputs


class _AccuracyCheck:
    """Comparison of the accuracy of both sides over a dataset, whose outputs are added."""

    def __init__(self, check: OutputCheck, dataset: Dataset, pair: AgentPair) -> None:
        self._check = check
        self._dataset = dataset
        self._labels = pair.labels
        manifest = check.case.loaded.manifest
        gates = check.tolerances
        self._sides = {side: Scoring(manifest, dataset, check.files, gates) for side in SIDES}
        self._errors: dict[SideName, OutputError] = {}
        self._evidence: dict[SideName, Evidence] = {}

    def add(self, found: PairOfOutputs) -> None:
        """Take the outputs of some inputs; a side whose outputs can't be scored takes no more."""
        for side in SIDES:
            if side in self._errors:
                continue
            try:
                self._sides[side].add(found.scored(side), len(found.names))
            except OutputError as error:
                self._errors[side] = error

    def compare(self) -> list[Comparison]:
        """Return the verdicts on the quantities of the manifest's task.

        Raises InvalidRun where the baseline's outputs cannot be used, OutputError where the
        candidate's cannot.
        """
        for side in SIDES:
            self._evidence[side] = self._evidence_of(side)
        manifest = self._check.case.loaded.manifest
        comparisons = compare_evidence(
            self._evidence["a"],
            self._evidence["b"],
            self._check.tolerances,
            manifest.evaluate.seed,
            {entry.key for entry in manifest.thresholds.entries()},
        )
        order = facts_of(manifest.task).quantities
        return sorted(comparisons, key=lambda one: order.index(one.quantity))

    def worse_inputs(self) -> list[str]:
        """Return a line for each of the inputs that got worst."""
        return worse_inputs(self._evidence["a"], self._evidence["b"], self._dataset)

    def flips(self) -> str:
        """Return how many inputs became wrong, and right, by class; "" where none did."""
        a, b = (self._evidence[side] for side in SIDES)
        return flips_by_class(a, b)

    def _evidence_of(self, side: SideName) -> Evidence:
        error = self._errors.get(side)
        if error is None:
            try:
                return self._sides[side].evidence()
            except OutputError as raised:
                error = raised
        text = f"{self._labels[side]}: {error}"
        if side == "a":
            raise InvalidRun(f"the baseline's outputs can't be used: {text}")
        raise OutputError(text)
