"""Tests of the properties of JUnit XML."""

from __future__ import annotations

from typing import Any

from pytest_mlms.show.report.junit import junit_properties

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
