"""TensorFlow: TARGET_savedmodel.zip.

Its convolutions on the CPU take channels last, so the images are turned first.
"""

import tempfile
import zipfile
from pathlib import Path

import numpy
import tensorflow as tf
from network import arguments, report


def model(network):
    """Return the network as a function of images N x C x H x W that gives the output by its name."""
    constants, before = {}, network.shape
    for layer, size in zip(network.layers, network.sizes):
        if layer.weight is not None:
            weight = (
                layer.weight.transpose(2, 3, 1, 0)
                if layer.kind == "conv"
                else _dense(layer, before)
            )
            constants[layer.name] = tf.Variable(weight), tf.Variable(layer.bias)
        before = before if layer.kind == "flatten" else size

    def run(image):
        flow = tf.transpose(image, (0, 2, 3, 1))
        for layer in network.layers:
            flow = _layer(layer, flow, *constants.get(layer.name, ()))
        return {network.output: flow}

    module = tf.Module()
    module.variables_ = [variable for pair in constants.values() for variable in pair]
    signature = tf.TensorSpec([None, *network.shape], tf.float32, name=network.input)
    module.serve = tf.function(run, input_signature=[signature])
    return module


def _dense(layer, before):
    """Return inputs x outputs.

    What was flattened from C x H x W is flattened from H x W x C here.
    """
    if len(before) == 1:
        return layer.weight.T
    return layer.weight.reshape(-1, *before).transpose(2, 3, 1, 0).reshape(-1, len(layer.weight))


def _layer(layer, flow, weight=None, bias=None):
    if layer.kind == "relu":
        return tf.nn.relu(flow, name=layer.name)
    if layer.kind == "flatten":
        return tf.reshape(flow, (-1, int(numpy.prod(flow.shape[1:]))), name=layer.name)
    if layer.kind == "dense":
        return tf.nn.bias_add(tf.matmul(flow, weight), bias, name=layer.name)
    padding = [[0, 0], *([size, size] for size in layer.pad), [0, 0]]
    if layer.kind == "maxpool":
        if any(layer.pad):
            flow = tf.pad(flow, padding, constant_values=flow.dtype.min)
        return tf.nn.max_pool2d(flow, layer.kernel, layer.stride, "VALID", name=layer.name)
    return tf.nn.bias_add(tf.nn.conv2d(flow, weight, layer.stride, padding), bias, name=layer.name)


def save(module, path):
    """Write a SavedModel, and that into a zip file that is the same again for the same model."""
    with tempfile.TemporaryDirectory() as temporary:
        tf.saved_model.save(module, temporary, signatures={"serving_default": module.serve})
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(Path(temporary).rglob("*")):
                if file.is_file():
                    archive.writestr(
                        zipfile.ZipInfo(str(file.relative_to(temporary))), file.read_bytes()
                    )


def main():
    """Write the file."""
    network, target = arguments()
    save(model(network), target + "_savedmodel.zip")
    report(graph=target + "_savedmodel.zip")


if __name__ == "__main__":
    main()
