"""Pictures prepared as the agents of MLModelScope did, and scripts that run networks in frameworks.

Both are written from the study of the agents, with no code of pytest_mlms. The manifests are our
own, in tests/author/legacy/originals.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from PIL import Image

from pytest_mlms.core.records import Launch
from tests.support.colour_digits import ColourNetwork, colour_network
from tests.support.networks import CONVERT, convert
from tests.support.project import HANG_GUARD

__all__ = ["ORIGINALS", "Original", "outputs_of", "write_files"]

Array = NDArray[Any]

MEAN, SCALE = np.array([[40, 90, 140], [50, 60, 70]], np.float32)
SHARES_MEAN, SHARES_STD = np.array([[0.2, 0.4, 0.6], [0.2, 0.3, 0.5]], np.float32)


def stretched(picture: Image.Image, height: int, width: int) -> Array:
    """Return R, G, B as the agents of the dialects A resized them."""
    return np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR), np.float32)


def rgb_channels_last(picture: Image.Image) -> Array:
    return np.asarray((stretched(picture, 8, 16) - MEAN) / SCALE)


def rgb_channels_first(picture: Image.Image) -> Array:
    return rgb_channels_last(picture).transpose(2, 0, 1)


def bgr_channels_first(picture: Image.Image) -> Array:
    return rgb_channels_last(picture)[:, :, ::-1].transpose(2, 0, 1)


def old_rgb(picture: Image.Image) -> Array:
    """Return the pixels of MXNet's agent before 2019; the scale is 1."""
    return np.asarray(stretched(picture, 16, 8) - MEAN).transpose(2, 0, 1)


def old_bgr(picture: Image.Image) -> Array:
    """Return the pixels of the agents of Caffe, Caffe2, CNTK and TensorRT before 2019."""
    pixels = np.asarray((stretched(picture, 16, 8) - MEAN) / 25)
    return pixels[:, :, ::-1].transpose(2, 0, 1)


def torchvision(picture: Image.Image) -> Array:
    """Return Resize(20), CenterCrop(16), ToTensor, Normalize."""
    shorter = min(picture.size)
    width, height = (int(20 * side / shorter) for side in picture.size)
    left, top = round((width - 16) / 2), round((height - 16) / 2)
    resized = picture.resize((width, height), Image.Resampling.BILINEAR)
    shares = np.asarray(resized.crop((left, top, left + 16, top + 16)), np.float32) / 255
    return np.asarray((shares - SHARES_MEAN) / SHARES_STD).transpose(2, 0, 1)


@dataclass(frozen=True)
class Original:
    """A manifest's network, and what its agent did to a picture.

    ``runs_in`` is the framework that runs it here. ``has_softmax`` is set where the file or its
    agent of 2021 has one. ``made_by`` is a script of the tests, where the format isn't one of
    manifests/convert.
    """

    network: ColourNetwork
    prepare: Callable[[Image.Image], Array]
    runs_in: str
    made_by: str = ""
    has_softmax: bool = False


_RECENT = ColourNetwork((40, 90, 140), (50, 60, 70))
_OLD = ColourNetwork((40, 90, 140), (25, 25, 25), (2, 1), "BGR")

ORIGINALS = {
    "tensorflow": Original(
        replace(_RECENT, has_background=True, input="pixels", output="scores"),
        rgb_channels_last,
        "tensorflow",
        "freeze.py",
    ),
    "mxnet": Original(
        ColourNetwork((40, 90, 140), (1, 1, 1), (2, 1), input="data"), old_rgb, "mxnet"
    ),
    "pytorch": Original(_RECENT, rgb_channels_first, "pytorch", "trace.py", has_softmax=True),
    "caffe": Original(replace(_RECENT, color="BGR", input="data"), bgr_channels_first, "caffe"),
    "caffe2": Original(_OLD, old_bgr, "caffe2"),
    "cntk": Original(replace(_OLD, output="z"), old_bgr, "cntk"),
    "tensorrt": Original(replace(_OLD, input="data", output="prob"), old_bgr, "caffe"),
    "onnxruntime": Original(
        ColourNetwork((51, 102, 153), (51, 76.5, 127.5), (2, 2)),
        torchvision,
        "onnxruntime",
        has_softmax=True,
    ),
}
"""Name of a manifest, which is that of its framework -> what belongs to it."""

_CONVERTERS = {
    "freeze.py": """\
import tensorflow as tf
from network import arguments, report
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from to_tensorflow import _layer, _weights

network, target = arguments()
weights = _weights(network)

@tf.function
def run(flow):
    for layer in network.layers:
        flow = _layer(layer, flow, *weights.get(layer.name, ()))
    return flow

channels, height, width = network.shape
spec = tf.TensorSpec([None, height, width, channels], tf.float32, name=network.input)
frozen = convert_variables_to_constants_v2(run.get_concrete_function(spec))
with open(target + ".pb", "wb") as file:
    file.write(frozen.graph.as_graph_def().SerializeToString())
report(graph=target + ".pb")
""",
    "trace.py": """\
import torch
from network import arguments, report
from to_pytorch import Model

network, target = arguments()
layers = Model(network).eval().layers
torch.jit.trace(layers, torch.zeros(2, *network.shape)).save(target + ".pt")
report(graph=target + ".pt")
""",
}

_RUN = {
    "tensorflow": """\
import tensorflow as tf
graph = tf.compat.v1.GraphDef.FromString(open(files[0], "rb").read())
call = tf.compat.v1.wrap_function(
    lambda: tf.import_graph_def(graph, name=""), []
).prune("pixels:0", "scores:0")
y = call(tf.constant(x)).numpy()
""",
    "mxnet": """\
import mxnet
network = mxnet.gluon.SymbolBlock.imports(files[0], ["data"], files[1])
y = network(mxnet.nd.array(x)).asnumpy()
""",
    "pytorch": """\
import torch
y = torch.jit.load(files[0])(torch.from_numpy(x)).detach().numpy()
""",
    "caffe": """\
import caffe
network = caffe.Net(files[0], caffe.TEST, weights=files[1])
network.blobs["data"].reshape(*x.shape)
network.blobs["data"].data[...] = x
(y,) = network.forward().values()
""",
    "caffe2": """\
from caffe2.python import workspace
init, predict = open(files[1], "rb").read(), open(files[0], "rb").read()
(y,) = workspace.Predictor(init, predict).run([x])
""",
    "cntk": """\
import cntk
y = cntk.load_model(files[0]).eval(x)
""",
    "onnxruntime": """\
import onnxruntime
session = onnxruntime.InferenceSession(files[0], providers=["CPUExecutionProvider"])
(y,) = session.run(None, {session.get_inputs()[0].name: x})
""",
}
"""How a framework runs a model's ``files``, its graph and its weights, on pictures ``x``."""

_AROUND = """\
import sys
import numpy
files = sys.argv[3:]
x = numpy.load(sys.argv[1])
{run}
numpy.save(sys.argv[2], y)
"""


def write_files(original: Original, launch: Launch, folder: Path) -> dict[str, Path]:
    """Return the files of a network in the original's format, by their role.

    ``launch`` is of the framework that it runs in.
    """
    path = folder / "colours.onnx"
    onnx.save(colour_network(original.network), path)
    if not original.made_by:
        return convert(path, original.runs_in, launch, folder)
    script = folder / original.made_by
    script.write_text(f"import sys\nsys.path.insert(0, {str(CONVERT)!r})\n")
    with script.open("a") as file:
        file.write(_CONVERTERS[original.made_by])
    layers = folder / "n.npz"
    _run([sys.executable, CONVERT / "network.py", path, layers], None)
    printed = _run([launch.command[0], "-B", script, layers, folder / "colours"], launch.env)
    described = json.loads(printed.splitlines()[-1])
    return {role: Path(file["path"]) for role, file in described.items()}


def outputs_of(
    original: Original, launch: Launch, files: Mapping[str, Path], pictures: Array
) -> Array:
    """Return what the framework itself computes for pictures."""
    folder = files["graph"].parent
    np.save(folder / "x.npy", np.ascontiguousarray(pictures, np.float32))
    script = folder / "run.py"
    script.write_text(_AROUND.format(run=_RUN[original.runs_in]))
    ordered = [files[role] for role in ("graph", "weights") if role in files]
    arguments = [script, folder / "x.npy", folder / "y.npy", *ordered]
    _run([launch.command[0], "-B", *arguments], launch.env)
    return np.asarray(np.load(folder / "y.npy"))


def _run(command: list[str | Path], env: Mapping[str, str] | None) -> str:
    words = [str(part) for part in command]
    done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=HANG_GUARD)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
