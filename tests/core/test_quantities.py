"""Tests of the registry of quantities, and of all that is made from it."""

from __future__ import annotations

import pytest

from pytest_mlms.core.quantities import QUANTITIES, Quantity, quantities_of, upgrade_rules
from pytest_mlms.core.units import UNITS
from tests.support.project import ROOT, Project

UNITS_WITHOUT_PREFIX = ("", "nat")
LIMITED_KINDS = ("accuracy", "performance")

REGISTER_ONE = """
from pytest_mlms.core.quantities import QUANTITIES, Column, ProcessEstimator, Quantity

QUANTITIES["latency_max"] = Quantity(
    name="latency_max",
    unit="s",
    better="lower",
    kind="performance",
    description="slowest call",
    limit_key="latency_max",
    estimator=ProcessEstimator(lambda process: process.percentile(100)),
    column=Column("latency and throughput", "slowest"),
)
"""


@pytest.mark.parametrize("quantity", QUANTITIES.values(), ids=lambda quantity: quantity.name)
def test_every_quantity_has_a_known_unit_and_a_description(quantity: Quantity) -> None:
    assert quantity.unit in (*UNITS, *UNITS_WITHOUT_PREFIX)
    assert quantity.description
    assert not quantity.description.endswith(".")


@pytest.mark.parametrize("kind", LIMITED_KINDS)
def test_limits_have_the_name_of_their_quantity(kind: str) -> None:
    for quantity in QUANTITIES.values():
        if quantity.kind == kind and not quantity.under_load:
            assert quantity.limit_key == quantity.name


def test_a_limit_bounds_the_side_on_which_a_quantity_is_worse() -> None:
    assert QUANTITIES["latency_p50"].bound == "max"
    assert QUANTITIES["latency_p50"].sign == 1
    assert QUANTITIES["throughput"].bound == "min"
    assert QUANTITIES["throughput"].sign == -1


def test_properties_have_the_unit_in_their_name() -> None:
    assert QUANTITIES["load_time"].property_name == "mlms_load_time_seconds"
    assert QUANTITIES["peak_memory"].property_name == "mlms_peak_memory_bytes"
    assert QUANTITIES["throughput"].property_name == "mlms_throughput_per_second"
    assert QUANTITIES["top1"].property_name == "mlms_top1"


def test_percentiles_know_their_percent() -> None:
    assert QUANTITIES["latency_p99"].percent == 99
    assert QUANTITIES["latency_mean"].percent is None
    assert QUANTITIES["top1"].percent is None


def test_every_quantity_of_performance_has_an_estimator() -> None:
    for quantity in quantities_of("performance"):
        assert (quantity.estimator is None) == quantity.under_load, quantity.name


def test_hosts_are_compared_by_estimates_of_performance() -> None:
    estimates = {rule.estimate for rule in upgrade_rules().values() if rule.estimate}
    assert "latency_p50" in estimates
    assert estimates <= {quantity.name for quantity in quantities_of("performance")}


def test_upgrades_of_accuracy_are_over_inputs() -> None:
    assert set(upgrade_rules("inputs")) == {quantity.name for quantity in quantities_of("accuracy")}
    assert not set(upgrade_rules("inputs")) & set(upgrade_rules("rounds"))


def documented_row(quantity: Quantity) -> str:
    limit = "-"
    if quantity.limit_key:
        limit = f"`{quantity.limit_key}: {{{quantity.bound}: …}}`"
    elif quantity.name == "deviation":
        limit = "`rtol`, `atol`"
    tolerance = "-"
    if quantity.upgrade:
        tolerance = f"{100 * quantity.upgrade.tolerance:g} %"
        if quantity.upgrade.asked:
            tolerance += ", if asked"
    cells = [
        f"`{quantity.name}`",
        quantity.unit or "-",
        quantity.better,
        limit,
        tolerance,
        quantity.description,
    ]
    return f"| {' | '.join(cells)} |"


@pytest.mark.parametrize("quantity", QUANTITIES.values(), ids=lambda quantity: quantity.name)
def test_the_documents_have_a_row_for_every_quantity(quantity: Quantity) -> None:
    lines = (ROOT / "docs" / "quantities.md").read_text().splitlines()
    assert documented_row(quantity) in lines


def test_the_documents_have_the_default_tolerances_of_upgrades() -> None:
    methodology = (ROOT / "docs" / "methodology.md").read_text()
    for name, quantity in QUANTITIES.items():
        rule = quantity.upgrade
        if rule is not None and name != "latency":
            rows = [line for line in methodology.splitlines() if f"`{name}`" in line]
            assert any(f"{100 * rule.tolerance:g} %" in row for row in rows), name


@pytest.fixture
def project_with_another_quantity(project: Project) -> Project:
    """A project with a plugin that registers a quantity, and a manifest that limits it."""
    (project.path / "slowest_call.py").write_text(REGISTER_ONE)
    project.edit("[1, 8, 64]", "[8]")
    project.edit("[single_stream, offline]", "[offline]")
    return project


@pytest.mark.usefixtures("started")
def test_one_entry_adds_a_quantity_to_schema_limits_estimates_and_tables(
    project_with_another_quantity: Project,
) -> None:
    project = project_with_another_quantity
    project.set_thresholds("  latency_max: {max: 1e9 min}")
    project.pytester.syspathinsert(project.path)
    result = project.run("-p", "slowest_call", "-k", "performance", "--junitxml=junit.xml")
    result.assert_outcomes(passed=1)
    (item,) = [line for line in project.lines() if line["type"] == "item"]
    estimate = item["estimates"]["latency_max"]
    assert estimate["value"] >= item["estimates"]["latency_p99"]["value"]
    assert estimate["unit"] == "s"
    (limit,) = item["limits"]
    assert limit["quantity"] == "latency_max"
    assert limit["verdict"] == "PASSED"
    assert any("slowest" in line for line in result.outlines)
    assert "mlms_latency_max_seconds_high" in (project.path / "junit.xml").read_text()


@pytest.mark.usefixtures("started")
def test_a_wrong_limit_on_another_quantity_is_an_error_with_its_line(
    project_with_another_quantity: Project,
) -> None:
    project = project_with_another_quantity
    project.set_thresholds("  latency_max: {max: 60}")
    project.pytester.syspathinsert(project.path)
    result = project.run("-p", "slowest_call")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*digits.yaml:*: thresholds.latency_max.max: 60 has no unit*"])
