"""CNTK: TARGET.model. Its batch axis is symbolic, as that is CNTK's own."""

import cntk
import numpy
from network import arguments, report


def _layer(layer, flow, size):
    if layer.kind == "relu":
        return cntk.relu(flow, name=layer.name)
    if layer.kind == "flatten":
        return cntk.reshape(flow, size, name=layer.name)
    if layer.kind == "maxpool":
        return cntk.pooling(
            flow,
            cntk.MAX_POOLING,
            layer.kernel,
            layer.stride,
            name=layer.name,
            auto_padding=_padding(layer),
        )
    if layer.kind == "dense":
        return _dense(layer, flow)
    return _convolution(layer, flow)


def _dense(layer, flow):
    weight = cntk.parameter(init=layer.weight.T.copy(), name=layer.name + "_weight")
    bias = cntk.parameter(init=layer.bias, name=layer.name + "_bias")
    product = cntk.times(flow, weight, name=layer.name + "_product")
    return cntk.plus(product, bias, name=layer.name)


def _convolution(layer, flow):
    weight = cntk.parameter(init=layer.weight, name=layer.name + "_weight")
    column = layer.bias.reshape(-1, 1, 1)
    bias = cntk.parameter(init=column, name=layer.name + "_bias")
    product = cntk.convolution(
        weight,
        flow,
        (1,) + layer.stride,
        name=layer.name + "_product",
        auto_padding=[False] + _padding(layer),
    )
    return cntk.plus(product, bias, name=layer.name)


def _padding(layer):
    """Return whether to pad height and width.

    CNTK pads by half a kernel (auto_padding), or by numbers that its CPU kernels don't take. Raises
    ValueError for another padding.
    """
    half = tuple(size // 2 for size in layer.kernel)
    if layer.pad not in ((0, 0), half):
        text = "%s is padded by %s; CNTK can do nothing or %s"
        raise ValueError(text % (layer.name, layer.pad, half))
    is_padded = layer.pad == half
    return [is_padded, is_padded]


def model(network):
    """Return the function."""
    flow = cntk.input_variable(network.shape, numpy.float32, name=network.input)
    for layer, size in zip(network.layers, network.sizes):
        flow = _layer(layer, flow, size)
    return flow


def main():
    """Write the file."""
    network, target = arguments()
    path = target + ".model"
    model(network).save(path)
    report(graph=path)


if __name__ == "__main__":
    main()
