"""Networks that are larger than the digits', so that gaps between layers don't weigh, in each
framework's format.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

from pytest_mlms.records import Launch
from tests.support.project import ROOT

MAKE = runpy.run_path(str(ROOT / "manifests" / "alexnet" / "make.py"))
CONVOLUTIONS = {"conv1": (32, False), "conv2": (64, True), "conv3": (64, True)}
"""Of the CNN on 32 x 32 images: name -> channels out, and whether a pooling follows."""


class Network(NamedTuple):
    """A network's input size, the images that it is asked about at once, and how many convolutions
    it has.
    """

    name: str
    size: int
    batch: int
    convolutions: int

    @property
    def images(self) -> np.ndarray:
        return np.random.default_rng(7).standard_normal(
            (self.batch, 3, self.size, self.size), np.float32
        )

    @property
    def options(self) -> dict[str, dict[str, str]]:
        """What a framework must be told beside its files."""
        return {"caffe2": {"inputs": f"image float32[?,3,{self.size},{self.size}]"}}


CNN32 = Network("cnn32", 32, 16, 3)
ALEXNET = Network("alexnet", MAKE["SIZE"], 2, 5)

CONVERT = ROOT / "manifests" / "convert"
READ_ONNX = ("onnxruntime", "openvino", "opencv")
CONVERTED_IN = {"tflite": "tensorflow"}
"""Whose files another framework makes."""


def write(network: Network, folder: Path) -> Path:
    """Write a network as ONNX, with weights drawn from a seed."""
    path = folder / f"{network.name}.onnx"
    onnx.save(MAKE["alexnet"]() if network is ALEXNET else _cnn32(), path)
    return path


def _cnn32() -> onnx.ModelProto:
    chain, channels = MAKE["Chain"](), 3
    for name, (outputs, pooled) in CONVOLUTIONS.items():
        chain.add("Conv", name, outputs, channels, 3, 3, kernel_shape=[3, 3], pads=[1] * 4)
        chain.add("Relu", name.replace("conv", "relu"))
        if pooled:
            chain.add("MaxPool", name.replace("conv", "pool"), kernel_shape=[2, 2], strides=[2, 2])
        channels = outputs
    chain.add("Flatten", "flatten", axis=1)
    chain.add("Gemm", "logits", 10, channels * 8 * 8, transB=1)
    shapes = {"image": ["batch", 3, 32, 32], "logits": ["batch", 10]}
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    ]
    graph = helper.make_graph(chain.nodes, "cnn32", values[:1], values[1:], chain.weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=4)
    onnx.checker.check_model(made, full_check=True)
    return made


def convert(network: Path, framework: str, launch: Launch, folder: Path) -> dict[str, Path]:
    """Return the files of a framework, by role; ``launch`` is of the framework that makes them."""
    if framework in READ_ONNX:
        return {"graph": network}
    target = folder / framework
    target.mkdir()
    _run([sys.executable, CONVERT / "network.py", network, target / "n.npz"], dict(os.environ))
    command = [
        launch.command[0],
        "-B",
        CONVERT / f"to_{framework}.py",
        target / "n.npz",
        target / "made",
    ]
    said = _run(command, dict(launch.env))
    files = {role: Path(file["path"]) for role, file in json.loads(said.splitlines()[-1]).items()}
    if files["graph"].suffix == ".zip":
        with zipfile.ZipFile(files["graph"]) as archive:
            archive.extractall(target / "unpacked")
        files["graph"] = target / "unpacked"
    return files


def _run(command: list[str | Path], env: dict[str, str]) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
