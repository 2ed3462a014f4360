"""Tests of the record of an item's result and its line."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.author.loading import load_manifest
from pytest_mlms.config import Config
from pytest_mlms.core.records import Decision, Estimate, Kind, Limit, Place, Stack, Verdict
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.keep.results.item_result import (
    ItemResult,
    Recording,
    case_digest,
    definition_of,
    identity_of,
)
from pytest_mlms.keep.results.line import (
    EstimateRecord,
    Judgement,
    LaunchRecord,
    LimitRecord,
    Outcome,
    Software,
)
from pytest_mlms.provide.cases import Case, cases_of
from tests.support.cases import HERE, digits_case
from tests.support.project import DOCUMENTED, MANIFEST, copy_digits

SERVER = "[single_stream, {server: {rate: 200 /s, latency: 15 ms}}]"
REPLAY = "[single_stream, {replay: {arrivals: trace.csv}}]"
SCENARIOS = "scenarios: [single_stream, offline]"


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    manifest = copy_digits(tmp_path / "digits")
    (manifest.parent / "trace.csv").write_text("0\n1\n")
    return manifest


def case_of(path: Path, kind: Kind) -> Case:
    """Return the last case of a kind: of performance that with the last scenario."""
    return cases_of(load_manifest(path), kind, lambda framework: [HERE], lambda framework: HERE)[-1]


def edited(old: str, new: str) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return edit


def written(name: str, text: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        (path.parent / name).write_text(text)

    return write


BOTH: list[Kind] = ["performance", "accuracy"]


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (edited("color: L", "color: RGB"), BOTH),
        (edited("mean: 0, scale", "mean: 1, scale"), BOTH),
        (edited("element_type: float32", "element_type: float16"), BOTH),
        (edited("    layout: NCHW", "    layout: NCHW\n    shape: [batch, 1, 8, 8]"), BOTH),
        (edited("    layout: NCHW", "    layout: NCHW\n    range: [0, 9]"), BOTH),
        (edited("name: logits", "name: other"), BOTH),
        (edited("seed: 7", "seed: 8"), ["performance"]),
        (edited("[softmax, {top_k", "[{top_k"), ["accuracy"]),
        (edited("k: 5", "k: 4"), ["accuracy"]),
        (written("labels.txt", "zero\n" * 10), ["accuracy"]),
        (edited("latency_p90: {max: 5 ms}", "latency_p90: {max: 1 ms}"), []),
        (edited("top1: {min: 0.95}", "top1: {min: 0.99}"), []),
        (edited("license: CC-BY-4.0", "license: MIT"), []),
        (edited("method: bilinear, ", ""), []),
    ],
)
def test_a_definition_is_of_what_is_measured_and_not_of_what_judges_it(
    digits: Path, change: Callable[[Path], None], kinds: list[str]
) -> None:
    before = {kind: definition_of(case_of(digits, kind)) for kind in BOTH}
    change(digits)
    after = {kind: definition_of(case_of(digits, kind)) for kind in BOTH}
    assert [kind for kind in BOTH if before[kind] != after[kind]] == kinds


def test_the_arrivals_of_a_replay_are_of_its_definition_and_of_no_other(digits: Path) -> None:
    edited(SCENARIOS, f"scenarios: {REPLAY}")(digits)
    cases = cases_of(
        load_manifest(digits), "performance", lambda framework: [HERE], lambda framework: HERE
    )
    before = {case.scenario: definition_of(case) for case in cases}
    written("trace.csv", "0\n2\n")(digits)
    changed = {case.scenario for case in cases if definition_of(case) != before[case.scenario]}
    assert len(changed) == 1
    assert (changed.pop() or "").startswith("replay")


def test_the_limit_of_a_load_is_not_of_its_definition(digits: Path) -> None:
    edited(SCENARIOS, f"scenarios: {SERVER}")(digits)
    before = definition_of(case_of(digits, "performance"))
    edited("latency: 15 ms", "latency: 9 ms")(digits)
    assert definition_of(case_of(digits, "performance")) == before


def test_an_item_that_may_have_ended_by_its_timeout_is_another_one_with_a_longer(
    digits: Path, pytester: pytest.Pytester
) -> None:
    case = case_of(digits, "performance")
    config = Config.from_pytest(pytester.parseconfig())
    digest = case_digest(case, config)
    assert case_digest(case, replace(config, results=digits)) == digest
    assert case_digest(case, replace(config, timeout=2 * config.timeout)) != digest


def test_an_item_whose_agent_on_path_was_built_anew_is_another_one(
    digits: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = digits.parent / "my_agent"
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    config = Config.from_pytest(pytester.parseconfig())
    stack = Stack("own", "onnxruntime", agent=(program.name,))
    case = replace(case_of(digits, "performance"), stack=stack)
    digests = []
    for status in (3, 3, 4):
        program.write_text(f"#!/bin/sh\nexit {status}\n")
        program.chmod(0o755)
        digests.append(case_digest(case, config))
    assert digests[0] == digests[1] != digests[2]


def test_files_that_a_host_is_sent_are_of_the_definition_as_on_the_host_that_has_them(
    digits: Path,
) -> None:
    case = case_of(digits, "accuracy")
    here = definition_of(case)
    sent = digits.parent / "sent.txt"
    (digits.parent / "labels.txt").rename(sent)
    assert definition_of(case) != here
    assert definition_of(case, lambda loaded, artifact: replace(artifact, source=str(sent))) == here


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
