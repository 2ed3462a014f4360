"""Curves over batch sizes, and their charts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_mlms.show.pages.curves import curves_chart, curves_of
from pytest_mlms.show.pages.latency import percentiles_chart
from tests.support.report_runs import read_lines
from tests.support.result_lines import broken_limit, estimate, line_of


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
