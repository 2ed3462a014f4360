"""The registry of analyses, and the tables that they make."""

from __future__ import annotations

from pytest_mlms.measure.trace.analyses import ANALYSES
from pytest_mlms.measure.trace.analyses.analysis import AnalysisTable
from pytest_mlms.measure.trace.summary import TraceContext
from tests.support.traced_models import traced_model


def test_there_are_all_fifteen_analyses_of_xsp_in_their_order() -> None:
    numbers = [analysis.number for analysis in ANALYSES.values() if analysis.number]
    assert numbers == [f"A{number}" for number in range(1, 16)]


def test_every_analysis_of_xsp_has_rows_of_a_trace_with_kernels() -> None:
    context = TraceContext(traced_model(1, 100))
    for name, analysis in ANALYSES.items():
        if analysis.number:
            assert analysis.table([context]).rows, name


def test_every_row_has_a_cell_for_each_column() -> None:
    context = TraceContext(traced_model(1, 100))
    for name, analysis in ANALYSES.items():
        table = analysis.table([context, context])
        widths = {len(row) for row in table.rows}
        assert widths <= {len(table.columns)}, name


def test_rows_begin_with_the_model_and_the_case_of_each_trace() -> None:
    contexts = [TraceContext(traced_model(size, 100)) for size in (1, 2)]
    rows = ANALYSES["layers"].table(contexts).rows
    assert [row[:2] for row in rows] == [
        ("net", "ort-cpu-b1"),
        ("net", "ort-cpu-b1"),
        ("net", "ort-cpu-b2"),
        ("net", "ort-cpu-b2"),
    ]


def names_on_top(analysis: str, column: str, count: int) -> list[str]:
    """Return the names in the top rows of two traces of which each has a conv1 and a relu."""
    contexts = [TraceContext(traced_model(size, 100)) for size in (2, 1)]
    chosen = ANALYSES[analysis]
    return list(chosen.top(chosen.table(contexts), count).column(column))


def test_the_top_rows_are_the_largest_of_each_trace() -> None:
    assert names_on_top("layers", "name", 1) == ["conv1", "conv1"]
    assert names_on_top("layers", "case", 1) == ["ort-cpu-b2", "ort-cpu-b1"]
    assert names_on_top("layer-roofline", "layer", 1) == ["conv1", "conv1"]
    assert names_on_top("kernels", "kernel", 2) == ["gemm", "memcpy", "gemm", "memcpy"]


def test_there_are_no_more_top_rows_than_rows() -> None:
    assert names_on_top("layers", "name", 9) == ["conv1", "relu", "conv1", "relu"]


def test_every_analysis_has_the_column_that_decides_which_rows_are_on_top() -> None:
    context = TraceContext(traced_model(1, 100))
    for name, analysis in ANALYSES.items():
        table = analysis.table([context])
        assert len(analysis.top(table, 1).rows) <= 1, name
        assert analysis.largest in ("", *table.columns), name


def test_unknown_values_are_not_on_top() -> None:
    analysis = ANALYSES["layer-memory"]
    rows = (("net", "b1", 0, "a", None), ("net", "b1", 1, "b", 5), ("net", "b1", 2, "c", 9))
    table = AnalysisTable(("model", "case", "index", "name", "bytes"), rows)
    assert analysis.top(table, 2).column("name") == ("c", "b")
