"""Tests of the cases that a manifest has on stacks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_mlms.core.records import Kind, Stack
from pytest_mlms.manifest import LoadedManifest, load
from pytest_mlms.provide.cases import Case, Mark, cases_of, upgrades_of

DIGEST = "0123456789abcdef" * 4
FIRST = Stack("first", "onnxruntime")
SECOND = Stack("second", "mxnet")
STACKS = {"onnxruntime": [FIRST], "mxnet": [SECOND]}


def model(framework: str) -> dict[str, str]:
    return {"framework": framework, "graph": f"{framework}.model", "sha256": DIGEST}


def loaded(folder: Path, **changes: Any) -> LoadedManifest:
    content = {
        "name": "small",
        "version": "1.0.0",
        "task": "image-classification",
        "models": [model("onnxruntime"), model("mxnet")],
        "inputs": [{"name": "x", "type": "tensor", "element_type": "float32"}],
        "outputs": [{"name": "y", "type": "classification"}],
        "evaluate": {"batch_sizes": [1, 8], "scenarios": ["single_stream", "offline"]},
    }
    path = folder / "m.yaml"
    path.write_text(yaml.safe_dump({**content, **changes}, sort_keys=False))
    return load(path)


def reference_of(framework: str) -> Stack | None:
    return STACKS[framework][0]


def cases(manifest: LoadedManifest, kind: Kind) -> list[Case]:
    return cases_of(manifest, kind, STACKS.__getitem__, reference_of)


def ids(found: list[Case]) -> list[str]:
    return [case.id for case in found]


def test_performance_has_a_case_for_each_size_and_scenario(tmp_path: Path) -> None:
    manifest = loaded(tmp_path, models=[model("onnxruntime")])
    assert ids(cases(manifest, "performance")) == [
        "first-cpu-b1-single_stream",
        "first-cpu-b8-single_stream",
        "first-cpu-b1-offline",
        "first-cpu-b8-offline",
    ]


def test_traces_have_a_case_for_each_size(tmp_path: Path) -> None:
    manifest = loaded(tmp_path, models=[model("onnxruntime")])
    assert ids(cases(manifest, "trace")) == ["first-cpu-b1", "first-cpu-b8"]


def test_without_a_dataset_accuracy_has_cases_for_tests_of_users(tmp_path: Path) -> None:
    manifest = loaded(tmp_path, models=[model("onnxruntime")])
    assert ids(cases(manifest, "accuracy")) == ["first-cpu"]


def test_accuracy_has_one_case_with_the_largest_batch(tmp_path: Path) -> None:
    dataset = {"name": "d", "version": "1.0.0", "source": "d.npz", "sha256": DIGEST}
    found = cases(loaded(tmp_path, dataset=dataset), "accuracy")
    assert ids(found) == ["first-cpu", "second-cpu"]
    assert {case.batch_size for case in found} == {8}


def test_without_an_agreement_nothing_is_compared(tmp_path: Path) -> None:
    assert cases(loaded(tmp_path), "agreement") == []


def test_an_agreement_leaves_out_the_reference(tmp_path: Path) -> None:
    manifest = loaded(tmp_path, thresholds={"agreement": {"reference": "onnxruntime"}})
    (case,) = cases(manifest, "agreement")
    assert case.id == "second-cpu"
    assert case.reference is not None
    assert case.reference.stack == FIRST
    assert case.reference.model.name == "onnxruntime"


def test_a_case_without_a_stack_for_its_reference_has_no_reference(tmp_path: Path) -> None:
    manifest = loaded(tmp_path, thresholds={"agreement": {"reference": "onnxruntime"}})
    found = cases_of(manifest, "agreement", STACKS.__getitem__, lambda framework: None)
    assert [case.reference for case in found] == [None, None]


def test_a_limit_judges_the_cases_that_it_selects(tmp_path: Path) -> None:
    limits = [{"max": "1 ms", "batch_sizes": [1]}, {"max": "9 ms", "frameworks": ["mxnet"]}]
    manifest = loaded(tmp_path, thresholds={"latency_p90": limits})
    values = {}
    for case in cases(manifest, "performance"):
        values[case.id] = [limit.value for limit in case.limits]
    assert values["first-cpu-b1-offline"] == [0.001]
    assert values["first-cpu-b8-offline"] == []
    assert values["second-cpu-b1-offline"] == [0.001, 0.009]


def test_a_limit_on_queries_judges_loads_and_that_on_the_peak_a_peak(tmp_path: Path) -> None:
    scenarios = [
        "single_stream",
        {"server": {"rate": "9 /s", "latency": "1 s"}},
        {"peak": {"latency": "1 s"}},
    ]
    thresholds = {
        "latency_p90": {"max": "9 s"},
        "query_rate": {"min": "8 /s"},
        "queue_delay": {"max": "1 ms", "scenarios": ["server"]},
        "peak_rate": {"min": "7 /s"},
    }
    evaluate = {"batch_sizes": [1], "scenarios": scenarios}
    manifest = loaded(tmp_path, evaluate=evaluate, thresholds=thresholds)
    judged = {}
    for case in cases(manifest, "performance"):
        judged[case.scenario] = {limit.quantity for limit in case.limits}
    assert judged["single_stream"] == {"latency_p90"}
    assert judged["server-9-1000ms"] == {"latency_p90", "query_rate", "queue_delay"}
    assert judged["peak-1000ms"] == {"peak_rate"}


def test_marks_are_for_a_framework_a_stack_or_a_pattern_of_the_id(tmp_path: Path) -> None:
    marks = {"xfail": {"mxnet": "known bug", "*-b8-offline": "too slow"}, "skip": {"first": "old"}}
    manifest = loaded(tmp_path, marks=marks)
    found = {case.id: list(case.marks) for case in cases(manifest, "performance")}
    assert found["first-cpu-b1-offline"] == [Mark("skip", "old")]
    assert found["second-cpu-b1-offline"] == [Mark("xfail", "known bug")]
    assert found["second-cpu-b8-offline"] == [
        Mark("xfail", "known bug"),
        Mark("xfail", "too slow"),
    ]


def test_threads_are_the_stacks_else_the_manifests(tmp_path: Path) -> None:
    manifest = loaded(tmp_path, evaluate={"threads": 4})
    case = cases(manifest, "trace")[0]
    assert case.threads == 4
    assert replace(case, stack=replace(FIRST, threads=2)).threads == 2


def test_an_upgrade_is_against_the_stacks_of_its_framework(tmp_path: Path) -> None:
    manifest = loaded(tmp_path, evaluate={"batch_sizes": [1]})
    older = Stack("older", "onnxruntime")
    baselines = {"onnxruntime": [older], "mxnet": [SECOND]}
    found = upgrades_of(manifest, STACKS.__getitem__, baselines.__getitem__)
    assert ids(found) == ["first-vs-older-cpu-b1", "second-aa-cpu-b1"]
    assert found[0].baseline.stack == older
    assert found[0].baseline.model.name == "onnxruntime"


def test_an_upgrade_may_be_against_another_framework(tmp_path: Path) -> None:
    manifest = loaded(tmp_path, evaluate={"batch_sizes": [1]})
    candidates = {"onnxruntime": [FIRST], "mxnet": []}
    baselines: dict[str, list[Stack]] = {"onnxruntime": [], "mxnet": [SECOND]}
    (upgrade,) = upgrades_of(manifest, candidates.__getitem__, baselines.__getitem__)
    assert upgrade.id == "first-vs-second-cpu-b1"
    assert upgrade.baseline.model.name == "mxnet"


def test_a_case_that_is_no_upgrade_has_no_baseline(tmp_path: Path) -> None:
    case = cases(loaded(tmp_path), "trace")[0]
    with pytest.raises(ValueError, match="is not an upgrade"):
        _ = case.baseline
