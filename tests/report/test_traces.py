"""What the terminal says of traces."""

from __future__ import annotations

from typing import Any

from pytest_mlms.report.table import format_table
from pytest_mlms.report.traces import added_columns, note_lines, where_columns

RUNS = ("layer", "library", "kernel", "hardware", "layer+hardware")


def run(level: str, **facts: Any) -> dict[str, Any]:
    return {"level": level, "plain_us": 1234.5, "overhead": 2.57, "probes": [], **facts}


def word(probe: str, **facts: Any) -> dict[str, Any]:
    return {"probe": probe, "available": True, "reason": "", "missing": {}, "fault": "", **facts}


def result(*runs: dict[str, Any], **facts: Any) -> dict[str, Any]:
    slowest = [
        {
            "name": "StatefulPartitionedCall/model_1/conv2d_12/Conv2D",
            "type": "Conv2D",
            "us": 1.0,
            "share": 0.34,
        }
    ]
    trace: dict[str, Any] = {
        "ambiguous": 0,
        "layers": 1,
        "levels": ["layer", "hardware"],
        "runs": [run("model"), *runs],
        "slowest": slowest,
        "coverage": 0.98,
    }
    return {"framework": "any", "trace": {**trace, "unseen": {}, "faults": {}, **facts}}


def test_every_run_has_its_overhead_in_a_column_and_those_without_any_have_none() -> None:
    seen = result(*map(run, RUNS[1:]), run("layer", overhead=None, void="no probe could watch"))
    columns = added_columns([seen])
    assert [cell(seen).split() for cell in columns.values()] == [["+257", "%"]] * 4
    assert list(columns) == ["+library", "+kernel", "+hardware", "+layer +hardware"]
    other = result(run("layer"))
    assert list(added_columns([seen, other])) == ["+layer", *columns]
    assert [cell(other) for cell in added_columns([seen, other]).values()][1:] == ["-"] * 4


def test_both_tables_fit_80_columns_with_every_level() -> None:
    traced = result(*map(run, RUNS))
    for columns in (where_columns(), added_columns([traced])):
        names = ["INCONCLUSIVE", "an-image-classifier", "onnxruntime-1.31.1-cuda:0-b256"]
        rows = [[*names, *(cell(traced) for cell in columns.values())]]
        lines = format_table(["verdict", "model", "case", *columns], rows, 80, left=3)
        assert max(len(line) for folded in lines for line in folded) <= 80


def test_what_was_cut_short_is_told() -> None:
    assert note_lines([result(faults={"layer": "killed"}), result(faults={"layer": "killed"})]) == [
        "cut short at level layer in 2 items: killed"
    ]


def test_counters_that_could_not_be_read_are_named_once() -> None:
    absent = ("cycles", "instructions", "cache-misses", "branches", "branch-misses")
    missing = {**dict.fromkeys(absent, "no such counter"), "energy": "denied"}
    unavailable = word(
        "rapl", available=False, reason="no sensors", missing={"package": "no sensors"}
    )
    runs = [run("hardware", probes=[word("perf", missing=missing), unavailable]) for _ in range(2)]
    assert note_lines([result(*runs), result()]) == [
        "without cycles, instructions, cache-misses and 2 others in 1 item: no such counter",
        "without energy in 1 item: denied",
    ]


def test_layers_that_run_in_one_call_are_told_to_have_no_counters() -> None:
    layers = word("layers", stepwise=False)
    assert note_lines([result(run("layer", probes=[layers]))]) == [
        "no counters by layer in 1 item: any runs all layers in one call"
    ]
    assert not note_lines([result(run("layer", probes=[{**layers, "stepwise": True}]))])
    assert not note_lines([result(run("layer", probes=[layers]), levels=["layer"])])


def test_counters_by_layer_that_nothing_could_read_are_told() -> None:
    layers, perf = (
        word("layers", stepwise=True),
        word("perf", available=False, reason="no perf_event_open"),
    )
    runs = [
        run("layer", probes=[layers]),
        run("layer+hardware", void="no probe could watch", probes=[layers, perf]),
    ]
    assert note_lines([result(*runs)]) == ["no counters by layer in 1 item: no perf_event_open"]
