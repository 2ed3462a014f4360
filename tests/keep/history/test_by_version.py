"""Points by the version of a package."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from sqlalchemy import Connection

from pytest_mlms.core.statistics import student_interval
from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.by_version import VersionSeries, by_version
from pytest_mlms.keep.history.errors import HistoryError
from pytest_mlms.keep.history.queries import series_by_id
from pytest_mlms.keep.history.selection import select_series
from pytest_mlms.keep.history.store import open_history, open_to_read
from tests.support.histories import ITEM, add_upgraded_runs, write_run

VALUE = ITEM["estimates"]["latency_p50"]["value"]


def versions_in(connection: Connection, package: str) -> list[VersionSeries]:
    ids = select_series(connection, "model-0", "latency_p50")
    return by_version(connection, series_by_id(connection, ids), package)


def test_a_version_has_the_mean_over_its_runs(tmp_path: Path) -> None:
    address = str(tmp_path / "h.sqlite")
    add_upgraded_runs(address, tmp_path)
    with open_to_read(address).connect() as connection:
        (found,) = versions_in(connection, "ONNXruntime")
    old, new = found.rows
    assert [(row.version, row.runs) for row in found.rows] == [("1.32.0", 3), ("1.33.0", 3)]
    assert new.value == pytest.approx(1.1 * old.value)
    assert (old.low, old.high) == pytest.approx(student_interval([VALUE] * 3))
    assert old.last < new.first
    assert found.unknown == 0


def test_versions_are_in_their_order_and_stacks_are_joined(tmp_path: Path) -> None:
    """Each release has a stack of its own name, as --mlms-stack onnxruntime==1.9 makes one."""
    history = open_history(tmp_path / "h.sqlite")
    ratios = {"1.9.0": 1.0, "1.10.0": 1.2, "1.2.0": 1.4}
    for night, (version, ratio) in enumerate(ratios.items()):
        stack = {"name": f"onnxruntime=={version}", "threads": 1, "cores": []}
        launch = {"command": ["python"], "lock": [f"onnxruntime=={version}"]}
        fields: dict[str, Any] = {"stack": stack, "launch": launch, "versions": {}}
        add_run(history, write_run(tmp_path, night, ratio=ratio, **fields))
    with history.connect() as connection:
        (found,) = versions_in(connection, "onnxruntime")
    assert [row.version for row in found.rows] == ["1.2.0", "1.9.0", "1.10.0"]
    values = [row.value / VALUE for row in found.rows]
    assert values == pytest.approx([1.4, 1.0, 1.2])
    estimate = ITEM["estimates"]["latency_p50"]
    assert found.rows[1].low == pytest.approx(estimate["low"]), "that of the only run"


def test_points_of_stacks_without_the_package_are_counted(tmp_path: Path) -> None:
    address = str(tmp_path / "h.sqlite")
    add_upgraded_runs(address, tmp_path)
    with open_to_read(address).connect() as connection:
        (found,) = versions_in(connection, "six")
        assert [(row.version, row.runs) for row in found.rows] == [("1", 3)]
        assert found.unknown == 3
        (by_python,) = versions_in(connection, "python")
        assert [(row.version, row.runs) for row in by_python.rows] == [("3.11.7", 6)]
        assert by_python.rows[0].value == pytest.approx(fmean([VALUE, 1.1 * VALUE]))


def test_a_package_that_no_stack_has_is_refused(tmp_path: Path) -> None:
    address = str(tmp_path / "h.sqlite")
    add_upgraded_runs(address, tmp_path, nights=1)
    with open_to_read(address).connect() as connection:
        with pytest.raises(HistoryError, match="no stack .* 'numpi'; did you mean 'numpy'"):
            versions_in(connection, "numpi")
        with pytest.raises(HistoryError, match="'torch'; there are onnxruntime, and what"):
            versions_in(connection, "torch")


def test_points_that_say_nothing_are_of_no_version(tmp_path: Path) -> None:
    history = open_history(tmp_path / "h.sqlite")
    for night, (ratio, verdict) in enumerate([(1.0, "PASSED"), (9.0, "INVALID")]):
        add_run(history, write_run(tmp_path, night, ratio=ratio, verdict=verdict))
    with history.connect() as connection:
        (found,) = versions_in(connection, "onnxruntime")
    (row,) = found.rows
    assert row.runs == 1
    assert row.value == pytest.approx(VALUE)
