"""The highest rate of queries at which a latency limit is met: a search over runs of load.

The search first brackets the rate by factors of 2 and bisects the bracket, in one process. Three
fresh processes then show the ends of the answer: the lower one good, the upper one bad.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pytest_mlms.measure.load.evidence import Outcome
from pytest_mlms.measure.load.peak_ends import PeakEnds
from pytest_mlms.measure.load.peak_records import (
    PROCESSES,
    OpenProcess,
    Peak,
    PeakPlan,
    Probe,
    RateSummary,
)
from pytest_mlms.measure.load.peak_search import PeakSearch
from pytest_mlms.measure.load.rate_evidence import COARSER, RateEvidence

_ROUNDING = 1e-3  # of rates with four digits


def find_peak(
    plan: PeakPlan, open_process: OpenProcess, keep: Callable[[Probe], None] = lambda probe: None
) -> Peak:
    """Search the highest rate that meets the limit.

    ``keep`` gets each run of load as soon as it is measured, so that nothing is lost where the
    search is interrupted. Errors of a process are raised as they are.
    """
    if plan.criterion.limit <= plan.fastest:
        reason = (
            f"the limit of {plan.criterion.limit * 1e3:.4g} ms is below the fastest call "
            f"({plan.fastest * 1e3:.4g} ms); no rate can meet it: raise the limit"
        )
        return Peak(0.0, math.inf, False, (), (), 0.0, reason)
    record = RateEvidence(plan, keep)
    with open_process() as drive:
        low, high = PeakSearch(plan, record, drive).run()
    if low and not math.isinf(high):
        PeakEnds(plan, record, open_process, low, high).show()
    return _answer(plan, record)


def _answer(plan: PeakPlan, record: RateEvidence) -> Peak:
    """Return the answer by the precision asked for; by a coarser one where that has no answer."""
    answers = []
    for factor in COARSER:
        precision = factor * plan.criterion.precision
        record.criterion = plan.criterion._replace(precision=precision)
        answer = _answer_by(plan, record)
        if answer.good and not math.isinf(answer.bad):
            return answer
        answers.append(answer)
    return answers[0]


def _answer_by(plan: PeakPlan, record: RateEvidence) -> Peak:
    summaries = tuple(record.summary(rate) for rate in record.rates)
    low = max(_best(summaries, Outcome.GOOD), default=0.0)
    above = [summary for summary in summaries if summary.rate > low]
    high = min(_best(above, Outcome.BAD), default=math.inf)
    by_rate = {summary.rate: summary for summary in summaries}
    ends = [by_rate[rate] for rate in (low, high) if rate in by_rate]
    bad = _rates_with(summaries, Outcome.BAD)
    return Peak(
        good=low,
        bad=high,
        confirmed=len(ends) == 2 and all(end.processes >= PROCESSES for end in ends),
        rates=summaries,
        exceptions=tuple(rate for rate in bad if rate * (1 + plan.criterion.precision) < low),
        seconds=record.seconds,
        reason=_reason(plan, summaries, low, high),
    )


def _best(summaries: Sequence[RateSummary], outcome: Outcome) -> list[float]:
    """Return the rates with an outcome: those that fresh processes showed, if there are any."""
    shown = [summary for summary in summaries if summary.processes >= PROCESSES]
    return _rates_with(shown, outcome) or _rates_with(summaries, outcome)


def _reason(plan: PeakPlan, summaries: Sequence[RateSummary], low: float, high: float) -> str:
    """Say why the answer is wider than asked for; "" where it is not."""
    if low and high / low <= (1 + plan.criterion.precision) ** 2 * (1 + _ROUNDING):
        return ""
    late = _rates_with(summaries, Outcome.UNTRUSTED)
    if late:
        return (
            f"the load generator was late at {min(late):g} /s, so that nothing follows from "
            f"that load; give it a core of its own, or a longer limit"
        )
    if not low:
        return f"no rate from {summaries[0].rate:g} /s up was shown to meet the limit"
    if math.isinf(high):
        return f"no rate up to {summaries[-1].rate:g} /s was shown to break the limit"
    return (
        f"{plan.budget:g} s of load show the peak to {100 * (math.sqrt(high / low) - 1):.2g} % "
        f"only; allow more with --mlms-budget, or ask for less precision"
    )


def _rates_with(summaries: Sequence[RateSummary], outcome: Outcome) -> list[float]:
    return [summary.rate for summary in summaries if summary.outcome is outcome]
