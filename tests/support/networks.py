"""Networks that are larger than the digits model, in the format of each framework.

Their layers take so long that the gaps between layers don't matter.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

from pytest_mlms.core.records import Launch
from tests.support.project import ROOT

MAKE = runpy.run_path(str(ROOT / "manifests" / "alexnet" / "make.py"))
CONVERT = ROOT / "manifests" / "convert"
READ_ONNX = ("onnxruntime", "openvino", "opencv")

CONVERTED_IN = {"tflite": "tensorflow"}
"""Framework -> the framework that makes its files, where that is another."""


class Network(NamedTuple):
    """A network on square images, and the batch that it is tested with."""

    name: str
    size: int
    batch: int
    convolutions: int

    @property
    def images(self) -> np.ndarray:
        """A batch of random images, N x 3 x size x size."""
        shape = (self.batch, 3, self.size, self.size)
        return np.random.default_rng(7).standard_normal(shape, np.float32)

    @property
    def options(self) -> dict[str, dict[str, str]]:
        """Options of the predictors that need more than the files, by framework."""
        return {"caffe2": {"inputs": f"image float32[?,3,{self.size},{self.size}]"}}


class Convolution(NamedTuple):
    """A convolution of the CNN on 32 x 32 images."""

    name: str
    channels: int
    is_pooled: bool


CNN32 = Network("cnn32", size=32, batch=16, convolutions=3)
ALEXNET = Network("alexnet", size=MAKE["SIZE"], batch=2, convolutions=5)

_CONVOLUTIONS = [
    Convolution("conv1", 32, is_pooled=False),
    Convolution("conv2", 64, is_pooled=True),
    Convolution("conv3", 64, is_pooled=True),
]


def write(network: Network, folder: Path) -> Path:
    """Write a network as ONNX, with weights drawn from a seed."""
    path = folder / f"{network.name}.onnx"
    model = MAKE["alexnet"]() if network is ALEXNET else _cnn32()
    onnx.save(model, path)
    return path


def _cnn32() -> onnx.ModelProto:
    chain = MAKE["Chain"]()
    channels = 3
    for convolution in _CONVOLUTIONS:
        _add_convolution(chain, convolution, channels)
        channels = convolution.channels
    chain.add("Flatten", "flatten", axis=1)
    chain.add("Gemm", "logits", 10, channels * 8 * 8, transB=1)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 32, 32])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(chain.nodes, "cnn32", [image], [logits], chain.weights)
    opset = helper.make_opsetid("", 9)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=4)
    onnx.checker.check_model(model, full_check=True)
    return model


def _add_convolution(chain: Any, convolution: Convolution, inputs: int) -> None:
    name = convolution.name
    chain.add(
        "Conv", name, convolution.channels, inputs, 3, 3, kernel_shape=[3, 3], pads=[1, 1, 1, 1]
    )
    chain.add("Relu", name.replace("conv", "relu"))
    if convolution.is_pooled:
        pool = name.replace("conv", "pool")
        chain.add("MaxPool", pool, kernel_shape=[2, 2], strides=[2, 2])


def convert(network: Path, framework: str, launch: Launch, folder: Path) -> dict[str, Path]:
    """Return the files of a framework, by role.

    ``launch`` is of the framework that makes them.
    """
    if framework in READ_ONNX:
        return {"graph": network}
    target = folder / framework
    target.mkdir()
    layers = target / "n.npz"
    _run([sys.executable, CONVERT / "network.py", network, layers], dict(os.environ))
    script = CONVERT / f"to_{framework}.py"
    output = _run([launch.command[0], "-B", script, layers, target / "made"], dict(launch.env))
    described = json.loads(output.splitlines()[-1])
    files = {role: Path(file["path"]) for role, file in described.items()}
    if files["graph"].suffix == ".zip":
        files["graph"] = _unpacked(files["graph"], target / "unpacked")
    return files


def _unpacked(archive: Path, folder: Path) -> Path:
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)
    return folder


def _run(command: list[str | Path], env: dict[str, str]) -> str:
    words = [str(part) for part in command]
    done = subprocess.run(words, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
