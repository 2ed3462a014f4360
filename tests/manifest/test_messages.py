"""Tests of the messages for errors in manifests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.tasks import TASKS
from tests.support.project import MANIFEST
from tests.support.small_manifest import DATASET, MODEL, error_of, errors_of, small

MISTAKES = {
    "version: 1.0.0\ntask": "version: 1.0\ntask",
    "onnxruntime >=1.17": "onnxrntime >=1.17",
    "float32": "fp32",
    "softmax,": "sofmax,",
    "5 ms": "5",
    "seed: 7": "seed: 7\n  seed: 8",
    "d68566f63": "d68566f6",
    "{max: 256 MiB}": "{min: 256 MiB}",
}


def test_all_errors_of_a_file_are_reported_at_once_with_their_lines(tmp_path: Path) -> None:
    text = MANIFEST.read_text()
    for right, wrong in MISTAKES.items():
        assert right in text
        text = text.replace(right, wrong)
    digest = "237cb7d43b2c3390032ae68b3c9f9d5f570a7620e6614908a597254d68566f6"
    keys = "batch_sizes, devices, frameworks, max, scenarios, shapes"
    framework = "'onnxruntime'? (--mlms-predictors DIR adds others)"
    units = "ns, us, µs, ms, s, min, as in '5 ns'"
    assert errors_of(tmp_path, text) == [
        "2: version: found 1.0; write a semantic version, as in 1.0.0",
        f"9: models[0].framework: no predictor for 'onnxrntime'; did you mean {framework}",
        f"11: models[0].sha256: found '{digest}'; write 64 hexadecimal digits, as sha256sum prints",
        "16: inputs[0].element_type: 'fp32' is not known; write 'float32'",
        "25: outputs[0].steps[0]: unknown key 'sofmax'; did you mean 'softmax'?",
        "40: has the key 'seed' again, first on line 39; keep one",
        f"45: thresholds.latency_p90.max: 5 has no unit; write one of {units}",
        "47: thresholds.peak_memory: 'max' is missing; write 'max: …'",
        f"47: thresholds.peak_memory: unknown key 'min'; write one of {keys}",
    ]


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ("float", "write 'float32'"),
        ("double", "write 'float64'"),
        ("float63", "did you mean 'float64'?"),
        ("text", "write one of float16, float32"),
    ],
)
def test_an_element_type_of_another_name_says_what_to_write(
    tmp_path: Path, wrong: str, advice: str
) -> None:
    tensor = {"name": "x", "type": "tensor", "element_type": wrong}
    error = error_of(tmp_path, small(inputs=[tensor]))
    assert f"inputs[0].element_type: {wrong!r} is not known; {advice}" in error


@pytest.mark.parametrize(
    ("section", "values"),
    [("inputs", "image, audio, text, tensor"), ("outputs", "classification, tensor")],
)
def test_a_missing_type_is_an_error_with_its_values(
    tmp_path: Path, section: str, values: str
) -> None:
    parts = {
        "inputs": {"name": "x", "element_type": "float32"},
        "outputs": {"name": "y"},
    }
    error = error_of(tmp_path, small(**{section: [parts[section]]}))
    assert f"'type' is missing; write 'type: …', one of {values}" in error


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": []}, "models: is empty; write at least 1"),
        ({"models": {}}, "models: found a mapping; write a list, '- …' for each"),
        ({"version": "1.0"}, "version: found '1.0'; write a semantic version, as in 1.0.0"),
        (
            {"dataset": {**DATASET, "sha256": None}},
            "dataset.sha256: found nothing; write 64 hexadecimal digits, as sha256sum prints",
        ),
        (
            {"evaluate": {"batch_sizes": [0]}},
            "evaluate.batch_sizes[0]: found 0; write greater than or equal to 1",
        ),
        (
            {"evaluate": {"devices": ["gpu"]}},
            "evaluate.devices[0]: found 'gpu'; did you mean 'cuda'?",
        ),
        (
            {"evaluate": {"devices": ["cudo:1"]}},
            "evaluate.devices[0]: found 'cudo:1'; did you mean 'cuda'?",
        ),
        (
            {"evaluate": {"scenarios": ["ofline"]}},
            "evaluate.scenarios[0]: unknown key 'ofline'; did you mean 'offline'?",
        ),
        ({"marks": {"xfial": {}}}, "marks.xfial: 'xfial' is not known; did you mean 'xfail'?"),
        ({"license": 7}, "license: found 7; write text"),
        ({"inputs": [7]}, "inputs[0]: found 7; write keys and values"),
    ],
)
def test_a_wrong_value_says_what_to_write(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    assert error_of(tmp_path, small(**changes)).endswith(f": {message}")


def test_a_missing_key_is_named_with_a_hint(tmp_path: Path) -> None:
    model = {key: value for key, value in MODEL.items() if key != "graph"}
    error = error_of(tmp_path, small(models=[{**model, "sha256": MODEL["sha256"]}]))
    message = "'graph' is missing; write 'graph: …', a path, https://, file://, pypi:, hf:, s3://, gs://, az:// or doi:"
    assert error.endswith(f"models[0]: {message}")


def test_an_unknown_key_of_the_document_has_no_path(tmp_path: Path) -> None:
    error = error_of(tmp_path, small(thresholdz={}))
    assert error.endswith(": unknown key 'thresholdz'; did you mean 'thresholds'?")


@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_wrong_quantity_is_advised_by_those_of_the_task(tmp_path: Path, name: str) -> None:
    others = {one for facts in TASKS.values() for one in facts.quantities}
    others -= set(TASKS[name].quantities)
    for quantity in (*others, "mean_ap", "accuracy"):
        wrong = f"{quantity}_x"
        error = error_of(tmp_path, small(task=name, thresholds={wrong: {"min": 0.5}}))
        (line,) = [line for line in error.splitlines() if "unknown key" in line]
        advice = line.partition(f"thresholds: unknown key {wrong!r}; ")[2]
        assert others.isdisjoint(re.findall(r"\w+", advice)), line
        if advice.startswith("write one of"):
            assert advice.startswith(f"write one of {', '.join(TASKS[name].quantities)}, ")


def test_an_error_in_a_single_limit_has_no_index(tmp_path: Path) -> None:
    error = error_of(tmp_path, small(thresholds={"latency_p50": {"max": "5 parsecs"}}))
    assert "thresholds.latency_p50.max: '5 parsecs' has the unit 'parsecs'" in error
