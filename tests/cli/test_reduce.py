"""Tests of ``mlms reduce``: what it refuses, and what it asks."""

from __future__ import annotations

import platform
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from pytest_mlms.cli.main import main
from pytest_mlms.explain.repro.archive import read_bundle, write_bundle
from pytest_mlms.explain.repro.bundle import BundleSide
from pytest_mlms.measure.agent.registry import find_predictors
from tests.support.onnx_models import ModelBuilder
from tests.support.reductions import bundle_of, deep_network

USAGE = 2


def written_bundle(folder: Path) -> Path:
    path = folder / "deep.zip"
    write_bundle(bundle_of(deep_network(folder)), path)
    return path


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["gone.zip"], "there is no gone.zip; make one with mlms repro"),
        (["x.zip", "--out=x.zip"], "x.zip is what to reduce; name another file with --out"),
        (["x.zip", "--out=gone/y.zip"], "there is no folder gone; make it"),
        (["x.onnx"], "x.onnx is a model alone; name what judges it with --check"),
        (["x.onnx", "--check=true"], "x.onnx has no inputs; name them with --inputs FILE.npz"),
        (
            ["x.onnx", "--check=true", "--inputs=x.npz"],
            "there is no x.onnx; name one that is there",
        ),
        (["x.zip", "--inputs=x.npz"], "--inputs are those of a MODEL.onnx; leave it out"),
        (
            ["x.onnx", "--check=true", "--inputs=y.npz", "--out=y.onnx"],
            "y.npz would be overwritten; name another file with --out",
        ),
        (
            ["x.onnx", "--check=true", "--inputs=x.npz", "--out=y.npz"],
            "y.npz has the suffix of the inputs beside it; name FILE.onnx with --out",
        ),
        (["x.zip", "--check=x 'y"], '"x \'y" is no command: No closing quotation'),
        (["x.zip", "--check="], "it names no command"),
        (["x.zip", "--budget=0"], "'0' is no number of seconds above 0"),
        (["x.zip", "--budget=nan"], "'nan' is no number of seconds above 0"),
    ],
)
def test_wrong_words_are_refused_with_advice(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["reduce", *words])
    except SystemExit as end:
        status = int(str(end.code))
    assert status == USAGE
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("answer", ["", "no\n", "n\n"])
def test_a_bundle_is_not_installed_unless_a_person_agrees(
    tmp_path: Path,
    answer: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "answer").write_text(answer)
    with (tmp_path / "answer").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert main(["reduce", str(written_bundle(tmp_path))]) == USAGE
    said = capsys.readouterr().err
    assert "old is Python 3.11.7" in said
    assert "nothing was installed" in said


def test_the_code_in_a_bundle_is_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written_bundle(tmp_path)  # with a predictor that is no one's here
    assert main(["reduce", str(path), "--yes"]) == USAGE
    assert "no predictor for operators is installed here" in capsys.readouterr().err


def test_a_file_that_is_no_bundle_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.zip"
    path.write_bytes(b"PK")
    assert main(["reduce", str(path), "--yes"]) == USAGE
    assert "is no bundle that can be read" in capsys.readouterr().err


def test_a_model_alone_is_reduced_by_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = np.random.default_rng(0).normal(size=(3, 2, 12, 12)).astype(np.float32)
    np.savez(tmp_path / "in.npz", x=inputs)
    code = "import onnx, sys; sys.exit('MaxPool' in str(onnx.load(sys.argv[1]).graph.node))"
    words = [str(pooled_network(tmp_path)), f"--inputs={tmp_path / 'in.npz'}"]
    out = tmp_path / "small.onnx"
    check = shlex.join([sys.executable, "-c", code])
    assert main(["reduce", *words, f"--check={check}", f"--out={out}"]) == 0
    said = capsys.readouterr().out
    assert "smallest model: 1 of 31 nodes (MaxPool), batch 1 of 3" in said
    assert f"{out} still fails the command, with the inputs {tmp_path / 'small.npz'}" in said
    assert [node.op_type for node in onnx.load(str(out)).graph.node] == ["MaxPool"]
    assert np.load(tmp_path / "small.npz")["b7"].shape == (1, 2, 12, 12)


def test_a_result_that_can_not_be_written_is_told_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "in.npz", x=np.ones((1, 2, 12, 12), np.float32))
    (tmp_path / "small.onnx").mkdir()
    words = [str(pooled_network(tmp_path)), f"--inputs={tmp_path / 'in.npz'}", "--check=false"]
    assert main(["reduce", *words, f"--out={tmp_path / 'small.onnx'}"]) == USAGE
    said = capsys.readouterr().err
    assert f"--out: {tmp_path / 'small.onnx'} is a folder; name a file" in said


def pooled_network(folder: Path) -> Path:
    """Save a model of 31 nodes, of which one pools otherwise since onnxruntime 1.21.0."""
    model = ModelBuilder()
    model.add_input("x", "N", 2, 12, 12)
    last = "x"
    for number in range(15):
        model.add("Sigmoid", last, f"a{number}")
        model.add("Tanh", f"a{number}", f"b{number}")
        last = f"b{number}"
        if number == 7:
            sizes = {"kernel_shape": [2, 2], "strides": [3, 3], "pads": [0, 0, 1, 1]}
            model.add("MaxPool", last, "pool", ceil_mode=1, **sizes)
            last = "pool"
    model.add_output(last, "N", 2, "H", "W")
    return model.save(folder)


def release(name: str, version: str) -> BundleSide:
    packages = (f"onnxruntime=={version}", "numpy==2.2.6")
    return BundleSide(name, f"onnxruntime {version}", platform.python_version(), packages)


@pytest.mark.slow
@pytest.mark.skipif(
    not (3, 10) <= sys.version_info[:2] <= (3, 13), reason="onnxruntime 1.20.1 has no wheel"
)
def test_a_change_of_a_release_is_reduced_to_its_operator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = np.random.default_rng(0).normal(size=(3, 2, 12, 12)).astype(np.float32)
    bundle = replace(
        bundle_of(pooled_network(tmp_path)),
        predictor=find_predictors()["onnxruntime"],
        inputs={"x": inputs},
        old=release("old", "1.20.1"),
        new=release("new", "1.21.0"),
    )
    write_bundle(bundle, tmp_path / "whole.zip")
    out = tmp_path / "reduced.zip"
    words = [str(tmp_path / "whole.zip"), "--yes", "--out", str(out)]
    assert main(["reduce", *words]) == 0
    said = capsys.readouterr().out
    assert "first departing layer: MaxPool_16 (MaxPool)" in said
    assert "smallest model: 1 of 31 nodes (MaxPool), batch 1 of 3" in said
    assert read_bundle(out, tmp_path / "read").inputs["b7"].shape == (1, 2, 12, 12)
