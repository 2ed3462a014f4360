"""Runs of MLPerf's own LoadGen: the settings of a scenario, and what its summary says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.load.early_stopping import queries_needed

_NANO = 1_000_000_000
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
