"""OpenVINO beside the contract: its options, its layers and its inner outputs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.measure.agent.process import Refused
from tests.support.frameworks import LAYERS, Framework, in_its_stack, python_of
from tests.support.project import DIGITS

GRAPH = DIGITS / "digits_cnn.onnx"


@pytest.fixture(scope="module")
def openvino(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framework]:
    framework = in_its_stack("openvino", tmp_path_factory.mktemp("agent") / "log")
    yield framework
    framework.agent.close()


def test_files_that_openvino_would_look_for_itself_are_refused(
    openvino: Framework, tmp_path: Path
) -> None:
    graph = tmp_path / "model.xml"
    graph.write_text("<net/>")
    with pytest.raises(Refused, match="there is no 'weights' file; write .*MODEL.bin"):
        openvino.load(graph)
    other = tmp_path / "model.pdmodel"
    other.write_bytes(b"")
    with pytest.raises(Refused, match=r"is neither \.onnx nor \.xml"):
        openvino.load(other)


@pytest.mark.parametrize(
    "options", [{}, {"hint": "throughput"}, {"precision": "f32", "hint": "latency"}]
)
def test_it_agrees_whatever_it_is_optimised_for(
    openvino: Framework, options: dict[str, Any]
) -> None:
    openvino.load(GRAPH, **options)
    openvino.check()


@pytest.mark.parametrize(
    ("name", "known"), [("precision", "f32, bf16, f16"), ("hint", "latency, throughput")]
)
def test_values_of_options_that_it_does_not_know_are_refused(
    openvino: Framework, name: str, known: str
) -> None:
    with pytest.raises(Refused, match=f"{name} is 'other'; write one of {known}"):
        openvino.load_files({"graph": GRAPH}, options={name: "other"})


def test_inner_outputs_are_the_onnx_files_and_fused_nodes_have_no_time(openvino: Framework) -> None:
    openvino.load(GRAPH)
    inner = openvino.inner()
    assert len(inner) == LAYERS
    assert "relu_1" in inner
    assert "relu_1" not in {layer.name for layer in openvino.layers()}


NAMELESS = """
import numpy
import openvino
from openvino import opset8

x = opset8.parameter([-1, 2], numpy.float32)
x.output(0).get_tensor().set_names({"x"})
results = [opset8.add(x, x), opset8.multiply(x, x)]
openvino.save_model(openvino.Model(results, [x]), "model.xml")
"""


def test_outputs_without_a_name_can_be_read(openvino: Framework, tmp_path: Path) -> None:
    """So are those of models that were converted from PyTorch.

    Some versions of OpenVINO name them by themselves; else they have their numbers.
    """
    python = python_of("openvino")
    subprocess.run([python, "-B", "-c", NAMELESS], cwd=tmp_path, check=True)
    facts = openvino.load(tmp_path / "model.xml", tmp_path / "model.bin")
    assert [tensor[0] for tensor in facts["inputs"]] == ["x"]
    first, second = [tensor[0] for tensor in facts["outputs"]]
    x = np.full((3, 2), 3, np.float32)
    arrays = openvino.agent.request("predict", arrays=[("x", x)]).arrays
    assert arrays[first].tolist() == [[6, 6]] * 3
    assert arrays[second].tolist() == [[9, 9]] * 3
