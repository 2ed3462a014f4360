"""Shapes of a manifest as cases, and those of a dataset as groups that are judged one by one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.decide.upgrade.setting import point_id
from pytest_mlms.explain.bisect.question import read_point
from tests.support.project import PREDICTORS, sha256

MANIFEST = """
name: mixed
version: 1.0.0
task: image-classification
models: [{{framework: lengths, graph: model.bin, sha256: {model}}}]
inputs: [{{name: ids, type: tensor, element_type: float32, shape: [batch, tokens]}}]
outputs: [{{name: sum, type: tensor}}]
{dataset}evaluate: {{shapes: {shapes}}}
thresholds: {{latency_p50: {{max: 0.6 ms{filters}}}}}
"""
NAMED = "{short: {tokens: 16}, long: {tokens: 512}}"
FEW = ("--mlms-processes=2", "--mlms-duration=0.05", "--mlms-budget=2")


def write(
    pytester: pytest.Pytester, shapes: str, lengths: tuple[int, ...] = (), filters: str = ""
) -> None:
    """Write a project; its manifest has a dataset where there are ``lengths`` of its elements."""
    model = pytester.path / "model.bin"
    model.write_bytes(b"x")
    dataset = ""
    if lengths:
        folder = pytester.mkdir("data")
        rows = ["ids,label"]
        for number, length in enumerate(lengths):
            np.save(folder / f"{number}.npy", np.full(length, number, np.float32))
            rows.append(f"{number}.npy,0")
        (folder / "labels.csv").write_text("\n".join(rows))
        archive = pytester.path / "set.zip"
        shutil.make_archive(str(archive.with_suffix("")), "zip", folder)
        digest = sha256(archive.read_bytes())
        dataset = f"dataset: {{name: d, version: 1.0.0, source: set.zip, sha256: {digest}}}\n"
    content = MANIFEST.format(
        model=sha256(model.read_bytes()), shapes=shapes, dataset=dataset, filters=filters
    )
    Path(pytester.path, "m.yaml").write_text(content)


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(
        "--mlms-manifests=m.yaml", f"--mlms-predictors={PREDICTORS}", *FEW, *options
    )


def lines(pytester: pytest.Pytester) -> list[dict[str, Any]]:
    (path,) = pytester.path.glob("**/results.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines() if '"nodeid"' in line]


def test_each_shape_is_an_item_of_its_own(pytester: pytest.Pytester) -> None:
    write(pytester, NAMED, filters=", shapes: [short]")
    run(pytester, "--mlms-results=out").assert_outcomes(passed=2)
    by_shape = {line["shape"]: line for line in lines(pytester)}
    assert by_shape["short"]["case"] == "lengths-cpu-b1-single_stream-short"
    p50 = {shape: line["estimates"]["latency_p50"]["value"] for shape, line in by_shape.items()}
    assert p50["long"] > 3 * p50["short"]


def test_a_dataset_is_evaluated_beside_the_shapes(pytester: pytest.Pytester) -> None:
    write(pytester, NAMED, (16,))
    found = run(pytester, "--collect-only", "-q", "--mlms-aa").outlines
    ids = [line.partition("[")[2] for line in found if "test_upgrade" in line]
    assert [each.partition("b1")[2] for each in ids] == ["]", "-short]", "-long]"]


def test_a_shape_that_the_model_refuses_is_told_by_name(pytester: pytest.Pytester) -> None:
    write(pytester, "{short: {tokens: 13}}")
    result = run(pytester, "--mlms-results=out")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*m.yaml:*: the model refuses shape 'short' (tokens: 13);*"])


def test_the_worst_group_of_a_dataset_is_what_a_limit_judges(pytester: pytest.Pytester) -> None:
    write(pytester, "dataset", (16,) * 19 + (512,))
    result = run(pytester, "--mlms-results=out")
    result.stdout.fnmatch_lines(["*latency_p50 with inputs of shape 512*at most 600*"])
    (line,) = lines(pytester)
    assert line["case"] == "lengths-cpu-b1-single_stream"
    assert line["verdict"] != "PASSED"


def test_upgrades_have_shapes_and_their_points_name_them(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(pytester, NAMED)
    run(pytester, "--mlms-aa", "--mlms-results=out", "-k", "long")
    (line,) = lines(pytester)
    assert (line["shape"], line["case"]) == ("long", "lengths-aa-cpu-b1-long")
    assert line["verdict"] in ("PASSED", "INCONCLUSIVE")
    monkeypatch.chdir(pytester.path)
    point = read_point(point_id("m.yaml", "cpu", 1, shape="long"))
    assert (point.case, point.shape) == ("cpu-b1-long", "long")
    assert read_point(line["nodeid"]).shape == "long"


def test_groups_that_are_all_of_one_shape_are_refused(pytester: pytest.Pytester) -> None:
    write(pytester, "dataset", (16, 16))
    result = run(pytester, "--mlms-results=out")
    result.stdout.fnmatch_lines(["*m.yaml:*: all inputs of the dataset have one shape; leave*"])
