"""The tables of docs/methodology.md that simulations print."""

from __future__ import annotations

import sys

import pytest

from tests.support.project import ROOT

sys.path.insert(0, str(ROOT / "ci"))

import gate_simulation
import limit_study
import output_simulation
import peak_gates
import scenario_server
import scenario_study
import workload_simulation
from gate_report import row_of

HEADERS = [
    row_of(gate_simulation.ITEMS_HEADER),
    row_of(gate_simulation.GATES_HEADER),
    row_of(gate_simulation.PROCESS_HEADER),
    row_of(gate_simulation.UNLIKE_HEADER),
    row_of(workload_simulation.HEADER),
    row_of(output_simulation.HEADER),
    limit_study.HEADER.splitlines()[0],
    peak_gates.HEADER.splitlines()[0],
    scenario_server.HEADER,
    scenario_study.HEADER,
]


@pytest.mark.parametrize("header", HEADERS)
def test_a_table_of_the_page_is_as_its_program_prints_it(header: str) -> None:
    lines = (ROOT / "docs" / "methodology.md").read_text().splitlines()
    assert lines.count(header) == 1
    rows = lines[lines.index(header) + 2 :]
    table = rows[: next(index for index, row in enumerate(rows) if not row.startswith("|"))]
    assert {row.count(" | ") for row in table} == {header.count(" | ")}
