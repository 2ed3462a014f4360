"""Trace tables of the terminal."""

from __future__ import annotations

from typing import Any

from pytest_mlms.core.serialization import to_plain
from pytest_mlms.measure.trace.records import (
    DeviceTime,
    ProbeStatus,
    SlowLayer,
    TraceRun,
    TraceSummary,
)
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.report.table import format_table
from pytest_mlms.show.report.traces import note_lines, overhead_columns, time_columns
from tests.support.views import view_of

RUNS = ("layer", "library", "kernel", "hardware", "layer+hardware")
LONG_NAME = "StatefulPartitionedCall/model_1/conv2d_12/Conv2D"


def traced(level: str, **facts: Any) -> TraceRun:
    """A run whose probes make a call of 1.23 ms 257 % longer."""
    values = {"plain_us": 1234.5, "overhead": 2.57, **facts}
    return TraceRun(level, **values)


def result(*runs: TraceRun, **facts: Any) -> ItemView:
    """An item of the framework ``any``, with facts of its summary."""
    values: dict[str, Any] = {
        "levels": ("layer", "hardware"),
        "runs": (traced("model"), *runs),
        "coverage": 0.93,
        "layers_us": 28_300.0,
        "call_us": 30_430.0,
        "layers": 1,
        "slowest": (SlowLayer(LONG_NAME, "Conv2D", 420.0, 0.34),),
        "ambiguous": 0,
        "unseen": {},
        "faults": {},
        **facts,
    }
    return view_of({"framework": "any", "trace": to_plain(TraceSummary(**values))})


def layers_profiler(**facts: Any) -> ProbeStatus:
    return ProbeStatus("layers", True, **facts)


def test_each_level_with_an_overhead_has_a_column() -> None:
    void = traced("layer", overhead=None, void="no probe was available")
    seen = result(*map(traced, RUNS[1:]), void)
    columns = overhead_columns([seen])
    assert list(columns) == ["+library", "+kernel", "+hardware", "+layer +hardware"]
    assert [cell(seen).split() for cell in columns.values()] == [["+257", "%"]] * 4


def test_an_item_without_a_level_has_an_empty_cell() -> None:
    layers = result(traced("layer"))
    kernels = result(traced("kernel"))
    columns = overhead_columns([layers, kernels])
    assert [cell(layers).split() for cell in columns.values()] == [["+257", "%"], ["-"]]


def cells_of(seen: ItemView) -> dict[str, str]:
    """Return the cells of the table of what was found, by column."""
    cells = {}
    for title, cell in time_columns([seen]).items():
        cells[title] = cell(seen).replace("\u00a0", " ")
    return cells


def test_the_slowest_layer_has_the_end_of_its_name() -> None:
    assert cells_of(result())["slowest layer"] == "…odel_1/conv2d_12/Conv2D 34%"


def test_the_layers_the_call_and_the_untraced_call_are_of_one_run() -> None:
    model = traced("model", plain_us=48_700.0)
    layers = traced("layer", plain_us=27_600.0)
    cells = cells_of(result(runs=(model, layers)))
    assert cells["untraced"] == "27.6 ms"
    assert cells["in layers"] == "28.3 ms of 30.4 ms 93%"


def test_the_untraced_call_is_of_the_run_of_the_model_without_one_of_layers() -> None:
    model = traced("model", plain_us=48_700.0)
    void = traced("layer", plain_us=27_600.0, void="no probe was available")
    assert cells_of(result(runs=(model, void)))["untraced"] == "48.7 ms"
    assert cells_of(result(runs=(model,)))["untraced"] == "48.7 ms"


def test_the_results_of_an_earlier_version_have_the_share_alone() -> None:
    assert cells_of(result(layers_us=None, call_us=None))["in layers"] == "93%"


def test_a_call_whose_launches_were_waited_for_is_no_untraced_one() -> None:
    model = traced("model", plain_us=48_700.0)
    layers = traced("layer", plain_us=96_000.0, serialised=True)
    assert cells_of(result(runs=(model, layers)))["untraced"] == "48.7 ms"


def test_a_gpu_has_the_time_in_which_it_works_and_its_share() -> None:
    gpu = DeviceTime(12_175.0, 9_000.0, 2_000.0, 1_175.0, 40)
    seen = result(runs=(traced("model", plain_us=48_700.0),), gpu=gpu)
    assert cells_of(seen)["GPU busy"] == "12.2 ms 25%"
    assert "GPU busy" not in cells_of(result())


def test_a_trace_without_layers_has_empty_cells() -> None:
    nothing: dict[str, Any] = {"coverage": None, "layers_us": None, "call_us": None}
    unseen = result(slowest=(), runs=(TraceRun("model"),), **nothing)
    assert set(cells_of(unseen).values()) == {"-"}


def test_both_tables_fit_80_columns_with_every_level() -> None:
    gpu = DeviceTime(12_175.0, 9_000.0, 2_000.0, 1_175.0, 40)
    all_levels = result(*map(traced, RUNS), gpu=gpu)
    for columns in (time_columns([all_levels]), overhead_columns([all_levels])):
        names = ["INCONCLUSIVE", "an-image-classifier", "onnxruntime-1.31.1-cuda:0-b256"]
        cells = [cell(all_levels) for cell in columns.values()]
        header = ["verdict", "model", "case", *columns]
        for lines in format_table(header, [[*names, *cells]], 80, left=3):
            assert max(map(len, lines)) <= 80


def test_the_same_note_of_several_items_is_one_line() -> None:
    cut_short = result(faults={"layer": "killed"})
    unseen = result(unseen={"kernel": "the device is cpu"})
    assert note_lines([cut_short, unseen, cut_short]) == [
        "cut short at level layer in 2 items: killed",
        "nothing to see at level kernel in 1 item: the device is cpu",
    ]


def test_missing_counters_are_named_once_for_each_reason() -> None:
    absent = ("cycles", "instructions", "cache-misses", "branches", "branch-misses")
    missing = {**dict.fromkeys(absent, "no such counter"), "energy": "denied"}
    perf = ProbeStatus("perf", True, missing=missing)
    run = traced("hardware", probes=(perf,))
    assert note_lines([result(run, run), result()]) == [
        "without cycles, instructions, cache-misses and 2 others in 1 item: no such counter",
        "without energy in 1 item: denied",
    ]


def test_four_missing_counters_are_all_named() -> None:
    missing = dict.fromkeys(("a", "b", "c", "d"), "denied")
    run = traced("hardware", probes=(ProbeStatus("perf", True, missing=missing),))
    assert note_lines([result(run)]) == ["without a, b, c, d in 1 item: denied"]


def test_counters_of_an_unavailable_probe_are_not_missing() -> None:
    rapl = ProbeStatus("rapl", False, "no sensors", missing={"package": "no sensors"})
    assert note_lines([result(traced("hardware", probes=(rapl,)))]) == []


def test_layers_that_run_in_one_call_have_no_counters() -> None:
    run = traced("layer", probes=(layers_profiler(stepwise=False),))
    assert note_lines([result(run)]) == [
        "no counters by layer in 1 item: any runs all layers in one call"
    ]
    assert note_lines([result(run, levels=("layer",))]) == []


def test_layers_that_run_one_by_one_need_no_note() -> None:
    run = traced("layer", probes=(layers_profiler(stepwise=True),))
    assert note_lines([result(run)]) == []


def test_counters_by_layer_that_could_not_be_read_have_a_reason() -> None:
    layers = layers_profiler(stepwise=True)
    perf = ProbeStatus("perf", False, "no perf_event_open")
    void = traced("layer+hardware", void="no probe was available", probes=(layers, perf))
    assert note_lines([result(traced("layer", probes=(layers,)), void)]) == [
        "no counters by layer in 1 item: no perf_event_open"
    ]
