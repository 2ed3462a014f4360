"""A run of advice: limits on answers first, which need no rounds, and then the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Limit, Verdict
from pytest_mlms.core.statistics import Interval
from pytest_mlms.decide.advice.candidates import Candidate
from pytest_mlms.decide.advice.evidence import Range
from pytest_mlms.decide.advice.measuring import is_timed
from pytest_mlms.decide.advice.parsing import objective_named
from pytest_mlms.decide.advice.record import Answers, Source, UnknownError
from pytest_mlms.decide.advice.search import (
    LOOKS,
    Advice,
    Finding,
    Goal,
    Process,
    Standing,
    search,
)
from pytest_mlms.measure.evaluate.limits import decide, worst

RISK = 0.05
"""The risk of advice: half that the best is left out, half that the answer breaks a limit."""

_STANDINGS: Mapping[Verdict, Standing] = {Verdict.FAILED: "breaks", Verdict.INCONCLUSIVE: "open"}


@dataclass(frozen=True)
class Question:
    """The question: the ``limits`` of the command, to which manifests add their own.

    ``budget`` is in seconds of processes, and ``looks`` are the rounds after which it is judged.
    """

    objective: str
    limits: Sequence[Limit]
    tolerance: float
    budget: float
    looks: Sequence[int] = LOOKS

    def limits_of(self, candidate: Candidate) -> list[Limit]:
        """Return the limits that a candidate must meet."""
        return [*self.limits, *candidate.own_limits]


@dataclass(frozen=True)
class Answer:
    """Findings about the candidates, by their numbers; ``best`` is that of the answer."""

    findings: Mapping[int, Finding]
    best: int | None
    advice: Advice
    goal: Goal
    quantities: Sequence[str] = field(default_factory=list)
    """The objective and what is limited, each once."""


def find_best(
    candidates: Sequence[Candidate],
    question: Question,
    source: Source,
    set_aside: Mapping[int, str] = {},
) -> Answer:
    """Return the best candidate by what a source tells of them, but for those that are set aside.

    These come with the reason.
    """
    run = _Run(candidates, question, source)
    for number, reason in set_aside.items():
        run.left_out[number] = Finding("set aside", 0, reason=reason)
    run.prepare()
    run.judge_answers()
    able = run.able
    timed = [limit for limit in run.all_limits if is_timed(limit)]
    quantity = objective_named(question.objective)
    goal = Goal(
        quantity.name,
        quantity.sign,
        timed,
        lambda limit, index: limit in run.limits[able[index]],
        question.tolerance,
        RISK / 2,
        run.limit_risk,
        question.budget - run.spent,
        question.looks,
    )
    advice = search(
        len(able), goal, partial(_measure, source, able), partial(_reach, source, able), source.turn
    )
    findings = dict(run.left_out)
    for number, finding in zip(able, advice.findings, strict=True):
        findings[number] = replace(
            finding, ranges={**run.answers.get(number, {}), **finding.ranges}
        )
    best = None if advice.best is None else able[advice.best]
    names = [question.objective, *(limit.quantity for limit in run.all_limits)]
    return Answer(findings, best, advice, goal, [*dict.fromkeys(names)])


def _measure(source: Source, able: Sequence[int], index: int) -> Process:
    return source.measure(able[index])


def _reach(
    source: Source, able: Sequence[int], index: int, quantity: str, confidence: float
) -> Interval:
    if not QUANTITIES[quantity].percent:
        return Interval(float("inf"), 0.0)
    return source.reach(able[index], quantity, confidence)


class _Run:
    """Knowledge of candidates before any is timed; those ``left_out`` are not."""

    def __init__(self, candidates: Sequence[Candidate], question: Question, source: Source) -> None:
        self.spent = 0.0
        self.left_out: dict[int, Finding] = {}
        self.answers: dict[int, Mapping[str, Range]] = {}
        self._candidates = candidates
        self._asked = question.limits
        self._budget = question.budget
        self._source = source
        self.limits = [question.limits_of(candidate) for candidate in candidates]
        self.all_limits = [*dict.fromkeys(limit for each in self.limits for limit in each)]

    @property
    def able(self) -> list[int]:
        """The numbers of the candidates that are not left out."""
        return [n for n in range(len(self._candidates)) if n not in self.left_out]

    @property
    def limit_risk(self) -> float:
        """The risk of limits of one kind: where both have some, each has half."""
        kinds = {is_timed(limit) for limit in self.all_limits}
        return RISK / 2 / max(len(kinds), 1)

    def prepare(self) -> None:
        """Leave out what can't be opened here."""
        for number in self.able:
            try:
                self._source.prepare(number)
            except UnknownError as error:
                self.left_out[number] = Finding("unmeasured", 0, reason=str(error))
            except MlmsError as error:
                self.left_out[number] = Finding("failed", 0, reason=str(error))

    def judge_answers(self) -> None:
        """Leave out candidates whose answers aren't surely good enough.

        Those with the same outputs are measured once. The risk is divided among all limits of the
        command; those of manifests are judged as items do.
        """
        limits = {n: [each for each in self.limits[n] if not is_timed(each)] for n in self.able}
        limited = [number for number in limits if limits[number]]
        outputs = {self._key(number) for number in limited}
        asked = sum(not is_timed(limit) for limit in self._asked)
        risk = self.limit_risk / max(asked * len(outputs), 1)
        known: dict[object, Answers | str] = {}
        for number in limited:
            key = self._key(number)
            if key not in known:
                if self.spent >= self._budget:
                    self.left_out[number] = Finding("unmeasured", 0)
                    continue
                known[key] = self._answers(number, risk)
            self._judge(number, limits[number], known[key])

    def _key(self, number: int) -> object:
        return self._candidates[number].answering

    def _answers(self, number: int, risk: float) -> Answers | str:
        """Return the estimates of a candidate's answers, or why there are none."""
        try:
            with self._source.turn():
                found = self._source.answers(number, risk)
        except MlmsError as error:
            return str(error)
        self.spent += found.seconds
        return found

    def _judge(self, number: int, limits: Sequence[Limit], found: Answers | str) -> None:
        if isinstance(found, str):
            self.left_out[number] = Finding("failed", 0, reason=found)
            return
        ranges: dict[str, Range] = {}
        verdicts = []
        for limit in limits:
            estimates = found.wide if limit in self._asked else found.estimates
            estimate = estimates.get(limit.quantity)
            if estimate is None or estimate.lacking:
                lacking = estimate.lacking if estimate else "it was not measured"
                reason = f"{limit.quantity} (limit set by {limit.place}): {lacking}"
                self.left_out[number] = Finding("failed", 0, reason=reason)
                return
            range_ = Range(estimate.value, estimate.low, estimate.high)
            ranges.setdefault(limit.quantity, range_)
            verdicts.append(decide(limit, estimate))
        self.answers[number] = ranges
        verdict = worst(verdicts)
        if verdict is not Verdict.PASSED:
            self.left_out[number] = Finding(_STANDINGS.get(verdict, "open"), 0, ranges)
