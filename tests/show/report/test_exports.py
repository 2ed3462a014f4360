"""Numbers of items for other tools."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pytest_mlms.show.report.exports import (
    bencher_json,
    exported_numbers,
    junit_properties,
    last_results,
    openmetrics,
)
from tests.support.result_lines import HOSTILE, broken_limit, estimate, line_of, upgrade


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


LINE: dict[str, Any] = {
    "nodeid": "digits.yaml::test_accuracy[here-cpu]",
    "verdict": "PASSED",
    "manifest": {"path": "manifests/digits.yaml", "name": "digits-cnn", "version": "1.0.0"},
    "framework": "onnxruntime",
    "stack": {"name": "here"},
}


def test_an_item_has_its_case_and_its_verdict() -> None:
    assert junit_properties(LINE) == [
        ("mlms_item", "digits.yaml::test_accuracy[here-cpu]"),
        ("mlms_verdict", "PASSED"),
        ("mlms_manifest", "manifests/digits.yaml"),
        ("mlms_model", "digits-cnn"),
        ("mlms_version", "1.0.0"),
        ("mlms_framework", "onnxruntime"),
        ("mlms_stack", "here"),
    ]


def test_an_estimate_has_its_unit_in_the_name_and_no_null() -> None:
    latency = {"value": 0.004, "low": 0.003, "high": None, "unit": "s"}
    properties = dict(junit_properties({**LINE, "estimates": {"latency_p90": latency}}))
    assert properties["mlms_latency_p90_seconds"] == 0.004
    assert properties["mlms_latency_p90_seconds_low"] == 0.003
    assert "mlms_latency_p90_seconds_high" not in properties


def test_a_share_has_no_unit() -> None:
    top1 = {"value": 0.99, "low": 0.98, "high": 1.0, "unit": "fraction"}
    properties = dict(junit_properties({**LINE, "estimates": {"top1": top1}}))
    assert properties["mlms_top1"] == 0.99


def test_versions_and_comparisons_are_properties() -> None:
    comparison = {"quantity": "latency", "of": "rounds", "ratio": 1.1, "low": 1.05, "high": 1.15}
    line = {**LINE, "versions": {"numpy": "2.0"}, "comparisons": [comparison]}
    properties = dict(junit_properties(line))
    assert properties["mlms_version_of_numpy"] == "2.0"
    assert properties["mlms_ratio_of_latency"] == 1.1
    assert properties["mlms_low_of_latency"] == 1.05
    assert properties["mlms_high_of_latency"] == 1.15


METRIC = {
    "type": "object",
    "required": ["value"],
    "properties": {name: {"type": "number"} for name in ("value", "lower_value", "upper_value")},
    "additionalProperties": False,
}
SCHEMA = {  # as strict as https://bencher.dev/bmf.json, and no names that it does not have
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": METRIC,
        "propertyNames": {"pattern": "^[a-z0-9-]{1,64}$"},
    },
    "propertyNames": {"minLength": 1, "maxLength": 1024},
}


def document(*results: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(bencher_json(results))
    jsonschema.validate(made, SCHEMA)
    return made


def test_an_item_is_a_benchmark_whose_measures_have_their_intervals() -> None:
    assert document(line_of()) == {
        "models/m.yaml::test_performance[here-cpu-b1]": {
            "latency-p50-seconds": {"value": 0.004, "lower_value": 0.003, "upper_value": 0.005}
        }
    }


def test_an_upgrade_has_its_ratios() -> None:
    (measures,) = document(upgrade()).values()
    assert measures["latency-ratio"] == {
        "value": 1.079,
        "lower_value": 1.071,
        "upper_value": 1.088,
    }


def test_what_is_missing_is_left_out() -> None:
    lacking = {**estimate(0.1, 0, None), "lacking": "too few calls"}
    open_ended = estimate(0.1, 0.0, None)
    estimates = {"latency_p90": lacking, "latency_p50": open_ended}
    (measures,) = document(line_of(estimates=estimates), line_of(2, estimates={})).values()
    assert measures == {"latency-p50-seconds": {"value": 0.1, "lower_value": 0.0}}


def test_long_names_are_shortened_and_stay_apart() -> None:
    own = {"q" * 80: {"value": 1.0, "unit": "ms"}, "q" * 81: {"value": 2.0, "unit": "ms"}}
    ids = ["n" * 2000, "n" * 2001]
    made = document(*[line_of(nodeid=nodeid, quantities=own) for nodeid in ids])
    assert len(made) == 2
    assert all(len(measures) == 3 for measures in made.values())


def parsed(*results: dict[str, Any]) -> dict[str, Any]:
    families = text_string_to_metric_families(openmetrics(results))
    return {family.name: family for family in families}


def test_a_value_is_a_gauge_in_its_base_unit() -> None:
    family = parsed(line_of())["mlms_latency_p50_seconds"]
    assert (family.type, family.unit) == ("gauge", "seconds")
    (sample,) = family.samples
    assert sample.value == 0.004
    assert sample.labels == {
        "model": "digits",
        "framework": "onnxruntime",
        "device": "cpu",
        "item": "models/m.yaml::test_performance[here-cpu-b1]",
    }


def test_verdicts_are_counted() -> None:
    samples = parsed(line_of(1), line_of(2), broken_limit(3))["mlms_items"].samples
    assert {sample.labels["verdict"]: sample.value for sample in samples} == {
        "PASSED": 2,
        "FAILED": 1,
    }


def test_comparisons_and_own_quantities_are_families_of_their_own() -> None:
    own = line_of(2, quantities={"fps": {"value": 25.0, "unit": "/s", "better": "higher"}})
    families = parsed(upgrade(1), own)
    (ratio,) = families["mlms_upgrade_ratio"].samples
    assert (ratio.labels["quantity"], ratio.value) == ("latency", 1.079)
    (fps,) = families["mlms_own_quantity"].samples
    assert (fps.labels["quantity"], fps.labels["unit"], fps.value) == ("fps", "/s", 25)


def test_an_item_that_ran_again_has_one_sample_and_a_missing_value_none() -> None:
    lacking = {**estimate(0.1, 0, None), "value": None, "lacking": "too few calls"}
    again = line_of(estimates={"latency_p50": estimate(0.5, 0.4, 0.6), "latency_p99": lacking})
    families = parsed(line_of(), again)
    assert [sample.value for sample in families["mlms_latency_p50_seconds"].samples] == [0.5]
    assert "mlms_latency_p99_seconds" not in families


def test_hostile_names_come_back_as_they_were() -> None:
    name = HOSTILE + "\\" + "\ud800"
    model = {"path": "m.yaml", "name": name, "version": "1.0.0"}
    (sample,) = parsed(line_of(manifest=model))["mlms_latency_p50_seconds"].samples
    assert sample.labels["model"] == name.replace("\ud800", "\\ud800")


def test_a_run_without_results_is_a_valid_document() -> None:
    assert openmetrics([]) == "# EOF\n"


def test_of_an_item_that_ran_again_the_last_result_counts() -> None:
    results = [broken_limit(1), line_of(2), line_of(1)]
    assert [result["verdict"] for result in last_results(results)] == ["PASSED", "PASSED"]
    assert [result["case"] for result in last_results(results)] == ["here-cpu-b1", "here-cpu-b2"]
