"""The section of queries of an upgrade under load, from the line of an item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pytest_mlms.core.arrays import write_arrays
from pytest_mlms.show.pages.sections import sections_of
from tests.support.report_runs import read_lines
from tests.support.result_lines import upgrade

TITLE = "Queries under load"
PEAK = {
    "a": {"rate": 110, "good": 100, "bad": 120, "tried": [{"rate": 100, "latency": 0.01}]},
    "b": {"rate": 90, "good": 0, "bad": None, "tried": [{"rate": 90, "latency": 0.03}]},
}


def section_of(folder: Path, quantity: str, **fields: Any) -> str:
    """Return the section of an upgrade whose gate is a quantity of queries; "" without one."""
    line = {**upgrade(), "against": {"name": "old"}, **fields}
    line["comparisons"] = [{**line["comparisons"][0], "quantity": quantity}]
    (item,) = read_lines(folder, [line]).items
    assert not item.unread
    return dict(sections_of(item)).get(TITLE, "")


def test_peaks_have_a_chart_of_rounds_and_one_of_rates(tmp_path: Path) -> None:
    rounds = [
        {"figures": {"peak_rate": [110, 90, -0.2, 0.0, 662]}, "peaks": PEAK},
        {"figures": {"peak_rate": [110, 90, -0.2, None, 662]}, "peaks": {}},
    ]
    load = {"latency": 0.02, "percentile": 90}
    section = section_of(tmp_path, "peak_rate", rounds=rounds, load=load)
    assert section.count("<svg") == 2
    assert "Change of the peak" in section
    assert "p90 of the latencies at 2 runs of load, limit 20.0 ms" in section


def test_queries_have_a_chart_of_rounds_and_their_distributions(tmp_path: Path) -> None:
    scheduled = np.arange(100, dtype=np.int64) * 1_000_000
    arrays = {}
    for side in ("a", "b"):
        arrays[f"query_scheduled_{side}"] = scheduled
        arrays[f"query_done_{side}"] = scheduled + 4_000_000
    write_arrays(tmp_path / "pairs-0.npz", arrays)
    section = section_of(
        tmp_path,
        "query_latency",
        rounds=[{"figures": {"query_latency": [0.004, 0.004, 0.0, 0.0, 100]}}],
        artifacts={"pairs-0.npz": "pairs-0.npz"},
        load={"latency": 0.005, "percentile": 99, "rate": 100},
    )
    assert section.count("<svg") == 2
    assert "limit on p99: 5.00 ms" in section
    assert "100 queries, median 4.00 ms" in section


def test_an_upgrade_without_load_has_no_such_section(tmp_path: Path) -> None:
    rounds = [{"figures": {"latency": [0.004, 0.004, 0.0, 0.0, 100]}}]
    assert not section_of(tmp_path, "latency", rounds=rounds)
