"""The network that a model's ONNX file is, and what the scripts of manifests/convert make of it in
each framework.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.frameworks import Framework, python_of
from tests.support.networks import CONVERTED_IN
from tests.support.project import DIGITS, ROOT

CONVERT = ROOT / "manifests" / "convert"
MODULES = {
    "caffe": "caffe",
    "caffe2": "caffe2",
    "cntk": "cntk",
    "jax": "jax",
    "mxnet": "mxnet",
    "pytorch": "torch",
    "tensorflow": "tensorflow",
    "tflite": "tensorflow",
}
OPTIONS = {"caffe2": {"inputs": "image float32[?,1,8,8]"}}


@pytest.fixture(scope="module")
def network() -> ModuleType:
    spec = importlib.util.spec_from_file_location("network", CONVERT / "network.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["network"] = module  # NamedTuple looks its types up there
    spec.loader.exec_module(module)
    return module


def test_the_digits_network_is_read_layer_by_layer_and_comes_back_from_its_file(
    network: ModuleType, tmp_path: Path
) -> None:
    found = network.read_onnx(DIGITS / "digits_cnn.onnx")
    kinds = [
        "conv",
        "relu",
        "conv",
        "relu",
        "maxpool",
        "conv",
        "relu",
        "maxpool",
        "flatten",
        "dense",
    ]
    assert [layer.kind for layer in found.layers] == kinds
    assert (found.input, found.shape, found.output) == ("image", (1, 8, 8), "logits")
    assert found.sizes[0] == (16, 8, 8)
    assert found.sizes[-3:] == [(64, 2, 2), (256,), (10,)]
    network.save(found, tmp_path / "n.npz")
    again = network.load(tmp_path / "n.npz")
    assert again.sizes == found.sizes
    for one, other in zip(found.layers, again.layers, strict=True):
        assert one[:5] == other[:5]
        assert (one.weight is None) == (other.weight is None)
        assert one.weight is None or np.array_equal(one.weight, other.weight)


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (
            helper.make_node("Sigmoid", ["x"], ["y"], name="s"),
            "Sigmoid 's' is not what a plain CNN has",
        ),
        (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], ceil_mode=1), "ceil_mode"),
        (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], pads=[0, 0, 1, 1]), "pads"),
        (
            helper.make_node("Relu", ["z"], ["y"], name="r"),
            "'r' does not take what the node before it gave",
        ),
    ],
)
def test_what_is_no_plain_cnn_is_refused(
    network: ModuleType, tmp_path: Path, node: onnx.NodeProto, says: str
) -> None:
    value = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1, 4, 4]) for name in "xy"
    ]
    onnx.save(
        helper.make_model(helper.make_graph([node], "g", value[:1], value[1:])), tmp_path / "m.onnx"
    )
    with pytest.raises(ValueError, match=says):
        network.read_onnx(tmp_path / "m.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("framework", sorted(MODULES))
def test_a_conversion_computes_what_onnx_runtime_does(
    network: ModuleType, tmp_path: Path, framework: str
) -> None:
    made_by = python_of(CONVERTED_IN.get(framework, framework), MODULES[framework])
    runs_in = python_of(framework, {"tflite": "ai_edge_litert"}.get(framework, MODULES[framework]))
    network.save(network.read_onnx(DIGITS / "digits_cnn.onnx"), tmp_path / "n.npz")
    libraries = Path(made_by).parents[1] / "mpi"  # CNTK asks for Open MPI under an old name
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)} if libraries.exists() else None
    command = [
        made_by,
        "-B",
        str(CONVERT / f"to_{framework}.py"),
        str(tmp_path / "n.npz"),
        str(tmp_path / "made"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    files = {
        role: Path(file["path"]) for role, file in json.loads(done.stdout.splitlines()[-1]).items()
    }
    if files["graph"].suffix == ".zip":
        with zipfile.ZipFile(files["graph"]) as archive:
            archive.extractall(tmp_path / "unpacked")
        files["graph"] = tmp_path / "unpacked"
    agent = Framework(runs_in, framework, tmp_path / "log")
    try:
        agent.load(**files, **OPTIONS.get(framework, {}))
        agent.check()
    finally:
        agent.agent.close()
