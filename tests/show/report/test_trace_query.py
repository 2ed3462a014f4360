"""Queries of the traces of a run."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.trace.analyses import ANALYSES
from pytest_mlms.measure.trace.analyses.analysis import AnalysisTable
from pytest_mlms.measure.trace.records import ProbeStatus, TraceMetadata
from pytest_mlms.measure.trace.summary import TraceContext
from pytest_mlms.show.report.trace_query import (
    contexts_of,
    find_analysis,
    layer_times,
    list_analyses,
    missing_levels,
    reasons,
    render,
    traces_of,
)
from tests.support.traced_models import counted_model, save_run, traced_model
from tests.support.traces import TraceWriter, with_run

TABLE = AnalysisTable(
    columns=("us", "layer", "optimal", "bytes", "share", "calls"),
    rows=((1.23456, "conv", True, 12345, 0.4483, 12345), (54321.0, "relu", False, None, 0.0, 1)),
)


def test_an_analysis_is_found_by_name_and_by_number() -> None:
    assert find_analysis("layer-roofline") is ANALYSES["layer-roofline"]
    assert find_analysis("a14") is ANALYSES["layer-roofline"]
    assert find_analysis("steps") is ANALYSES["steps"]


@pytest.mark.parametrize("wanted", ["A16", ""])
def test_an_unknown_analysis_is_an_error_that_names_all(wanted: str) -> None:
    message = rf"no analysis '{wanted}'; write one of model \(A1\).*, counters-by-layer"
    with pytest.raises(MlmsError, match=message):
        find_analysis(wanted)


def test_the_help_has_a_line_for_each_analysis() -> None:
    lines = list_analyses()
    assert len(lines) == len(ANALYSES)
    assert lines[0].split() == ["model", "A1", *ANALYSES["model"].description.split()]


def test_a_trace_is_named_by_its_run_or_by_its_file(tmp_path: Path) -> None:
    run = save_run(tmp_path, traced_model(1, 100), traced_model(2, 100))
    first, second = traces_of(run)
    assert traces_of(second) == [second]
    assert first.parent.name == "0"


def test_a_run_without_traces_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MlmsError, match="has no traces; name a trace.npz"):
        traces_of(tmp_path)
    with pytest.raises(MlmsError, match="there is no .*nowhere; name a trace.npz"):
        traces_of(tmp_path / "nowhere")


def test_traces_are_sorted_by_batch_size_and_chosen_by_text(tmp_path: Path) -> None:
    run = save_run(tmp_path, traced_model(10, 120), traced_model(2, 100))
    assert [context.metadata.batch_size for context in contexts_of(run)] == [2, 10]
    assert len(contexts_of(run, "b10")) == 1
    with pytest.raises(MlmsError, match="has no trace of 'resnet'"):
        contexts_of(run, "resnet")


def test_the_trace_of_an_item_comes_before_that_of_a_failure(tmp_path: Path) -> None:
    failed = traced_model(1, 100, kind="performance")
    run = save_run(tmp_path, failed, traced_model(1, 100))
    kinds = [context.metadata.kind for context in contexts_of(run)]
    assert kinds == ["trace", "performance"]


def test_json_has_an_object_for_each_row() -> None:
    first, second = json.loads(render(TABLE, "json"))
    assert first["us"] == 1.23456
    assert first["optimal"] is True
    assert first["bytes"] == 12345
    assert first["share"] == 0.4483
    assert second["bytes"] is None


def test_csv_has_a_header_and_a_line_for_each_row() -> None:
    first, second = csv.DictReader(io.StringIO(render(TABLE, "csv")))
    assert first["us"] == "1.23456"
    assert second["bytes"] == ""


def test_a_table_for_people_has_texts_first_and_readable_numbers() -> None:
    header, *rows = render(TABLE, "table").splitlines()
    assert header.split() == ["layer", "us", "optimal", "bytes", "share", "calls"]
    assert rows[0].split() == ["conv", "1.235", "yes", "12.1", "KiB", "44.83", "%", "12,345"]
    assert rows[1].split() == ["relu", "54,321", "-", "0.00", "%", "1"]


@pytest.mark.parametrize("name", ANALYSES)
def test_the_table_of_each_analysis_fits_80_columns(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    table = ANALYSES[name].table([TraceContext(traced_model(1, 100))])
    lines = render(table, "table").splitlines()
    assert max(map(len, lines)) <= 80


def test_names_in_the_roofline_of_layers_are_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    table = ANALYSES["layer-roofline"].table([TraceContext(traced_model(1, 100))])
    index = table.columns.index("layer")
    name = "/features/features.12/block/conv/Conv_output_0_nchwc"
    rows = tuple((*row[:index], name, *row[index + 1 :]) for row in table.rows)
    text = render(AnalysisTable(table.columns, rows), "table")
    assert max(map(len, text.splitlines())) <= 80
    assert text.count(name) == len(rows)


def test_a_table_without_rows_says_so() -> None:
    assert render(AnalysisTable(("a",), ()), "table") == "the traces have nothing of this"


@pytest.mark.parametrize("columns", [60, 100])
def test_a_table_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    row = ("a-model-of-many-words", f"layer {'long ' * 20}", 1.5)
    table = AnalysisTable(("model", "layer", "us"), (row, row))
    width = max(len(line) for line in render(table, "table").splitlines())
    assert columns - 5 <= width <= columns


def test_reasons_are_the_traced_levels_and_what_is_missing() -> None:
    trace = traced_model(1, 100, levels=("layer", "hardware"))
    trace = with_run(trace, 1, probes=(ProbeStatus("layers", True, stepwise=False),))
    assert reasons([TraceContext(trace)]) == [
        "levels traced: layer, hardware",
        "nothing to see at level hardware in 1 item: nothing was recorded",
        "no counters by layer in 1 item: ort runs all layers in one call",
    ]


def test_an_analysis_names_the_level_that_traces_lack_and_the_option() -> None:
    with_kernels = TraceContext(traced_model(1, 100))
    without = TraceContext(counted_model("layer"))
    kernels = ANALYSES["kernels"]
    assert missing_levels(kernels, [with_kernels]) == []
    (line,) = missing_levels(kernels, [with_kernels, without])
    assert line == (
        "kernels (A8) needs level kernel, and 1 of 2 traces were made without it; "
        "run pytest with --mlms-trace=kernel"
    )


@pytest.mark.parametrize("number", ["A8", "A9", "A10", "A11", "A12", "A13"])
def test_each_analysis_of_kernels_needs_their_level(number: str) -> None:
    (line,) = missing_levels(find_analysis(number), [TraceContext(counted_model("layer"))])
    assert f"({number}) needs level kernel, and 1 of 1 traces" in line


def test_a_level_that_was_traced_in_vain_has_the_reason() -> None:
    writer = TraceWriter(TraceMetadata(levels=("kernel",)))
    cupti = ProbeStatus("cupti", False, "the device is cpu")
    writer.run("kernel", void="no probe was available", probes=(cupti,))
    (line,) = missing_levels(ANALYSES["kernels"], [TraceContext(writer.build())])
    assert line == (
        "kernels (A8) needs level kernel, where 1 of 1 traces have nothing to see: "
        "cupti: the device is cpu"
    )


def test_layers_are_told_beside_the_traced_call_and_the_one_without_tracing() -> None:
    context = TraceContext(traced_model(1, 100))
    (line,) = layer_times(ANALYSES["layers"], [context])
    assert line == (
        "net ort-cpu-b1: 100 µs in layers of a traced call of 100 µs; "
        "a call without tracing takes 100 µs; the profiler counts whole microseconds"
    )
    assert layer_times(ANALYSES["model"], [context]) == []
