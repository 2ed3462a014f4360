"""The cost of one network in frameworks without a counter of their own, against sums by hand.

The network has groups, a transposed convolution and a fork. Each framework writes it itself.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.measure.structure.cost import ModelCost
from tests.support.frameworks import Framework, cost, in_its_stack, launch_of, python_of

SCRIPTS = {
    "caffe": """
import caffe, sys
IMAGE = 'name: "image" type: "Input" top: "image" input_param {shape {dim: 1 dim: 4 dim: 6 dim: 6}}'
CONV = 'num_output: 8 kernel_size: 3 pad: 1 group: 2 weight_filler {type: "xavier"}'
UP = 'num_output: 3 kernel_size: 2 stride: 2 weight_filler {type: "xavier"}'
LAYERS = [
    IMAGE,
    'name: "conv" type: "Convolution" bottom: "image" top: "conv" convolution_param {%s}' % CONV,
    'name: "relu" type: "ReLU" bottom: "conv" top: "conv"',
    'name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param {kernel_size: 3 stride: 1 pad: 1}',
    'name: "sum" type: "Eltwise" bottom: "conv" bottom: "pool" top: "sum"',
    'name: "up" type: "Deconvolution" bottom: "sum" top: "up" convolution_param {%s}' % UP,
    'name: "logits" type: "InnerProduct" bottom: "up" top: "logits" inner_product_param {num_output: 5}',
]
with open(sys.argv[1], "w") as file:
    file.write("\\n".join("layer {%s}" % layer for layer in LAYERS))
caffe.Net(sys.argv[1], caffe.TEST).save(sys.argv[2])
""",
    "caffe2": """
import sys
from caffe2.proto import caffe2_pb2
from caffe2.python.core import CreateOperator as op
net = caffe2_pb2.NetDef(name="net", external_output=["logits"], op=[
    op("Conv", ["image", "conv_w", "conv_b"], ["conv"], kernel=3, pad=1, group=2),
    op("Relu", ["conv"], ["conv"]),
    op("MaxPool", ["conv"], ["pool"], kernel=3, pad=1, stride=1),
    op("Sum", ["conv", "pool"], ["sum"]),
    op("ConvTranspose", ["sum", "up_w", "up_b"], ["up"], kernel=2, stride=2),
    op("FC", ["up", "logits_w", "logits_b"], ["logits"]),
])
shapes = dict(conv_w=[8, 2, 3, 3], conv_b=[8], up_w=[8, 3, 2, 2], up_b=[3], logits_w=[5, 432], logits_b=[5])
fill = caffe2_pb2.NetDef(op=[op("GaussianFill", [], [name], shape=shape) for name, shape in shapes.items()])
for path, one in zip(sys.argv[1:], [net, fill]):
    with open(path, "wb") as file:
        file.write(one.SerializeToString())
""",
    "mxnet": """
import sys
import mxnet as mx
image = mx.sym.Variable("image", shape=(0, 4, 6, 6))
conv = mx.sym.Convolution(image, num_filter=8, kernel=(3, 3), pad=(1, 1), num_group=2, name="conv")
relu = mx.sym.Activation(conv, act_type="relu", name="relu")
pool = mx.sym.Pooling(relu, kernel=(3, 3), pad=(1, 1), pool_type="max", name="pool")
both = mx.sym.elemwise_add(relu, pool, name="sum")
up = mx.sym.Deconvolution(both, num_filter=3, kernel=(2, 2), stride=(2, 2), no_bias=False, name="up")
logits = mx.sym.FullyConnected(up, num_hidden=5, name="logits")
logits.save(sys.argv[1])
shapes = dict(zip(logits.list_arguments(), logits.infer_shape(image=(1, 4, 6, 6))[0]))
shapes.pop("image")
mx.nd.save(sys.argv[2], {"arg:" + name: mx.nd.random.normal(shape=shape) for name, shape in shapes.items()})
""",
    "cntk": """
import sys
import cntk as C
def weight(*shape):
    return C.parameter(shape, init=C.normal(1))
image = C.input_variable((4, 6, 6), name="image")
conv = C.convolution(weight(8, 2, 3, 3), image, auto_padding=[False, True, True], groups=2) + weight(8, 1, 1)
relu = C.relu(conv)
both = relu + C.pooling(relu, C.MAX_POOLING, (3, 3), (1, 1), auto_padding=[False, True, True])
up = C.convolution_transpose(weight(8, 3, 2, 2), both, (1, 2, 2), auto_padding=[False] * 3) + weight(3, 1, 1)
C.plus(C.times(up, weight(3, 12, 12, 5)), weight(5), name="logits").save(sys.argv[1])
""",
}
OPTIONS: dict[str, dict[str, Any]] = {"caffe2": {"inputs": "image float32[?,4,6,6]"}}
IMAGES = np.random.default_rng(7).standard_normal((3, 4, 6, 6), np.float32)

BLOCKS = """
import sys
import cntk as C
with C.layers.default_options(activation=C.relu):
    rise = [C.layers.Convolution2D((3, 3), 8, pad=True), C.layers.ConvolutionTranspose2D((2, 2), 3, strides=2)]
    C.layers.Sequential(rise + [C.layers.Dense(5)])(C.input_variable((4, 6, 6), name="image")).save(sys.argv[1])
"""
SEQUENCE = """
import sys
import cntk as C
words = C.sequence.input_variable(6, name="words")
last = C.layers.Sequential([C.layers.Recurrence(C.layers.LSTM(5)), C.sequence.last, C.layers.Dense(3)])
last(words).save(sys.argv[1])
"""
LITE = """
import sys
import numpy
import tensorflow as tf
def weight(*shape):
    return numpy.random.default_rng(7).standard_normal(shape, "f4")
@tf.function(input_signature=[tf.TensorSpec([None, 6, 6, 4], tf.float32, name="image")])
def call(image):
    x = tf.nn.conv2d(image, weight(3, 3, 4, 8), 1, "SAME")
    x = tf.nn.depthwise_conv2d(x, weight(3, 3, 8, 1), [1, 1, 1, 1], "SAME")
    x = tf.nn.conv2d_transpose(x, weight(2, 2, 3, 8), tf.stack([tf.shape(x)[0], 12, 12, 3]), 2)
    x = tf.reshape(x, [-1, 36, 12])
    x = tf.matmul(x, x, transpose_b=True)
    return {"logits": tf.matmul(tf.reshape(x, [-1, 36 * 36]), weight(36 * 36, 5))}
with open(sys.argv[1], "wb") as file:
    file.write(tf.lite.TFLiteConverter.from_concrete_functions([call.get_concrete_function()], call).convert())
"""


Array = np.ndarray[Any, Any]
Layer = Sequence[Any]
"""The name of a layer that ran, its type, and more."""


def write_network(name: str, script: str, folder: Path) -> list[Path]:
    """Run a script in a framework's stack; return the files that it wrote: a graph, and weights."""
    launch = launch_of(name)
    assert launch
    graph = "net.prototxt" if name == "caffe" else "graph"
    paths = [folder / graph, folder / "weights"]
    interpreter = launch.command[0]
    command = [interpreter, "-B", "-W", "ignore", "-c", script, *map(str, paths)]
    environment = dict(launch.env)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [path for path in paths if path.exists()]


def load(framework: Framework, files: Sequence[Path], **options: Any) -> None:
    graph, *weights = files
    framework.load(graph, weights[0] if weights else None, **options)


@pytest.fixture
def framework(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Framework]:
    made = in_its_stack(request.param, tmp_path / "log")
    yield made
    made.agent.close()


def output(framework: Framework, images: Array = IMAGES) -> Array:
    reply = framework.agent.request("predict", arrays=[("image", images)])
    (array,) = reply.arrays.values()
    return array


def layers_that_ran(framework: Framework, images: Array = IMAGES) -> list[Layer]:
    """Return the layers of one call, as the framework's profiler tells them."""
    reply = framework.agent.request("profile", {"count": 1}, [("image", images)])
    ((_, _, layers),) = reply.facts["profiles"]
    found: list[Layer] = layers
    return found


def known_flops(cost: ModelCost) -> list[int]:
    return [layer.flops for layer in cost.layers if layer.flops]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "name"), [(name, name) for name in SCRIPTS], indirect=["framework"]
)
def test_the_cost_of_a_network_is_that_of_its_layers(
    framework: Framework, name: str, tmp_path: Path
) -> None:
    files = write_network(name, SCRIPTS[name], tmp_path)
    load(framework, files, **OPTIONS.get(name, {}))
    found = cost(framework.agent, image=(7, 4, 6, 6))
    products = [8 * 36 * 2 * 9, 8 * 36 * 3 * 4, 3 * 144 * 5]
    parameters = [8 * 2 * 9 + 8, 8 * 3 * 4 + 3, 3 * 144 * 5 + 5]
    sum_and_its_operands = 3 * 8 * 36
    assert known_flops(found) == [2 * 7 * number for number in products]
    assert found.unknown == ()
    assert found.parameters == sum(parameters)
    assert found.peak_bytes == 4 * 7 * sum_and_its_operands


@pytest.mark.parametrize(
    ("framework", "name"), [(name, name) for name in SCRIPTS], indirect=["framework"]
)
def test_the_cost_has_the_layers_that_run_and_leaves_the_model_as_it_was(
    framework: Framework, name: str, tmp_path: Path
) -> None:
    files = write_network(name, SCRIPTS[name], tmp_path)
    load(framework, files, **OPTIONS.get(name, {}))
    before = output(framework)
    found = cost(framework.agent, image=(7, 4, 6, 6))
    assert np.array_equal(output(framework), before)
    ran = [(layer[0], layer[1]) for layer in layers_that_ran(framework) if layer[1] != "Split"]
    assert ran == [(layer.name, layer.type) for layer in found.layers]


@pytest.mark.parametrize("framework", ["cntk"], indirect=True)
def test_layers_inside_of_cntk_s_blocks_are_counted(framework: Framework, tmp_path: Path) -> None:
    load(framework, write_network("cntk", BLOCKS, tmp_path))
    found = cost(framework.agent, image=(3, 4, 6, 6))
    products = [8 * 36 * 4 * 9, 8 * 36 * 3 * 4, 3 * 144 * 5]
    parameters = [8 * 4 * 9 + 8, 8 * 3 * 4 + 3, 3 * 144 * 5 + 5]
    transposed_convolution_with_and_without_bias = 2 * 3 * 144
    assert known_flops(found) == [2 * 3 * number for number in products]
    assert found.parameters == sum(parameters)
    assert found.peak_bytes == 4 * 3 * transposed_convolution_with_and_without_bias
    ran = [layer[0] for layer in layers_that_ran(framework)]
    assert ran == [layer.name for layer in found.layers]


@pytest.mark.parametrize("framework", ["cntk"], indirect=True)
def test_each_step_of_a_recurrence_of_cntk_is_counted(framework: Framework, tmp_path: Path) -> None:
    load(framework, write_network("cntk", SEQUENCE, tmp_path))
    found = cost(framework.agent, words=(2, 9, 6))
    initial_state = 1
    parameters = [(6 + 5) * 20 + 20, 5 * 3 + 3, initial_state]
    assert found.flops == 2 * 2 * (9 * (6 + 5) * 20 + 5 * 3)
    assert found.unknown == ()
    assert found.peak_bytes
    assert found.parameters == sum(parameters)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["tflite"], indirect=True)
def test_each_kind_of_product_of_tensorflow_lite_is_counted(
    framework: Framework, tmp_path: Path
) -> None:
    python_of("tensorflow")
    load(framework, write_network("tensorflow", LITE, tmp_path), xnnpack=False)
    images = IMAGES.transpose(0, 2, 3, 1).copy()
    before = output(framework, images)
    found = cost(framework.agent, image=(7, 6, 6, 4))
    products = {
        "CONV_2D": 8 * 36 * 4 * 9,
        "DEPTHWISE_CONV_2D": 8 * 36 * 9,
        "TRANSPOSE_CONV": 8 * 36 * 3 * 4,
        "BATCH_MATMUL": 36 * 36 * 12,
        "FULLY_CONNECTED": 36 * 36 * 5,
    }
    flops = {layer.type: layer.flops for layer in found.layers if layer.flops}
    assert flops == {kind: 2 * 7 * number for kind, number in products.items()}
    assert found.unknown == ()
    assert np.array_equal(output(framework, images), before)
    ran = [(layer[0], layer[1]) for layer in layers_that_ran(framework, images)]
    types_that_ran = {kind for _, kind in ran}
    counted = [(layer.name, layer.type) for layer in found.layers]
    assert ran == [(name, kind) for name, kind in counted if kind in types_that_ran]
