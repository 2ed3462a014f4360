"""Tests of the OpenMetrics text, by the parser of prometheus_client."""

from __future__ import annotations

from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pytest_mlms.show.report.openmetrics import openmetrics
from tests.support.result_lines import HOSTILE, broken_limit, estimate, line_of, upgrade


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
