"""Runs of MLPerf's own LoadGen, read from its logs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_CHILD = Path(__file__).with_name("loadgen_child.py")
_SECONDS = 120
_SCHEDULED = re.compile(r'"Latency",.*?"ts":([-\d.]+)')
_COUNTED = r'"%s",.*?"ts":([-\d.]+).*?"issue_delay":(\d+),"issue_to_done":(\d+)'
_COMPLETED = re.compile(r'"sample_seq":(\d+),"query_seq":(\d+),.*?"complete_ns":(\d+)')


class LoadGenRequest(NamedTuple):
    """A run of LoadGen: settings by their names in ``TestSettings``.

    ``tokens`` are the numbers of tokens of answers, by their samples in turn.
    """

    scenario: str
    settings: Mapping[str, Any]
    loaded: int = 100
    total: int = 100
    tokens: Sequence[int] = ()


class LoadGenRun(NamedTuple):
    """The logs of a run; times are in nanoseconds."""

    folder: Path

    @property
    def samples(self) -> NDArray[np.int64]:
        """The samples of its queries, in the order in which they were issued."""
        return np.array(json.loads((self.folder / "samples.json").read_text()), np.int64)

    @property
    def scheduled(self) -> NDArray[np.int64]:
        """The scheduled times of Server's queries, from the first one."""
        written = _SCHEDULED.findall(self._trace)
        microseconds = [float(text) for text in written]
        times = np.sort(np.round(np.array(microseconds) * 1000).astype(np.int64))
        return np.asarray(times - times[0])

    @property
    def latencies(self) -> NDArray[np.int64]:
        """The latency of each sample, in no order."""
        return np.array([int(found[2]) for found in _COMPLETED.findall(self._trace)], np.int64)

    @property
    def first_tokens(self) -> NDArray[np.int64]:
        """The times to the first token of Server's queries, in the order of their schedule."""
        return self._counted("Token_Latency")

    @property
    def whole_answers(self) -> NDArray[np.int64]:
        """The latencies of Server's queries, in the order of their schedule."""
        return self._counted("Latency")

    def _counted(self, name: str) -> NDArray[np.int64]:
        found = re.findall(_COUNTED % name, self._trace)
        ordered = sorted((float(at), int(delay) + int(rest)) for at, delay, rest in found)
        return np.array([latency for _, latency in ordered], np.int64)

    @property
    def query_latencies(self) -> NDArray[np.int64]:
        """The latency of each query, which is that of its slowest sample."""
        slowest: dict[str, int] = {}
        for _, query, latency in _COMPLETED.findall(self._trace):
            slowest[query] = max(slowest.get(query, 0), int(latency))
        return np.array(list(slowest.values()), np.int64)

    @property
    def log(self) -> dict[str, Any]:
        """The values of its detailed log by key."""
        values = {}
        for line in (self.folder / "mlperf_log_detail.txt").read_text().splitlines():
            entry = json.loads(line.partition(":::MLLOG ")[2])
            values[entry["key"]] = entry["value"]
        return values

    @property
    def _trace(self) -> str:
        return (self.folder / "mlperf_log_trace.json").read_text()


def run_loadgen(folder: Path, requests: Sequence[LoadGenRequest]) -> list[LoadGenRun]:
    """Run LoadGen in one process, in a folder for each request."""
    written = []
    runs = []
    for number, request in enumerate(requests):
        own = folder / str(number)
        own.mkdir()
        written.append({**request._asdict(), "folder": str(own)})
        runs.append(LoadGenRun(own))
    file = folder / "requests.json"
    file.write_text(json.dumps(written))
    command = [sys.executable, str(_CHILD), str(file)]
    subprocess.run(command, check=True, timeout=_SECONDS, stdout=subprocess.DEVNULL)
    return runs
