"""TensorFlow: TARGET_savedmodel.zip.

Its convolutions on the CPU take channels last, so the images are transposed first.
"""

import tempfile
import zipfile
from pathlib import Path

import numpy
import tensorflow as tf
from network import arguments, report


def model(network):
    """Return the network as a function of images N x C x H x W.

    It gives the output by its name.
    """
    weights = _weights(network)

    def run(image):
        flow = tf.transpose(image, (0, 2, 3, 1))
        for layer in network.layers:
            flow = _layer(layer, flow, *weights.get(layer.name, ()))
        return {network.output: flow}

    module = tf.Module()
    module.variables_ = []
    for pair in weights.values():
        module.variables_ += pair
    signature = tf.TensorSpec([None, *network.shape], tf.float32, name=network.input)
    module.serve = tf.function(run, input_signature=[signature])
    return module


def _weights(network):
    """Return weight and bias of each layer that has them, by its name, for channels last."""
    found = {}
    before = network.shape
    for layer, size in zip(network.layers, network.sizes):
        if layer.kind == "conv":
            weight = layer.weight.transpose(2, 3, 1, 0)
            found[layer.name] = [tf.Variable(weight), tf.Variable(layer.bias)]
        elif layer.kind == "dense":
            weight = _dense_weight(layer, before)
            found[layer.name] = [tf.Variable(weight), tf.Variable(layer.bias)]
        if layer.kind != "flatten":
            before = size
    return found


def _dense_weight(layer, before):
    """Return inputs x outputs.

    ``before`` is the shape that was flattened: from C x H x W, and here from H x W x C.
    """
    if len(before) == 1:
        return layer.weight.T
    outputs = len(layer.weight)
    weight = layer.weight.reshape(-1, *before)
    return weight.transpose(2, 3, 1, 0).reshape(-1, outputs)


def _layer(layer, flow, weight=None, bias=None):
    if layer.kind == "relu":
        return tf.nn.relu(flow, name=layer.name)
    if layer.kind == "flatten":
        size = int(numpy.prod(flow.shape[1:]))
        return tf.reshape(flow, (-1, size), name=layer.name)
    if layer.kind == "dense":
        product = tf.matmul(flow, weight)
        return tf.nn.bias_add(product, bias, name=layer.name)
    top, left = layer.pad
    padding = [[0, 0], [top, top], [left, left], [0, 0]]
    if layer.kind == "maxpool":
        if any(layer.pad):
            flow = tf.pad(flow, padding, constant_values=flow.dtype.min)
        return tf.nn.max_pool2d(flow, layer.kernel, layer.stride, "VALID", name=layer.name)
    product = tf.nn.conv2d(flow, weight, layer.stride, padding)
    return tf.nn.bias_add(product, bias, name=layer.name)


def save(module, path):
    """Write a SavedModel, and that into a zip file that is the same again for the same model."""
    with tempfile.TemporaryDirectory() as temporary:
        tf.saved_model.save(module, temporary, signatures={"serving_default": module.serve})
        files = [file for file in sorted(Path(temporary).rglob("*")) if file.is_file()]
        with zipfile.ZipFile(path, "w") as archive:
            for file in files:
                info = zipfile.ZipInfo(str(file.relative_to(temporary)))
                archive.writestr(info, file.read_bytes())


def main():
    """Write the file."""
    network, target = arguments()
    path = target + "_savedmodel.zip"
    save(model(network), path)
    report(graph=path)


if __name__ == "__main__":
    main()
