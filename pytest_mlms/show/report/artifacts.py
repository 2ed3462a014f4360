"""The artifacts of an item: everything that was measured, before anything was computed from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_mlms.core.files import DamagedFile, read_arrays, write_arrays
from pytest_mlms.core.recorded import recorded_artifacts
from pytest_mlms.keep.results.recorder import Recorder
from pytest_mlms.measure.agent.predictor import ScenarioRun
from pytest_mlms.measure.evaluate.process_result import ProcessResult

if TYPE_CHECKING:
    from pytest_mlms.measure.load.rate_evidence import Peak, Probe


def keep_process(recorder: Recorder, index: int, result: ProcessResult) -> None:
    """Keep the raw times of one process (samples-N.npz).

    mlms_predictors._run.scenarios.Samples describes the arrays. Under load ``start`` is when a
    query was scheduled, and the counters are of all instances, read at the times ``read``.
    """
    keep_arrays(recorder, f"samples-{index}.npz", result.run.times)


def keep_part(recorder: Recorder, index: int, run: ScenarioRun) -> None:
    """Keep the raw times of a process whose load did not come to its end (part-N.npz)."""
    keep_arrays(recorder, f"part-{index}.npz", run.times)


def keep_run(recorder: Recorder, index: int, run: ScenarioRun) -> None:
    """Keep the raw times of a run of load of a search (load-N.npz)."""
    keep_arrays(recorder, f"load-{index}.npz", run.times)


def keep_log(recorder: Recorder, name: str, content: bytes) -> None:
    """Keep a log of LoadGen as it is."""

    def write(path: Path) -> None:
        path.write_bytes(content)

    recorder.keep(name, write)


def note_peak(recorder: Recorder, probes: Sequence[Probe], found: Peak | None) -> None:
    """Note the runs of load of a search so far, and its answer if there is one."""
    recorder.note(probes=tuple(probes), peak=found)


def keep_arrays(recorder: Recorder, name: str, arrays: Mapping[str, Any]) -> None:
    """Keep arrays by name in an .npz file."""
    recorder.keep(name, lambda path: write_arrays(path, arrays))


def load_latencies(folder: Path, line: Mapping[str, Any]) -> list[float]:
    """Return the seconds of every timed call of an item's processes, in order.

    Returns an empty list where a file is missing or damaged.
    """
    latencies: list[float] = []
    for name, recorded in recorded_artifacts(line).items():
        if not name.startswith("samples-"):
            continue
        path = recorded.file_below(folder)
        if path is None:
            return []
        try:
            times = read_arrays(path)
        except (OSError, DamagedFile):
            return []
        seconds = times["end"] - times["start"]
        latencies += seconds.tolist()
    return latencies
