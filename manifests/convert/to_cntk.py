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
        pad = _padding(layer)
        return cntk.pooling(
            flow, cntk.MAX_POOLING, layer.kernel, layer.stride, name=layer.name, **pad
        )
    bias = layer.bias.reshape(-1, 1, 1) if layer.kind == "conv" else layer.bias
    bias = cntk.parameter(init=bias, name=layer.name + "_bias")
    if layer.kind == "dense":
        weight = cntk.parameter(init=layer.weight.T.copy(), name=layer.name + "_weight")
        return cntk.plus(
            cntk.times(flow, weight, name=layer.name + "_product"), bias, name=layer.name
        )
    weight = cntk.parameter(init=layer.weight, name=layer.name + "_weight")
    product = cntk.convolution(
        weight, flow, (1,) + layer.stride, name=layer.name + "_product", **_padding(layer, (0,))
    )
    return cntk.plus(product, bias, name=layer.name)


def _padding(layer, before=()):
    """CNTK pads by half a kernel (auto_padding), or by numbers that its CPU kernels don't take."""
    half = tuple(size // 2 for size in layer.kernel)
    if layer.pad not in ((0, 0), half):
        raise ValueError(
            "%s is padded by %s; CNTK can do nothing or %s" % (layer.name, layer.pad, half)
        )
    return {"auto_padding": [False] * len(before) + [layer.pad == half] * 2}


def model(network):
    """Return the function."""
    flow = cntk.input_variable(network.shape, numpy.float32, name=network.input)
    for layer, size in zip(network.layers, network.sizes):
        flow = _layer(layer, flow, size)
    return flow


def main():
    """Write the file."""
    network, target = arguments()
    model(network).save(target + ".model")
    report(graph=target + ".model")


if __name__ == "__main__":
    main()
