"""``mlms doctor``, on digits and on models whose manifests are broken on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pytest_mlms.cli.main import main
from tests.support.fileserver import serving
from tests.support.original_digits import serve_network_with_code
from tests.support.project import DIGITS, copy_digits, sha256

FUNCTIONS = ("preprocess", "postprocess")
MANIFEST = """\
name: made
version: 1.0.0
task: image-classification
models: [{{framework: onnxruntime, graph: made.onnx, sha256: "{model}"}}]
inputs:
  - name: x
    type: image
    element_type: float32
    layout: NCHW
    steps:
{steps}
outputs: [{{name: y, type: classification}}]
dataset: {{name: made, version: 1.0.0, source: made.npz, sha256: "{data}"}}
evaluate: {{batch_sizes: [8]}}
"""


def write_made(folder: Path, weights: Any, bias: Any, data: Any, *steps: str) -> None:
    """Write a model whose scores are linear in the mean of each channel, and its manifest."""
    shape = [None, 3, 8, 8]
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w", "b"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, len(bias)])],
        [
            numpy_helper.from_array(np.array(weights, np.float32), "w"),
            numpy_helper.from_array(np.array(bias, np.float32), "b"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, str(folder / "made.onnx"))
    images, labels = data
    np.savez(folder / "made.npz", x=images, label=labels)
    text = MANIFEST.format(
        model=sha256((folder / "made.onnx").read_bytes()),
        data=sha256((folder / "made.npz").read_bytes()),
        steps="\n".join(f"      - {step}" for step in steps),
    )
    (folder / "made.yaml").write_text(text)


def colored(count: int = 60) -> tuple[Any, Any]:
    """Return pictures of noise whose brightest channel is their class."""
    generator = np.random.default_rng(0)
    labels = generator.integers(3, size=count)
    images = generator.integers(0, 180, size=(count, 8, 8, 3))
    images[np.arange(count), :, :, labels] += 60
    return images.astype(np.uint8), labels


def bright(count: int = 60) -> tuple[Any, Any]:
    """Return pictures of noise that are bright or dark."""
    generator = np.random.default_rng(0)
    labels = generator.integers(2, size=count)
    images = generator.integers(0, 120, size=(count, 8, 8, 3)) + 120 * labels[:, None, None, None]
    return images.astype(np.uint8), labels


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_wrong_order_of_colours_is_found(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    eye = np.eye(3)
    write_made(folder, eye, [0, 0, 0], colored(), "decode: {color: BGR}")
    assert main(["doctor", "made.yaml"]) == 1
    output = capsys.readouterr().out
    assert output.startswith("made.yaml: top1 ")
    assert "\nRGB * " in output
    assert output.endswith("    steps:\n      - decode: {color: RGB}\n")


def test_a_wrong_range_is_found_and_its_lines_mend_the_manifest(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = [[-1, 1], [-1, 1], [-1, 1]]
    write_made(folder, weights, [1.4, -1.4], bright(), "decode: {color: RGB}")
    assert main(["doctor", "made.yaml"]) == 1
    output = capsys.readouterr().out
    assert "normalize: {mean: 0, scale: 255}" in output
    _, _, lines = output.partition("    steps:\n")
    text = (folder / "made.yaml").read_text()
    (folder / "made.yaml").write_text(text.replace("      - decode: {color: RGB}\n", lines))
    assert main(["doctor", "made.yaml"]) == 0
    assert "top1 100.00 % of 60 inputs as written" in capsys.readouterr().out


def test_nothing_is_better_than_the_digits_as_they_are(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", str(DIGITS / "digits.yaml"), "--inputs", "100"]) == 0
    assert "Nothing that was tried is surely better" in capsys.readouterr().out


def test_what_can_not_be_examined_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "nowhere.yaml"]) == 2
    assert "there is no manifest nowhere.yaml; name a .yaml" in capsys.readouterr().err
    assert main(["doctor", str(DIGITS / "digits_cnn.onnx")]) == 2
    assert "digits_cnn.onnx is not a .yaml file; name a manifest" in capsys.readouterr().err
    manifest = copy_digits(folder / "m")
    kept, _, _ = manifest.read_text().partition("dataset:")
    manifest.write_text(kept)
    assert main(["doctor", str(manifest)]) == 2
    assert "there is nothing to measure accuracy with; add a dataset" in capsys.readouterr().err


def test_python_in_the_place_of_steps_is_said_where_it_is_allowed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as server:
        code = [f"def {name}(ctx, data):\n    return data\n" for name in FUNCTIONS]
        (folder / "old.yml").write_text(serve_network_with_code(server, *code))
        assert main(["doctor", "old.yml"]) == 2
        assert "--mlms-allow-code" in capsys.readouterr().err
        assert main(["doctor", "old.yml", "--mlms-allow-code"]) == 2
        assert "its Python makes the inputs, and what is tried" in capsys.readouterr().err
