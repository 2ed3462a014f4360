"""Charts of estimates against limits."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.files import write_arrays
from pytest_mlms.core.records import Verdict
from pytest_mlms.keep.results.line import EstimateRecord, LimitRecord
from pytest_mlms.show.pages.estimates import (
    curves_chart,
    curves_of,
    intervals_figures,
    percentiles_chart,
    process_distributions,
    query_distributions,
    side_distributions,
)
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.upgrade import pair_ratios
from tests.support.report_runs import read_lines
from tests.support.result_lines import broken_limit, estimate, line_of, upgrade
from tests.support.svg import marks, titles


def test_quantities_of_one_unit_share_a_chart_with_their_limits() -> None:
    estimates = {
        "top1": EstimateRecord(0.9, 0.85, 0.95, 0.95, 600, "inputs", unit="fraction"),
        "top5": EstimateRecord(0.99, 0.98, 1.0, 0.95, 600, "inputs", unit="fraction"),
        "psnr": EstimateRecord(30.0, 28.0, 32.0, 0.95, 600, "inputs", unit="dB"),
        "f1_macro": EstimateRecord(None, unit="fraction", lacking="nothing"),
    }
    limits = [LimitRecord(quantity="top1", verdict=Verdict.FAILED, min=0.97, place="m.yaml:8")]
    (shares, first), (decibels, _) = intervals_figures(estimates, limits)
    assert shares == "FAILED: top1 at least 97.00 %, set in m.yaml:8"
    assert decibels == "no limits on these"
    assert any(title.startswith("limit on top1") for title in titles(first))


def test_estimates_without_an_interval_are_dots() -> None:
    ((_, chart),) = intervals_figures({"top1": EstimateRecord(0.5, unit="fraction")}, [])
    assert len(marks(chart, "circle")) == 1


CALLS = np.arange(1000.0)


def measured(folder: Path, names: list[str]) -> ItemView:
    """Return a performance item with these artifacts."""
    line = line_of(artifacts={name: name for name in names})
    (item,) = read_lines(folder, [line]).items
    return item


def gate(folder: Path, rounds: int, pairs: int) -> ItemView:
    """Return an upgrade of some rounds, in each of which B takes twice as long."""
    names = {}
    for number in range(rounds):
        wall = np.full((pairs, 3), 0.001)
        name = f"pairs-{number}.npz"
        np.savez(folder / name, wall_a=wall, wall_b=2 * wall)
        names[name] = name
    line = {**upgrade(), "against": {"name": "old"}, "artifacts": names}
    (item,) = read_lines(folder, [line]).items
    return item


def test_each_process_has_its_distribution_from_the_fastest_call_to_the_slowest(
    tmp_path: Path,
) -> None:
    for number in range(2):
        np.savez(tmp_path / f"samples-{number}.npz", start=CALLS, end=CALLS + CALLS / 1e6)
    found = process_distributions(measured(tmp_path, ["samples-0.npz", "samples-1.npz"]))
    assert [each.name for each in found] == ["process 1", "process 2"]
    assert found[0].count == 1000
    assert found[0].points[0][0] == pytest.approx(0, abs=1e-9)
    slowest, share = found[0].points[-1]
    assert slowest == pytest.approx(999e-6, abs=1e-9)
    assert share == 1.0
    assert found[0].median == pytest.approx(500e-6, rel=0.02)


def test_files_that_are_damaged_or_something_else_are_left_out(tmp_path: Path) -> None:
    np.savez(tmp_path / "samples-0.npz", start=CALLS, end=CALLS + 1)
    (tmp_path / "samples-1.npz").write_bytes(b"no archive")
    np.savez(tmp_path / "samples-2.npz", other=CALLS)
    np.savez(tmp_path / "samples-3.npz", start=CALLS, end=np.full(1000, np.nan))
    names = [f"samples-{number}.npz" for number in range(5)]
    assert len(process_distributions(measured(tmp_path, names))) == 1


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "samples-0.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in ("start.npy", "end.npy"):
            archive.writestr(name, bytes(140_000_000))
    assert path.stat().st_size < 4_000_000
    assert process_distributions(measured(tmp_path, [path.name])) == []


def test_both_sides_of_an_upgrade_have_a_distribution_over_all_rounds(tmp_path: Path) -> None:
    a, b = side_distributions(gate(tmp_path, rounds=2, pairs=10))
    assert (a.name, b.name) == ("A: old", "B: here")
    assert (a.count, b.count) == (60, 60)
    assert b.median == pytest.approx(2 * a.median)


def test_pairs_are_thinned_to_what_a_picture_can_show(tmp_path: Path) -> None:
    found = pair_ratios(gate(tmp_path, rounds=12, pairs=100))
    assert [each.number for each in found] == list(range(1, 13))
    ratios = [ratio for each in found for ratio in each.ratios]
    assert 300 <= len(ratios) <= 412
    assert set(ratios) == {2.0}


def test_queries_of_both_sides_are_those_of_the_first_run_of_load(tmp_path: Path) -> None:
    scheduled = np.arange(100, dtype=np.int64) * 1_000_000
    arrays = {}
    for side, milliseconds in (("a", 4), ("b", 6)):
        for run in ("", "2"):
            arrays[f"query_scheduled_{side}{run}"] = scheduled
            arrays[f"query_done_{side}{run}"] = scheduled + milliseconds * 1_000_000
    write_arrays(tmp_path / "pairs-0.npz", arrays)
    np.savez(tmp_path / "pairs-1.npz", query_done_a=scheduled)
    names = {name: name for name in ("pairs-0.npz", "pairs-1.npz")}
    line = {**upgrade(), "against": {"name": "old"}, "artifacts": names}
    (item,) = read_lines(tmp_path, [line]).items
    a, b = query_distributions(item)
    assert (a.name, a.count) == ("A: old", 100)
    assert a.median == pytest.approx(0.004)
    assert b.median == pytest.approx(0.006)


def at(batch: int, stack: str = "here", value: float = 0.004) -> dict[str, Any]:
    estimates = {"latency_p50": estimate(value, 0.9 * value, 1.1 * value)}
    fields: dict[str, Any] = {"batch_size": batch, "scenario": "offline"}
    fields["stack"] = {"name": stack}
    return line_of(batch, nodeid=f"{stack}-{batch}", estimates=estimates, **fields)


def test_stacks_are_side_by_side_from_the_smallest_batch(tmp_path: Path) -> None:
    run = read_lines(tmp_path, [at(8), at(1), at(1, "new"), at(64, "new")])
    (curves,) = curves_of(run.items)
    assert curves.quantity == "latency_p50"
    assert {stack: list(points) for stack, points in curves.stacks.items()} == {
        "onnxruntime": [1, 8],
        "new": [1, 64],
    }
    assert curves.batch_sizes == [1, 8, 64]
    picture = curves_chart(curves)
    assert picture.count("<circle") == 4
    assert ">64<" in picture


def test_frameworks_of_one_stack_and_runs_have_lines_of_their_own(tmp_path: Path) -> None:
    both = [at(8, "venv"), at(1, "venv"), {**at(8, "venv"), "framework": "jax", "nodeid": "jax"}]
    (curves,) = curves_of(read_lines(tmp_path / "a", both).items)
    assert {name: list(points) for name, points in curves.stacks.items()} == {
        "venv onnxruntime": [1, 8],
        "venv jax": [8],
    }
    nights = [read_lines(tmp_path / night, [at(8)]).items[0] for night in ("a", "b")]
    nights = [replace(item, run=run) for item, run in zip(nights, ("first", "second"), strict=True)]
    (curves,) = curves_of(nights)
    assert list(curves.stacks) == ["onnxruntime first", "onnxruntime second"]


def test_one_point_is_no_curve(tmp_path: Path) -> None:
    assert curves_of(read_lines(tmp_path, [at(8)]).items) == []


def test_percentiles_are_shown_with_their_limits(tmp_path: Path) -> None:
    (item,) = read_lines(tmp_path, [broken_limit()]).items
    picture = percentiles_chart(item.estimates, item.limits)
    assert picture is not None
    assert "limit on latency p50: at most 1.00 ms, models/m.yaml:88" in picture
    assert percentiles_chart({}, item.limits) is None
