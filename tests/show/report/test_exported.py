"""Numbers for documents of other tools: the same in all of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_mlms.show.report.bencher_json import bencher_json
from pytest_mlms.show.report.exported import exported_numbers
from pytest_mlms.show.report.junit import junit_properties
from pytest_mlms.show.report.openmetrics import openmetrics
from tests.support.result_lines import estimate, line_of, upgrade


def compared(quantity: str, of: str, value: float) -> dict[str, Any]:
    line = upgrade()
    fields = {"quantity": quantity, "of": of, "ratio": value, "low": value, "high": None}
    line["comparisons"] = [{**line["comparisons"][0], **fields}]
    line["manifest"]["version"] = "1.0.0"
    return line


def names_of(line: dict[str, Any]) -> list[set[str]]:
    """Return the names that each document has."""
    (measures,) = json.loads(bencher_json([line])).values()
    metrics = {text.partition("{")[0] for text in openmetrics([line]).splitlines() if "{" in text}
    properties = {name for name, value in junit_properties(line) if isinstance(value, float)}
    return [properties, set(measures), metrics - {"mlms_items"}]


@pytest.mark.parametrize(
    ("quantity", "of", "form"),
    [
        ("latency", "rounds", "ratio"),
        ("latency", "visits", "ratio"),
        ("top1", "inputs", "difference"),
        ("agreement", "inputs", "multiple"),
    ],
)
def test_a_number_of_an_upgrade_is_called_what_it_is(quantity: str, of: str, form: str) -> None:
    properties, measures, metrics = names_of(compared(quantity, of, -0.01))
    assert f"mlms_{form}_of_{quantity}" in properties
    assert f"{quantity}-{form}" in measures
    assert f"mlms_upgrade_{form}" in metrics


@pytest.mark.parametrize("verdict", ["INVALID", "ERROR"])
def test_values_that_say_nothing_are_in_no_document(verdict: str) -> None:
    line = line_of(estimates={"latency_p50": estimate(0.1, 0.09, 0.11)}, verdict=verdict)
    assert list(exported_numbers(line)) == []


def test_what_was_measured_too_little_is_in_no_document() -> None:
    few = {**estimate(0.1, 0.0, 0.2), "lacking": "needs 459 calls, had 12"}
    line = line_of(estimates={"latency_p99": few, "latency_p50": estimate(0.1, 0.09, 0.11)})
    assert [number.name for number in exported_numbers(line)] == ["latency_p50"]
    for names in names_of(line):
        assert not [name for name in names if "p99" in name]
