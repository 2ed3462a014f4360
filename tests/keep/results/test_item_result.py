"""Tests of the record of an item's result and its line."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

from pytest_mlms.core.records import Decision, Estimate, Limit, Place, Stack, Verdict
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.keep.results.item_result import ItemResult, Recording, identity_of
from pytest_mlms.keep.results.line import (
    EstimateRecord,
    Judgement,
    LaunchRecord,
    LimitRecord,
    Outcome,
    Software,
)
from tests.support.cases import HERE, digits_case
from tests.support.project import DOCUMENTED, MANIFEST

ESTIMATE = Estimate(0.004, 0.003, math.inf, 0.95, 5, "processes", lacking="too few")
LIMIT = Limit("latency_p90", 0.005, Place(MANIFEST, 44))
OUTCOME = Outcome(Verdict.PASSED, "passed", None, phase="call", seconds={"setup": 1.0, "call": 2.0})

RECORDING = Recording(
    launch=LaunchRecord(("python",), ()),
    software=Software({"onnxruntime": "1.30"}, "3.11", "/bin/python", "cpu", None, None),
    notes={"processes": []},
    quantities={},
    judgement=Judgement(
        Verdict.PASSED,
        0.2,
        estimates={"latency_p90": EstimateRecord.made_of("latency_p90", ESTIMATE)},
        limits=(LimitRecord.of(Decision(LIMIT, ESTIMATE, Verdict.PASSED)),),
    ),
    artifacts={"samples-0.npz": "items/x/samples-0.npz"},
    artifacts_lost={},
    logs=["agents/onnxruntime-main-0.log"],
    cpu_shares={"busy": 0.5, "steal": None},
)


def result(recording: Recording | None = None) -> ItemResult:
    identity = identity_of(digits_case())
    return ItemResult("m.yaml::test", "gw0", identity, {"host": "a"}, OUTCOME, recording)


def test_the_line_of_an_item_has_the_documented_fields_only() -> None:
    line = result(RECORDING).as_line()
    assert json.loads(json.dumps(line, allow_nan=False)) == line
    assert set(line) <= DOCUMENTED


def test_a_line_tells_the_case_the_measurement_and_the_outcome() -> None:
    line = result(RECORDING).as_line()
    assert line["nodeid"] == "m.yaml::test"
    assert line["case"] == "onnxruntime-cpu-b1-single_stream"
    assert line["manifest"] == {
        "path": line["manifest"]["path"],
        "name": "digits-cnn",
        "version": "1.0.0",
    }
    assert line["model"]["framework"] == "onnxruntime >=1.17"
    assert re.fullmatch("[0-9a-f]{64}", line["model"]["sha256"]["graph"])
    assert line["dataset"]["name"] == "digits-test"
    declared = {"interpreter": "current"}
    expected: dict[str, object] = {"name": "here", "threads": None, "cores": []}
    assert line["stack"] == {**expected, "declared": declared}
    assert line["against"] is None
    assert line["versions"] == {"onnxruntime": "1.30"}
    assert line["device_used"] == "cpu"
    assert line["launch"] == {"command": ["python"], "lock": []}
    assert line["processes"] == []
    assert line["verdict"] == "PASSED"
    assert line["outcome"] == "passed"
    assert line["seconds"] == {"setup": 1.0, "call": 2.0}


def test_an_estimate_has_its_unit_and_null_where_it_has_no_bound() -> None:
    estimate = result(RECORDING).as_line()["estimates"]["latency_p90"]
    assert estimate == {
        "value": 0.004,
        "low": 0.003,
        "high": None,
        "confidence": 0.95,
        "replicates": 5,
        "of": "processes",
        "lacking": "too few",
        "unit": "s",
    }


def test_a_limit_has_its_bound_under_the_key_of_the_manifest() -> None:
    at_most = LimitRecord.of(Decision(LIMIT, ESTIMATE, Verdict.FAILED))
    at_least = LimitRecord.of(
        Decision(replace(LIMIT, quantity="throughput"), ESTIMATE, Verdict.FAILED)
    )
    assert to_plain(at_most)["max"] == 0.005
    assert "min" not in to_plain(at_most)
    assert to_plain(at_least)["min"] == 0.005
    assert "max" not in to_plain(at_least)


def test_an_item_that_was_skipped_has_no_fields_of_a_measurement() -> None:
    line = result().as_line()
    assert "estimates" not in line
    assert "artifacts" not in line
    assert "cpu_shares" not in line


def test_an_interrupted_item_has_neither_phase_nor_seconds() -> None:
    outcome = Outcome(Verdict.ERROR, "interrupted", "interrupted before it was done")
    line = replace(result(RECORDING), outcome=outcome).as_line()
    assert line["verdict"] == "ERROR"
    assert "phase" not in line
    assert "seconds" not in line


def test_an_upgrade_names_its_baseline() -> None:
    case = digits_case("upgrade", against=replace(HERE, name="old", threads=2))
    identity = to_plain(identity_of(case))
    assert identity["against"] == {"name": "old", "threads": 2}
    assert identity["scenario"] is None


def test_the_cores_that_were_asked_for_are_there() -> None:
    stack = Stack("own", "onnxruntime", cores=(0, 2))
    identity = to_plain(identity_of(digits_case(stack=stack)))
    assert identity["stack"]["cores"] == [0, 2]
    assert identity["options"] == {}
