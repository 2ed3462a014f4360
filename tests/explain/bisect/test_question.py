"""The question of a bisection, and how wrong ones are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.explain.bisect.gate import check_quantity
from pytest_mlms.explain.bisect.question import (
    End,
    Question,
    exact_release,
    framework_for,
    question_of,
    read_point,
)
from tests.support.project import copy_digits


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = copy_digits(tmp_path / "manifests")
    monkeypatch.chdir(tmp_path)
    return path.relative_to(tmp_path)


@pytest.mark.parametrize(
    ("case", "size", "stack"),
    [
        (
            "test_upgrade[onnxruntime==1.31.1-vs-onnxruntime==1.30.0-cpu-b8]",
            8,
            "onnxruntime==1.31.1",
        ),
        ("test_upgrade[new-vs-old-cpu-b64]", 64, "new"),
        ("test_performance[onnxruntime-cpu-b1-single_stream]", 1, "onnxruntime"),
        ("test_upgrade[cpu-b8]", 8, ""),
    ],
)
def test_the_id_of_any_item_names_the_device_and_the_batch_size(
    manifest: Path, case: str, size: int, stack: str
) -> None:
    point = read_point(f"{manifest}::{case}")
    assert (point.device, point.batch_size, point.item) == ("cpu", size, stack)
    assert point.label == f"digits-cnn cpu-b{size}"


def test_the_id_of_an_item_under_load_names_its_load(manifest: Path) -> None:
    text = manifest.read_text()
    server = "scenarios: [offline, {server: {rate: 200 /s, latency: 15 ms}}]"
    manifest.write_text(text.replace("scenarios: [single_stream, offline]", server))
    load = "server-200-15ms"
    for case in (f"test_upgrade[new-vs-old-cpu-b1-{load}]", f"test_performance[new-cpu-b1-{load}]"):
        point = read_point(f"{manifest}::{case}")
        assert (point.batch_size, point.scenario, point.item) == (1, load, "new")
        assert point.case == f"cpu-b1-{load}"
    calls = read_point(f"{manifest}::test_upgrade[cpu-b1]")
    assert calls.scenario is None
    with pytest.raises(MlmsError, match="cpu-b1 has no load; write .*cpu-b1-SCENARIO"):
        check_quantity("query_latency", None, calls)
    check_quantity("query_latency", None, point)


def test_a_manifest_with_one_point_needs_no_case(manifest: Path) -> None:
    manifest.write_text(manifest.read_text().replace("[1, 8, 64]", "[8]"))
    assert read_point(str(manifest)).batch_size == 8
    assert read_point(f"{manifest}::test_upgrade").batch_size == 8


@pytest.mark.parametrize(
    ("nodeid", "problem"),
    [
        ("", "names no manifest"),
        ("nowhere.yaml::test_upgrade[cpu-b8]", "there is no nowhere.yaml below"),
        ("manifests", "there is no manifests below"),
        ("{}::test_upgrade[cpu-b9]", "it has cpu-b1, cpu-b8, cpu-b64: write one as in"),
        ("{}::test_upgrade[cuda-b8]", "no device and batch size of it ends 'cuda-b8'"),
        ("{}::test_accuracy[onnxruntime-cpu]", "it has cpu-b1"),
        ("{}", "there are several items"),
        ("manifests/labels.txt::test_upgrade", "labels.txt is not a .yaml file; name a manifest"),
    ],
)
def test_a_node_id_that_is_none_is_an_error(manifest: Path, nodeid: str, problem: str) -> None:
    with pytest.raises(MlmsError) as raised:
        read_point(nodeid.format(manifest))
    assert problem in str(raised.value)


@pytest.mark.parametrize("text", ["onnxruntime", "onnxruntime>=1.2", "onnxruntime==1.*", "a==1,<2"])
def test_an_end_is_one_release(text: str) -> None:
    with pytest.raises(MlmsError, match="is no release; write one as in"):
        exact_release(text, "--good")


def test_the_framework_is_the_package_or_named_beside_it(manifest: Path) -> None:
    point = read_point(f"{manifest}::test_upgrade[cpu-b8]")
    assert framework_for(point, ["onnxruntime-gpu==1.31.1"]) == "onnxruntime"
    assert framework_for(point, ["numpy==2.4.6", "onnxruntime==1.31.1"]) == "onnxruntime"
    with pytest.raises(MlmsError, match="numpy is no framework of .*digits.yaml.*--with"):
        framework_for(point, ["numpy==2.4.6"])


def test_a_question_differs_by_what_its_answer_depends_on(manifest: Path) -> None:
    point = read_point(f"{manifest}::test_upgrade[cpu-b8]")
    ends = (End("onnxruntime==1.1"), End("onnxruntime==1.2"))
    question = question_of(point, "onnxruntime", ends, "latency", None, ["numpy<2"])
    same = question_of(point, "onnxruntime", ends, "latency", None, ["numpy<2"])
    assert question.difference(same) == ""
    other = question_of(point, "onnxruntime", ends, "latency", 0.05, ["numpy<2"])
    assert question.difference(other) == "tolerance is 0.05 there, and not given here"
    manifest.with_name("digits_cnn.onnx").write_bytes(b"another model")
    assert question.model["graph"].startswith("237c")


def test_probes_of_other_circumstances_are_of_another_question(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = (End("onnxruntime==1.1"), End("onnxruntime==1.2"))
    stack = Stack("mine", "onnxruntime", requirements=("onnxruntime",), python="3.11.7")
    folder = tmp_path / "predictors"
    folder.mkdir()
    (folder / "own.py").write_text("1")

    def asked(like: Stack = stack) -> Question:
        point = read_point(f"{manifest}::test_upgrade[cpu-b8]")
        return question_of(point, "onnxruntime", ends, None, None, [], "mine", like, [folder])

    before = asked()
    assert before.difference(asked()) == ""
    older = replace(before, settings={})
    assert before.difference(older) == ""
    assert before.difference(asked(replace(stack, python="3.12"))) == "the Python was another"
    with_env = replace(stack, env=(("A", "1"),))
    assert before.difference(asked(with_env)) == "the stack was another"
    (folder / "own.py").write_text("2")
    assert before.difference(asked()) == "a predictor was another"
    (folder / "own.py").write_text("1")
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.invalid/simple")
    assert before.difference(asked()) == "the installer's configuration was another"
    monkeypatch.delenv("PIP_INDEX_URL")
    manifest.write_text(manifest.read_text().replace("color: L", "color: RGB"))
    assert before.difference(asked()) == "what the case measures was another"
