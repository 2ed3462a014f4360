"""Tests of the document in Bencher Metric Format."""

from __future__ import annotations

import json
from typing import Any

import jsonschema

from pytest_mlms.show.report.bencher_json import bencher_json
from tests.support.result_lines import estimate, line_of, upgrade

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
