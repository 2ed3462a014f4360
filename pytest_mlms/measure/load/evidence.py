"""Evidence for and against a rate: queries over a limit, where neighbours depend on each other.

LoadGen's early stopping takes queries to be independent. In a queue they are not: a burst makes
many neighbours late at once, and a search that stops as soon as it sees a result would stop at
lucky ones. So queries count here as fewer independent ones, by their design effect (Kish 1965,
Survey Sampling): the variance of the share over the limit between blocks of queries, over that of
independent queries.

The verdict on a load is LoadGen's.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from pytest_mlms.core.records import Verdict
from pytest_mlms.measure.load.loadgen import (
    bounds_of,
    fails,
    least_within,
    loadgen_percentile,
)

Flags = NDArray[np.bool_]
"""True for each query over the limit, in the order in which they were scheduled."""

_BLOCKS = 32
_LEAST_BLOCKS = 4
_BLOCK_LIMITS = 5  # times the limit that a block lasts at least; bursts are shorter
_VAGUENESS = 0.05  # quantile of the variance between blocks
_ASSUMED = 8.0  # times the design effect of a queue in heavy traffic, by simulation
_FIRST_LIMITS = 20  # times the limit that a first run lasts
_LEAST_FIRST = 50  # queries of it
_MULTIPLES = (2, 4, 8, 16, 32, 64, 128)


class Outcome(enum.Enum):
    """The outcome of the load at a rate.

    ``UNTRUSTED`` load was issued late by the generator, so that nothing follows for the model.
    """

    GOOD = "good"
    BAD = "bad"
    UNDECIDED = "undecided"
    UNTRUSTED = "untrusted"


class Criterion(NamedTuple):
    """A latency limit in seconds that the given share of queries must meet, such as 0.99.

    ``precision`` is the difference between rates that has to be seen, as a share.
    """

    limit: float
    share: float
    precision: float

    def assumed_effect(self, rate: float) -> float:
        """Return the design effect to assume at least: too few late queries hide a larger one.

        In heavy traffic the share of latencies above x falls by exp(-a x), with a = ln(1 / (1 - p))
        over the limit at the peak, and the excess of a queue of fixed service times lasts for
        2 / (a^2 D) (Kingman 1962, Journal of the Royal Statistical Society B 24:383). One server
        as fast as all of them has D = 1 / rate. The effect is a multiple of these many queries. It
        matters less where the share over the limit rises steeply with the rate, as it then shows
        at the next rate anyway.
        """
        arriving = rate * self.limit
        decay = math.log(1 / (1 - self.share))
        effect = _ASSUMED * (arriving / decay) ** 2
        steepness = 2 * self.precision * arriving
        return max(1.0, effect / (1 + steepness**2))

    def first_queries(self, rate: float) -> int:
        """Return the queries that show a rate to be bad by far."""
        return max(_LEAST_FIRST, math.ceil(_FIRST_LIMITS * rate * self.limit))

    def least_queries(self, rate: float) -> int:
        """Return the queries that show a rate to be good if none of them is over the limit."""
        return math.ceil(least_within(0, self.share) * self.assumed_effect(rate))


def design_effect(flags: Flags, rate: float, limit: float) -> float:
    """Return how many queries of a run count as an independent one: 1 where none is late, or all.

    ``rate`` is in queries a second, ``limit`` in seconds.
    """
    if flags.all() or not flags.any():
        return 1.0
    return max(1.0, _measure_effect(flags, rate, limit).effect)


def judge_rate(runs: Sequence[Flags], rate: float, criterion: Criterion) -> Outcome:
    """Return what the runs at a rate say together, by LoadGen's rules at its confidence of 99 %."""
    if not sum(map(len, runs)):
        return Outcome.UNDECIDED
    if any(_is_overrun(run, rate, criterion) for run in runs):
        return Outcome.BAD
    return _decide(np.concatenate(runs), rate, criterion, multiple=1)


def multiple_to_decide(runs: Sequence[Flags], rate: float, criterion: Criterion) -> int | None:
    """Return how many times as many queries would decide a rate, if the share over the limit stays.

    None where 128 times as many would not.
    """
    flags = np.concatenate(runs)
    for multiple in _MULTIPLES:
        if _decide(flags, rate, criterion, multiple) is not Outcome.UNDECIDED:
            return multiple
    return None


def _is_overrun(run: Flags, rate: float, criterion: Criterion) -> bool:
    """Return whether the whole second half of a run is over the limit."""
    half = run[len(run) // 2 :]
    return len(run) >= criterion.first_queries(rate) and bool(half.all())


def _decide(flags: Flags, rate: float, criterion: Criterion, multiple: int) -> Outcome:
    """Decide as if there were ``multiple`` times as many queries of the same kind."""
    effect = _design_effect(flags, rate, criterion)
    queries = multiple * len(flags) / effect
    over = multiple * int(np.count_nonzero(flags)) / effect
    most_over = math.ceil(over)
    if least_within(most_over, criterion.share) + most_over <= int(queries):
        return Outcome.GOOD
    if fails(math.ceil(queries), int(over), criterion.share):
        return Outcome.BAD
    return Outcome.UNDECIDED


def _design_effect(flags: NDArray[Any], rate: float, criterion: Criterion) -> float:
    """Return how many queries count as one: an upper bound, as a variance of few blocks is vague.

    The measured effect over the 5 % quantile of chi-squared for its degrees of freedom.
    """
    least = criterion.assumed_effect(rate)
    if flags.all() or not flags.any():
        return least
    measured = _measure_effect(flags, rate, criterion.limit)
    freedom = measured.blocks - 1
    vague = freedom / float(scipy.special.chdtri(freedom, 1 - _VAGUENESS)) if freedom else 1.0
    return max(least, vague * measured.effect)


class _MeasuredEffect(NamedTuple):
    """A design effect, and the blocks whose variance it is from."""

    effect: float
    blocks: int


def _measure_effect(flags: NDArray[Any], rate: float, limit: float) -> _MeasuredEffect:
    """Return the variance of the share of flags between blocks, over that of independent flags.

    A run that is too short for blocks counts as one query, from one block.
    """
    size = math.ceil(max(len(flags) / _BLOCKS, _BLOCK_LIMITS * rate * limit, 2))
    count = len(flags) // size
    if count < _LEAST_BLOCKS:
        return _MeasuredEffect(float(len(flags)), 1)
    share = float(flags.mean())
    blocks = flags[: size * count].reshape(count, size).mean(axis=1)
    independent = share * (1 - share) / size
    return _MeasuredEffect(float(blocks.var(ddof=1)) / independent, count)


LATE_SHARE = 0.05
"""Share of the limit that the p99 of the delay of issuing may take."""

_LATE_PERCENTILE = 0.99
_SECOND = 1_000_000_000  # nanoseconds
_CLEAR = 2  # times the percentile and more: a limit that far away is met
_OUTCOMES = {Verdict.PASSED: Outcome.GOOD, Verdict.FAILED: Outcome.BAD}


class RunVerdict(NamedTuple):
    """The verdict on a run, and what it rests on; times are in nanoseconds.

    Attributes:
        verdict: PASSED, FAILED, INVALID, or INCONCLUSIVE where more queries may decide.
        queries: The queries of the run.
        over: Those with a latency over the limit.
        missing: Queries that would make it PASSED if all were within the limit; 0 for PASSED.
        percentile: LoadGen's percentile of the latencies.
        issue_delay: The p99 of the delay between a query's scheduled time and its issue.
        independent: As many independent queries as these count as, where that leaves the verdict
            open; 0 otherwise.
    """

    verdict: Verdict
    queries: int
    over: int
    missing: int
    percentile: int
    issue_delay: int
    independent: int = 0


def judge_run(
    latencies: NDArray[np.int64], issue_delays: NDArray[np.int64], limit: int, share: float
) -> RunVerdict:
    """Judge a run of queries whose percentile ``share`` must be within ``limit`` nanoseconds.

    PASSED and FAILED are each shown at LoadGen's confidence. INVALID where the percentile is above
    the limit and the queries were issued so late that the load generator, and not the model, may
    have caused that. Latencies count from the schedule: a delay only makes them longer, and what is
    within the limit is so without it. A run without queries is INCONCLUSIVE.
    """
    queries = len(latencies)
    over = int(np.count_nonzero(latencies > limit))
    missing = max(0, least_within(over, share) + over - queries)
    if queries == 0:
        return RunVerdict(Verdict.INCONCLUSIVE, 0, 0, missing, 0, 0)
    percentile = loadgen_percentile(np.sort(latencies), share)
    delay = loadgen_percentile(np.sort(issue_delays), _LATE_PERCENTILE)
    verdict = Verdict.INCONCLUSIVE
    if missing == 0 and percentile <= limit:
        verdict = Verdict.PASSED
    elif delay > LATE_SHARE * limit and percentile > limit:
        verdict = Verdict.INVALID
    elif fails(queries, over, share):
        verdict = Verdict.FAILED
    return RunVerdict(verdict, queries, over, missing, percentile, delay)


def is_settled(
    verdict: RunVerdict, latencies: NDArray[np.int64], rate: float, criterion: Criterion
) -> bool:
    """Return whether a longer run of a server would say the same.

    LoadGen's rule takes queries to be independent. So a run that it decides isn't settled where
    these queries, counted as fewer independent ones, leave the limit open and close.
    """
    outcome = _OUTCOMES.get(verdict.verdict)
    if outcome is None:
        return verdict.verdict is Verdict.INVALID
    limit = criterion.limit * _SECOND
    if bounds_of(latencies, criterion.share).high * _CLEAR <= limit:
        return True
    return judge_rate([latencies > limit], rate, criterion) is outcome


def hold_back(
    verdict: RunVerdict, latencies: NDArray[np.int64], rate: float, criterion: Criterion
) -> RunVerdict:
    """Return the verdict on the last run of a server that is not settled.

    It is INCONCLUSIVE unless it also holds for as many independent queries as these count as, by
    their design effect.
    """
    over = latencies > criterion.limit * _SECOND
    effect = design_effect(over, rate, criterion.limit)
    queries = verdict.queries / effect
    late = verdict.over / effect
    if verdict.verdict is Verdict.PASSED:
        most_late = math.ceil(late)
        holds = least_within(most_late, criterion.share) + most_late <= queries
    else:
        holds = fails(math.ceil(queries), int(late), criterion.share)
    if holds:
        return verdict
    return verdict._replace(verdict=Verdict.INCONCLUSIVE, independent=max(1, int(queries)))
