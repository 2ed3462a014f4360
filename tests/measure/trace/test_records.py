"""Records of the runs of a trace, and of its case."""

from __future__ import annotations

from pytest_mlms.core.serialization import from_plain, to_plain
from pytest_mlms.measure.trace.records import (
    LayerWork,
    Peaks,
    ProbeStatus,
    TraceMetadata,
    TraceRun,
    merge_statuses,
)


def test_facts_that_only_some_runs_have_are_left_out_of_json() -> None:
    plain = to_plain(TraceRun("layer"))
    assert "void" not in plain
    assert "process" not in plain
    assert plain["plain_us"] is None
    void = to_plain(TraceRun("layer", process=7, void="the run failed"))
    assert void["process"] == 7
    assert void["void"] == "the run failed"


def test_a_status_without_stepwise_has_no_such_key() -> None:
    assert "stepwise" not in to_plain(ProbeStatus("perf", True))
    assert to_plain(ProbeStatus("layers", True, stepwise=False))["stepwise"] is False


def test_a_run_is_read_back_from_json() -> None:
    run = TraceRun("layer", probes=(ProbeStatus("layers", True, stepwise=True),))
    assert from_plain(TraceRun, to_plain(run)) == run


def test_merged_statuses_are_the_latest_with_the_fault_of_any() -> None:
    earlier = [ProbeStatus("perf", True, fault="lost a reading"), ProbeStatus("io", True)]
    latest = [ProbeStatus("perf", True), ProbeStatus("io", True, fault="closed")]
    perf, io = merge_statuses(earlier, latest)
    assert perf.fault == "lost a reading"
    assert io.fault == "closed"


def test_facts_that_are_not_known_are_left_out_of_json() -> None:
    plain = to_plain(TraceMetadata("net"))
    assert "peaks" not in plain
    assert "peaks_unavailable" not in plain
    assert "structure_unavailable" not in plain


def test_metadata_is_read_back_from_json() -> None:
    metadata = TraceMetadata(
        manifest="net",
        static=(LayerWork("conv", "Conv", None, 8),),
        levels=("layer", "kernel"),
        peaks=Peaks(1e9, 2e9, "by hand"),
        structure_unavailable="no structure",
    )
    assert from_plain(TraceMetadata, to_plain(metadata)) == metadata
