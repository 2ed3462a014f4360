"""LoadGen of MLPerf: its early stopping, the settings of its scenarios, what its summary says."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.statistics import PercentilePair

LOADGEN_SHARES = (0.5, 0.9, 0.95, 0.97, 0.99, 0.999)
"""The percentiles in LoadGen's log, as shares."""


def loadgen_percentile(ordered: NDArray[np.int64], share: float) -> int:
    """Return LoadGen's percentile of values in ascending order: the one at floor(n p).

    results.cc of mlcommons/inference. It is one of the values, and the largest for small n.
    """
    return int(ordered[int(len(ordered) * share)])


def percentile_pair(ordered: NDArray[np.int64], share: float) -> PercentilePair:
    """Return a percentile of values in ascending order by both definitions.

    Ours interpolates linearly between the two nearest values (numpy's default, type 7 of Hyndman
    and Fan 1996, The American Statistician 50:361).
    """
    interpolated = float(np.quantile(ordered, share))
    return PercentilePair(loadgen_percentile(ordered, share), interpolated)


CONFIDENCE = 0.99

_ESTIMATED_OVER = 1  # queries over the limit that the estimates begin with


@lru_cache(maxsize=100_000)
def least_within(over: int, share: float) -> int:
    """Return h(t): the queries within a limit that ``over`` queries beyond it take.

    It is the least h for which h + t queries with t or fewer beyond the limit have a probability
    below 1 %, if a query is within it with the probability ``share``, such as 0.99 for p99. That
    is P[Bin(h + t, 1 - p) <= t] = I_p(h, t + 1), which falls with h.
    """
    low = 0
    high = max(1, math.ceil(over * share / (1 - share)))
    while not _is_rare(high, over, share):
        low = high
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if _is_rare(middle, over, share):
            high = middle
        else:
            low = middle
    return high


def _is_rare(within: int, over: int, share: float) -> bool:
    return float(scipy.special.betainc(within, over + 1, share)) < 1 - CONFIDENCE


def queries_needed(share: float) -> int:
    """Return the least number of queries for an estimate of a percentile: 662 for p99."""
    return least_within(_ESTIMATED_OVER, share) + _ESTIMATED_OVER


def most_over(queries: int, share: float) -> int:
    """Return the largest t with h(t) + t <= ``queries``; -1 where not even 0 is possible."""
    low = -1
    high = queries + 1
    while high - low > 1:
        middle = (low + high) // 2
        if least_within(middle, share) + middle <= queries:
            low = middle
        else:
            high = middle
    return low


def estimate(ordered: NDArray[np.int64], share: float) -> int | None:
    """Return LoadGen's estimate of a percentile, which SingleStream and MultiStream report.

    ``ordered`` are latencies in ascending order. The estimate is the one that t - 1 are above, for
    the t of ``most_over``; None where there are too few for it.
    """
    over = most_over(len(ordered), share)
    if over < _ESTIMATED_OVER:
        return None
    return int(ordered[len(ordered) - over])


def fails(queries: int, over: int, share: float) -> bool:
    """Return whether so many queries over the limit show that the percentile is over it.

    P[Bin(n, 1 - p) >= t] < 1 %: the rule's counterpart, which LoadGen doesn't have.
    """
    if over == 0:
        return False
    return float(scipy.special.bdtrc(over - 1, queries, 1 - share)) < 1 - CONFIDENCE


class Bounds(NamedTuple):
    """LoadGen's percentile with its bounds, in the unit of the values.

    A limit at or above ``high`` is met by LoadGen's rule, and one below ``low`` is shown to be
    broken. ``high`` is infinite where there are too few values to meet any limit.
    """

    low: float
    value: float
    high: float
    queries: int


def bounds_of(values: NDArray[np.int64], share: float) -> Bounds:
    """Return the bounds of a percentile of one value or more."""
    ordered = np.sort(values)
    count = len(ordered)
    allowed = most_over(count, share)
    high = math.inf if allowed < 0 else float(ordered[count - 1 - allowed])
    failing = _least_failing(count, share)
    low = 0.0 if failing > count else float(ordered[count - failing])
    return Bounds(low, float(loadgen_percentile(ordered, share)), high, count)


def _least_failing(count: int, share: float) -> int:
    """Return how many values over a limit show that it is broken; more than there are if none."""
    low = 0
    high = count + 1
    while high - low > 1:
        middle = (low + high) // 2
        if fails(count, middle, share):
            high = middle
        else:
            low = middle
    return high


def worst_of(bounds: list[Bounds]) -> Bounds:
    """Return the bounds for all of several processes: a limit is met where each one meets it."""
    return Bounds(
        low=max(each.low for each in bounds),
        value=max(each.value for each in bounds),
        high=max(each.high for each in bounds),
        queries=min(each.queries for each in bounds),
    )


_NANO = 1_000_000_000
_UNLIMITED = 10**18  # nanoseconds: 32 years
_VALID_MILLISECONDS = 600_000
_STREAM_QUERIES = queries_needed(0.99)  # 662, for LoadGen's estimate of p99
_VALID_QUERIES = {"Offline": 24_576, "MultiStream": _STREAM_QUERIES}
_LEAST_QUERIES = 100
_SEEDS = ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed")
_NAMES = {
    "single_stream": "SingleStream",
    "multi_stream": "MultiStream",
    "server": "Server",
    "offline": "Offline",
}
_LINE = re.compile(r"^\s*([^:=]+?)\s*[:=]\s*(.*?)\s*$")
_RESULT = "Result is"
_PARAMETERS = "Test Parameters Used"
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?")


class LoadGenSettings(NamedTuple):
    """The scenario of a run by LoadGen's name, and settings by their names in ``TestSettings``."""

    scenario: str
    settings: Mapping[str, Any]


def settings_of(
    scenario: str, seed: int, seconds: float, valid: bool, **own: Any
) -> LoadGenSettings:
    """Return the settings of a run of at least ``seconds``.

    ``valid`` asks for what mlperf.conf of mlcommons/inference takes for a valid result: 600 s, and
    at least 100 queries, 662 of MultiStream and 24,576 samples of Offline. Raises MlmsError for a
    scenario that LoadGen doesn't have.
    """
    name = _NAMES.get(scenario)
    if name is None:
        raise MlmsError(
            f"LoadGen has no scenario {scenario!r}; run it without --mlms-loadgen, or choose from "
            f"{', '.join(_NAMES)}"
        )
    settings: dict[str, Any] = dict.fromkeys(_SEEDS, seed)
    settings["min_duration_ms"] = round(seconds * 1000)
    settings["min_query_count"] = _STREAM_QUERIES if name == "MultiStream" else 1
    if valid:
        settings["min_duration_ms"] = max(_VALID_MILLISECONDS, settings["min_duration_ms"])
        settings["min_query_count"] = _VALID_QUERIES.get(name, _LEAST_QUERIES)
    return LoadGenSettings(name, {**settings, **own})


def server_settings(rate: float, limit: float, share: float) -> dict[str, Any]:
    """Return the settings of Server: queries a second, the limit in seconds, and its share.

    The queries are enough for early stopping where hardly any is over the limit.
    """
    return {
        "min_query_count": max(_LEAST_QUERIES, queries_needed(share)),
        "server_target_qps": rate,
        "server_target_latency_ns": round(limit * _NANO),
        "server_target_latency_percentile": share,
    }


def token_settings(ttft: float | None, tpot: float | None) -> dict[str, Any]:
    """Return the settings of Server that limit tokens, in seconds, in place of whole answers.

    LoadGen has a limit on both: one that isn't asked for is so long that it is met.
    """
    return {
        "use_token_latencies": True,
        "ttft_latency": _UNLIMITED if ttft is None else round(ttft * _NANO),
        "tpot_latency": _UNLIMITED if tpot is None else round(tpot * _NANO),
    }


@dataclass(frozen=True)
class LoadGenSummary:
    """The summary of a run.

    ``values`` are its figures by LoadGen's own names, such as "99.00 percentile latency (ns)".
    ``unmet`` are the conditions of a valid run that were not met.
    """

    valid: bool
    values: Mapping[str, float]
    unmet: Sequence[str]

    @property
    def text(self) -> str:
        """The result and what it lacks, in a line; the log has the figures."""
        result = "VALID" if self.valid else "INVALID"
        unmet = [f"not met: {name}" for name in self.unmet]
        return "; ".join([f"LoadGen: {result}", *unmet])


def read_summary(text: str) -> LoadGenSummary:
    """Read mlperf_log_summary.txt; raises MlmsError where it has no result.

    It has lines of "name : value", the result first, and the parameters of the test at the end.
    """
    values: dict[str, float] = {}
    unmet: list[str] = []
    result = ""
    for line in text.partition(_PARAMETERS)[0].splitlines():
        found = _LINE.match(line)
        if not found:
            continue
        name, value = found.groups()
        if name == _RESULT:
            result = value
        elif value == "NO":
            unmet.append(name)
        elif _NUMBER.fullmatch(value):
            values[name] = float(value)
    if result not in ("VALID", "INVALID"):
        raise MlmsError("LoadGen wrote no result; read the agent's log for what it says")
    return LoadGenSummary(result == "VALID", values, tuple(unmet))
