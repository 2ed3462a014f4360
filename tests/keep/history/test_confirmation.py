"""Plans of confirmations: both sides of a change, and the reasons why nothing is measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, insert

from pytest_mlms.core.serialization import to_plain
from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.changes import Change, suspicions
from pytest_mlms.keep.history.confirmation import Plan, StackNames, plan_of, sides_of
from pytest_mlms.keep.history.gate_verdict import Finding
from pytest_mlms.keep.history.queries import points, series_by_id, series_names, versions_of
from pytest_mlms.keep.history.store import open_history
from pytest_mlms.keep.results.item_result import definition_of
from pytest_mlms.provide.host.machine import machine_state
from tests.support.cases import digits_case
from tests.support.histories import run_name, write_run
from tests.support.project import copy_digits

OLD = "onnxruntime==1.30.0"
NEW = "onnxruntime==1.31.0"

RESULTS = Path("mlms-results")


@pytest.fixture
def history(address: str) -> Engine:
    return open_history(address)


def measure(
    history: Engine,
    folder: Path,
    night: int,
    *packages: str,
    inherited: dict[str, str] | None = None,
    **fields: Any,
) -> None:
    """Add a run of this machine that had these packages."""
    launch = {"command": ["python"], "lock": list(packages), "inherited": inherited}
    machine = to_plain(machine_state())
    run = write_run(folder, night, **{"launch": launch, "machine": machine, **fields})
    add_run(history, run)


def change_at(history: Engine, night: int, quantity: str = "latency_p50") -> Change:
    """Note an open change of the only series of a quantity; return it."""
    run = run_name(night)
    with history.begin() as connection:
        (series,) = series_by_id(connection, series_names(connection, quantity))
        row = {"series": series.id, "kind": "step", "first_run": run, "found_run": run}
        levels = {"before": 1.0, "after": 1.3, "ratio": 1.3, "status": "open"}
        connection.execute(insert(schema.change), {**row, **levels})
    return suspicions(history)[-1]


def runs_beside(history: Engine, change: Change) -> list[str]:
    with history.connect() as connection:
        sides = sides_of(connection, change)
    return [side.run for side in sides or ()]


def finding_of(history: Engine, change: Change) -> Finding:
    finding = plan_of(history, change, RESULTS)
    assert isinstance(finding, Finding)
    return finding


@pytest.mark.parametrize("located", [6, 7, 8, 9])
def test_the_nearest_change_of_software_separates_both_sides(
    history: Engine, tmp_path: Path, located: int
) -> None:
    for night in range(1, 12):
        measure(history, tmp_path, night, OLD if night < 7 else NEW)
    expected = [run_name(6), run_name(7)]
    assert runs_beside(history, change_at(history, located)) == expected


def test_without_a_change_of_software_the_runs_beside_the_step_are_the_sides(
    history: Engine, tmp_path: Path
) -> None:
    for night in range(1, 8):
        measure(history, tmp_path, night, OLD, inherited={}, definition="0123456789abcdef")
    change = change_at(history, 5)
    assert runs_beside(history, change) == [run_name(4), run_name(5)]
    finding = finding_of(history, change)
    assert finding.cause == "noise"
    assert finding.reason.startswith("both runs had the same software; ")


def test_without_the_definition_of_the_case_nothing_is_taken_for_noise(
    history: Engine, tmp_path: Path
) -> None:
    for night in range(1, 8):
        measure(history, tmp_path, night, OLD)
    finding = finding_of(history, change_at(history, 5))
    assert finding.cause is None
    assert "does not tell whether the case was the same" in finding.reason


def test_a_variable_of_the_caller_is_not_taken_for_noise(history: Engine, tmp_path: Path) -> None:
    for night in range(1, 10):
        variables = {"TF_ENABLE_ONEDNN_OPTS": "1" if night < 6 else "0"}
        measure(history, tmp_path, night, OLD, inherited=variables, definition="0123456789abcdef")
    change = change_at(history, 5)
    assert runs_beside(history, change) == [run_name(5), run_name(6)]
    assert finding_of(history, change).reason.startswith("there is no manifests/model-0.yaml")
    with history.connect() as connection:
        assert versions_of(connection, "$TF_ENABLE_ONEDNN_OPTS").keys() == {
            point.stack for point in points(connection, change.series)
        }


def test_a_run_that_is_not_there_any_more_is_a_reason(history: Engine, tmp_path: Path) -> None:
    measure(history, tmp_path, 1, OLD)
    measure(history, tmp_path, 2, NEW)
    finding = finding_of(history, change_at(history, 1))
    assert finding.cause is None
    assert finding.reason == "the runs on both sides of it are not in the history"


def test_another_class_of_machine_is_refused(history: Engine, tmp_path: Path) -> None:
    cores = {"physical": 512, "logical": 1024}
    for night, package in enumerate([OLD, NEW], start=1):
        elsewhere = {**to_plain(machine_state()), "cores": cores}
        measure(history, tmp_path, night, package, machine=elsewhere)
    finding = finding_of(history, change_at(history, 2))
    assert "1024 cores" in finding.reason
    assert finding.reason.endswith("; confirm it on a machine of that class")


def test_a_manifest_that_is_not_here_is_a_reason(
    history: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    measure(history, tmp_path, 1, OLD)
    measure(history, tmp_path, 2, NEW)
    finding = finding_of(history, change_at(history, 2))
    expected = f"there is no manifests/model-0.yaml below {tmp_path}; run it where the manifest is"
    assert finding.reason == expected


class Digits:
    """The manifest of the digits, with two runs of it that had other packages."""

    def __init__(self, history: Engine, folder: Path, **fields: Any) -> None:
        self.history = history
        self.path = copy_digits(folder / "digits")
        for night, package in enumerate([OLD, NEW], start=1):
            manifest = {"path": str(self.path), "name": "model-0", "version": "1.0.0"}
            measure(history, folder, night, package, manifest=manifest, **fields)

    def edit(self, old: str, new: str) -> None:
        text = self.path.read_text()
        assert old in text
        self.path.write_text(text.replace(old, new))

    def reason(self, quantity: str = "latency_p50") -> str:
        return finding_of(self.history, change_at(self.history, 2, quantity)).reason


@pytest.fixture
def digits(history: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Digits:
    monkeypatch.chdir(tmp_path)
    return Digits(history, tmp_path)


def test_a_change_is_planned_with_its_case_and_gate(digits: Digits) -> None:
    plan = plan_of(digits.history, change_at(digits.history, 2), RESULTS)
    assert isinstance(plan, Plan)
    assert plan.manifest.path == digits.path
    assert plan.gate == ("latency", 0.03)
    assert plan.before.stack.differences(plan.after.stack) == ["onnxruntime 1.30.0 → 1.31.0"]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("sha256: 237cb7d4", "sha256: 00000000", "the graph is not the one that was measured"),
        ("sha256: 5c435567", "sha256: 00000000", "the dataset is not the one that was measured"),
        ("batch_sizes: [1, 8, 64]", "batch_sizes: [3]", "isn't there any more; restore it"),
        ("framework: onnxruntime >=1.17", "framework: mxnet", "no model for onnxruntime any more"),
    ],
)
def test_a_changed_manifest_is_refused_with_its_line(
    digits: Digits, old: str, new: str, reason: str
) -> None:
    digits.edit(old, new)
    found = digits.reason()
    assert reason in found
    assert found.startswith("digits/digits.yaml:")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("normalize: {mean: 0, scale: 16}", "normalize: {mean: 0.5, scale: 16}"),
        ("seed: 7", "seed: 8"),
    ],
)
def test_a_case_that_measures_something_else_now_is_refused(
    history: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    monkeypatch.chdir(tmp_path)
    definition = definition_of(digits_case(batch_size=64, scenario="offline"))
    digits = Digits(history, tmp_path, definition=definition)
    change = change_at(history, 2)
    assert isinstance(plan_of(history, change, RESULTS), Plan)
    digits.edit(old, new)
    assert "not those that were measured; restore them" in finding_of(history, change).reason


def test_a_change_under_load_is_confirmed_under_that_load_whatever_limits_it(
    history: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    load = {"rate": 200.0, "latency": 0.015, "percentile": 99.0, "instances": 1, "batcher": None}
    query = {"value": 0.001, "low": 0.0009, "high": 0.0011, "unit": "s", "replicates": 3}
    fields = {"scenario": "server", "load": load, "estimates": {"query_latency": query}}
    digits = Digits(history, tmp_path, batch_size=1, **fields)
    loads = "{server: {rate: 200 /s, latency: 9 ms}}, {server: {rate: 300 /s, latency: 9 ms}}"
    digits.edit("[single_stream, offline]", f"[single_stream, {loads}]")
    change = change_at(history, 2, "query_latency")
    plan = plan_of(history, change, RESULTS)
    assert isinstance(plan, Plan)
    names = StackNames("before", "after")
    assert plan.case(names) == "after-vs-before-cpu-b1-server-200-9ms"
    digits.edit("rate: 200 /s", "rate: 250 /s")
    reason = finding_of(history, change).reason
    assert reason.endswith("there is no server as measured any more; restore it")


def test_a_quantity_that_upgrades_do_not_compare_is_a_reason(digits: Digits) -> None:
    change = replace(change_at(digits.history, 2), quantity="issue_delay")
    found = finding_of(digits.history, change)
    assert found.reason == "upgrades don't compare issue_delay"


def test_quantities_of_own_tests_are_not_compared(history: Engine, tmp_path: Path) -> None:
    own = {"rmse": {"value": 0.1, "unit": "m", "better": "lower"}}
    node = "test_own.py::test_rmse[onnxruntime-cpu]"
    for night, package in enumerate([OLD, NEW], start=1):
        measure(history, tmp_path, night, package, nodeid=node, quantities=own)
    expected = "it was measured by a test of your own, which upgrades don't run"
    assert finding_of(history, change_at(history, 2, "rmse")).reason == expected
