"""The registry of analyses, and the tables that they make."""

from __future__ import annotations

from pytest_mlms.trace.analyses import ANALYSES
from pytest_mlms.trace.context import TraceContext
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
