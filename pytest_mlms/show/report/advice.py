"""Advice as text: a table of the candidates, and what can be said of the best of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.advice.candidates import Candidate
from pytest_mlms.decide.advice.parsing import objective_named
from pytest_mlms.decide.advice.run import RISK, Answer
from pytest_mlms.decide.advice.search import Finding
from pytest_mlms.decide.advice.trial import RISK as RISK_OF_RANKING
from pytest_mlms.decide.advice.trial import Trial
from pytest_mlms.show.report.table import Fitted, GiveWay, fit_table

_WIDEST = 10.0  # half of an interval that says something, as a share
_ORDER = ("best", "alike", "open", "near", "worse", "breaks", "set aside", "failed", "unmeasured")
_WORDS = {
    "near": "near a limit",
    "open": "undecided",
    "breaks": "over a limit",
    "unmeasured": "not measured",
}


def table_of(candidates: Sequence[Candidate], answer: Answer, width: int) -> Iterator[str]:
    """Yield the lines of a table of candidates, the best first; * marks the Pareto front."""
    findings = answer.findings
    names = answer.quantities
    front = pareto_front(findings, names)
    several = len({each.case.loaded.path for each in candidates}) > 1
    rows = []
    for number in sorted(findings, key=lambda each: _rank(findings[each], answer)):
        finding = findings[number]
        words = candidates[number].words(several)
        standing = _WORDS.get(finding.standing, finding.standing)
        cells = [_range_text(finding, name) for name in names]
        mark = "*" if number in front else ""
        rows.append([mark, words, standing, *cells, _ratio_text(finding), str(finding.processes)])
    header = ["", "candidate", "", *names, "best / it", "processes"]
    table = fit_table(header, rows, width, 3, GiveWay(spare=("processes",)))
    yield from _lines_of(table, width)
    if front:
        yield "* no other is better in one of these quantities without being worse in another"


def _lines_of(table: Fitted, width: int) -> Iterator[str]:
    yield from (*table.prefixes, table.header)
    for index, row in enumerate(table.rows):
        yield row
        if table.below:
            yield f"  {table.below[index]}"
    if table.dropped:
        yield f"no room in {width} columns for {', '.join(table.dropped)}"


def _rank(finding: Finding, answer: Answer) -> tuple[int, float]:
    found = finding.ranges.get(answer.goal.objective)
    return _ORDER.index(finding.standing), answer.goal.sign * found.mean if found else math.inf


def pareto_front(findings: Mapping[int, Finding], names: Sequence[str]) -> set[int]:
    """Return the candidates that none equals or beats in all means; none of a single quantity."""
    points = {}
    for number, finding in findings.items():
        if all(name in finding.ranges for name in names):
            points[number] = [
                objective_named(name).sign * finding.ranges[name].mean for name in names
            ]
    front = set()
    for number, own in points.items():
        if not any(_beats(other, own) for other in points.values()):
            front.add(number)
    return front if len(names) > 1 else set()


def _beats(other: Sequence[float], own: Sequence[float]) -> bool:
    return other != own and all(a <= b for a, b in zip(other, own, strict=True))


def _range_text(finding: Finding, name: str) -> str:
    found = finding.ranges.get(name)
    if found is None:
        return "-"
    value = format_quantity(found.mean, objective_named(name).unit)
    half = max(found.high - found.mean, found.mean - found.low)
    share = half / found.mean if found.mean else math.inf
    return f"{value} ± {100 * share:.0f} %" if share < _WIDEST else value


def _ratio_text(finding: Finding) -> str:
    if finding.ratio is None or not math.isfinite(finding.ratio.high):
        return ""
    return f"{finding.ratio.low:.2f} to {finding.ratio.high:.2f}"


def verdict_of(candidates: Sequence[Candidate], answer: Answer) -> Iterator[str]:
    """Yield what is said of the best candidate, or why there is none."""
    labels = {number: candidates[number].label for number in answer.findings}
    for number, finding in answer.findings.items():
        if finding.reason:
            yield f"{labels[number]}: {finding.reason.splitlines()[0]}"
    if answer.best is None:
        yield _without_answer(answer)
        return
    alike = _called(labels, answer, "alike")
    best = labels[answer.best]
    share = f"{100 * answer.goal.tolerance:g} %"
    of_measured = " of those that were measured" if _called(labels, answer, "set aside") else ""
    undecided = _may_be_better(labels, answer)
    if answer.advice.ended == "history":
        of_measured = " by the history"
    doubt = _doubt(answer, undecided)
    if doubt:
        yield f"{best} is shown to fit, but not to be the best: {doubt}"
    elif alike:
        as_good = f"no other within the limits is better by over {share}"
        yield f"{best} is as good as any: {as_good}{of_measured}"
    elif len(answer.findings) == 1:
        yield f"{best} is the only candidate, and within the limits"
    else:
        yield f"{best} is the best within the limits{of_measured}"
    if alike:
        yield f"can't be told from it: {', '.join(alike)}"
    if undecided:
        yield f"may fit and be better: {', '.join(undecided)}"
    near = _called(labels, answer, "near")
    if near:
        yield f"not known to fit, within {share} of a limit: {', '.join(near)}"
    yield f"the risk that it breaks a limit, or that a better one was left out, is {100 * RISK:g} %"


def _doubt(answer: Answer, undecided: Sequence[str]) -> str:
    """Return why another candidate than the best may be better, "" where none may be."""
    if not answer.advice.is_sure:
        return _ended(answer)
    if answer.advice.ended == "history":
        return "the history doesn't know enough of others" if undecided else ""
    return "the inputs are too few, or the budget, to judge all answers" if undecided else ""


def _may_be_better(labels: Mapping[int, str], answer: Answer) -> list[str]:
    """Return what may fit and be better: where the search is sure, what it was not given."""
    found = []
    for number, finding in answer.findings.items():
        is_known = answer.advice.is_sure and finding.ratio is not None
        if finding.standing in ("open", "unmeasured") and not is_known:
            found.append(labels[number])
    return found


def _called(labels: Mapping[int, str], answer: Answer, *standings: str) -> list[str]:
    found = answer.findings
    return [labels[number] for number in found if found[number].standing in standings]


def _without_answer(answer: Answer) -> str:
    findings = answer.findings
    kinds = {finding.standing for finding in findings.values()}
    if "set aside" in kinds and kinds <= {"failed", "breaks", "set aside"}:
        return "nothing that was measured fits; measure what the history set aside: --no-history"
    if kinds == {"failed"}:
        return "all candidates failed"
    if kinds <= {"failed", "breaks"}:
        return "nothing fits: each candidate surely breaks a limit; loosen one, or try others"
    if kinds <= {"failed", "breaks", "near"}:
        share = f"{100 * answer.goal.tolerance:g} %"
        return (
            f"nothing is surely within the limits: what may be is within {share} of one; "
            "loosen it by so much"
        )
    is_unknown = any(each.reason and each.standing == "unmeasured" for each in findings.values())
    if answer.advice.ended == "history" or is_unknown:
        return "the history shows nothing to be within the limits; run pytest on these hosts"
    reason = {"budget": "the budget is too small", "interrupted": "interrupted"}
    text = reason.get(answer.advice.ended, "the noise is too large, or the inputs are too few")
    return f"nothing is shown to be within the limits: {text}; raise --budget"


def _ended(answer: Answer) -> str:
    if answer.advice.ended == "interrupted":
        return "interrupted; it is judged by what there is"
    if answer.advice.ended == "budget":
        return "the budget is spent; raise --budget"
    if answer.advice.ended == "history":
        return "the runs in the history don't tell; run pytest there more often"
    return f"{answer.advice.rounds} processes of each don't tell; quieten the machine"


def ranking_of(trial: Trial, width: int) -> Iterator[str]:
    """Yield the lines of a table of models that answered for the same inputs, the best first."""
    if not trial.ranks:
        return
    unit = QUANTITIES[trial.quantity].unit
    several = len({each.case.loaded.path for each in trial.candidates}) > 1
    rows = []
    for each in trial.ranks:
        found, behind = each.estimate, each.behind
        value, *ends = (format_quantity(end, unit) for end in (found.value, found.low, found.high))
        by = "" if behind is None else " to ".join(_signed(end, unit) for end in behind)
        words = trial.candidates[each.number].words(several)
        rows.append([words, each.standing, value, " to ".join(ends), by])
    header = ["model", "", trial.quantity, "95 %", "worse than the first by"]
    yield from _lines_of(fit_table(header, rows, width, 2, GiveWay(spare=("95 %",))), width)
    yield ""


def _signed(value: float, unit: str) -> str:
    return f"{'-' if value < 0 else ''}{format_quantity(abs(value), unit)}"


def best_of(trial: Trial) -> Iterator[str]:
    """Yield what is said of the models that were tried on data, or why there is none."""
    for label, reason in trial.refused.items():
        yield f"refused: {label}: {reason.splitlines()[0]}"
    leaders = [each.label for each in trial.leaders]
    unknown = [each.number for each in trial.ranks if each.standing == "unknown"]
    if unknown:
        labels = ", ".join(trial.candidates[number].label for number in unknown)
        yield f"these inputs don't tell {trial.quantity} of {labels}"
    if not leaders:
        yield "no model answers for this data"
    elif len(trial.candidates) == 1:
        yield f"{leaders[0]} is the only model that answers for this data"
    elif len(leaders) == 1 and not unknown:
        of_able = " of those that answer" if trial.refused else ""
        yield f"{leaders[0]} is the best{of_able}: each other one is surely worse"
    else:
        count = "1 input doesn't" if trial.inputs == 1 else f"{trial.inputs:,} inputs don't"
        yield f"{count} tell these apart; more may: {', '.join(leaders)}"
    if len(trial.ranks) > 1:
        risk = f"{100 * RISK_OF_RANKING:g} %"
        yield f"the risk that one of equally good models is called the best is {risk}"
