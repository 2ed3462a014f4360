"""Queries of a history with six runs: an upgrade before the fourth, another host in the last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.queries import (
    PackageChange,
    changes_between,
    hosts,
    last_points,
    point_counts,
    points,
    runs,
    series_by_id,
    series_names,
    stacks,
    versions_of,
)
from pytest_mlms.keep.history.store import open_history, open_to_read
from tests.support.histories import (
    ITEM,
    add_upgraded_runs,
    item_line,
    run_lines,
    run_name,
    write_lines,
)


@pytest.fixture
def connection(address: str, tmp_path: Path) -> Iterator[Connection]:
    add_upgraded_runs(address, tmp_path)
    with open_to_read(address).connect() as reading:
        yield reading


def one_series(connection: Connection, quantity: str = "latency_p50") -> int:
    return next(iter(series_names(connection, quantity)))


def test_series_are_found_by_their_names(connection: Connection) -> None:
    names = series_names(connection)
    assert len(names) == 2 * len(ITEM["estimates"])
    of_quantity = series_names(connection, "latency_p50")
    assert [name.split()[:4] for name in of_quantity.values()] == [
        [f"model-{item}", "performance", "onnxruntime-cpu-b64-offline", "latency_p50"]
        for item in range(2)
    ]


def test_series_come_in_the_order_that_is_asked_for(connection: Connection) -> None:
    wanted = sorted(series_names(connection), reverse=True)
    found = series_by_id(connection, [*wanted, 10**9])
    assert [series.id for series in found] == wanted
    assert {(series.model, series.kind, series.case) for series in found} == {
        (f"model-{item}", "performance", "onnxruntime-cpu-b64-offline") for item in range(2)
    }
    assert found[0].machine.endswith("2 cores, 32 GiB, virtual")


def test_points_come_in_the_order_of_their_runs(connection: Connection) -> None:
    series = one_series(connection)
    found = points(connection, series)
    assert [point.run for point in found] == [run_name(night) for night in range(6)]
    assert found[3].value == pytest.approx(1.1 * found[2].value)
    assert found[0].verdict == "PASSED"
    assert [point.host for point in found[-2:]] == ["vm", "other"]
    assert points(connection, series, last=2) == found[-2:]
    assert last_points(connection, [series], 2) == {series: found[-2:]}
    assert points(connection, 10**9) == []
    assert point_counts(connection, [series, 10**9]) == {series: 6, 10**9: 0}


def test_changes_of_software_between_two_points_begin_with_the_framework(
    connection: Connection,
) -> None:
    found = points(connection, one_series(connection))
    known = stacks(connection, [point.stack for point in found])
    before, after = (known[str(point.stack)] for point in found[2:4])
    assert before.packages["onnxruntime"] == "1.32.0"
    assert changes_between(before, after) == [
        PackageChange("onnxruntime", "1.32.0", "1.33.0"),
        PackageChange("mpmath", None, "1"),
        PackageChange("numpy", "2.4.6", "2.5.0"),
        PackageChange("six", "1", None),
    ]
    assert changes_between(after, after) == []


def test_versions_of_a_package_are_those_of_each_stack(connection: Connection) -> None:
    assert set(versions_of(connection, "OnnxRuntime").values()) == {"1.32.0", "1.33.0"}
    assert set(versions_of(connection, "python").values()) == {"3.11.7"}
    assert versions_of(connection, "driver") == {}
    assert versions_of(connection, "absent") == {}


def test_runs_and_hosts_are_listed(connection: Connection) -> None:
    found = runs(connection)
    assert [run.id for run in found] == [run_name(night) for night in range(6)]
    assert runs(connection, last=1) == found[-1:]
    assert found[0].exit_status == 0
    assert [(host.host, host.runs, host.last) for host in hosts(connection)] == [
        ("other", 1, found[5].started),
        ("vm", 5, found[4].started),
    ]


def test_more_ids_than_a_statement_takes_are_asked_for_in_parts(connection: Connection) -> None:
    series = one_series(connection)
    ids = [*range(10**6, 10**6 + 2000), series]
    assert [found.id for found in series_by_id(connection, ids)] == [series]


def test_a_point_has_the_host_of_its_item_and_not_that_of_its_run(
    address: str, tmp_path: Path
) -> None:
    history = open_history(address)
    lines = list(run_lines(0, items=2))
    lines[2]["machine"]["host"] = "second"
    write_lines(tmp_path / "run", lines)
    add_run(history, tmp_path / "run")
    with history.connect() as connection:
        names = series_names(connection, "latency_p50")
        assert [points(connection, series)[0].host for series in names] == ["vm", "second"]


def test_usable_points_are_the_last_of_each_run_without_invalid_ones(
    address: str, tmp_path: Path
) -> None:
    history = open_history(address)
    for night, verdict in enumerate(["PASSED", "INVALID", "FAILED"]):
        run, _, end = run_lines(night)
        first = item_line(night, ratio=2.0)
        again = item_line(night, verdict=verdict, nodeid=first["nodeid"].replace(".yaml", "-.yaml"))
        write_lines(tmp_path / run_name(night), [run, first, again, end])
        add_run(history, tmp_path / run_name(night))
    with history.connect() as connection:
        series = one_series(connection)
        assert len(points(connection, series)) == 6
        usable = points(connection, series, usable=True)
        assert [(point.run, point.number) for point in usable] == [
            (run_name(0), 2),
            (run_name(1), 1),
            (run_name(2), 2),
        ]
        assert points(connection, series, last=2, usable=True) == usable[1:]
