"""MXNet: TARGET-symbol.json and TARGET-0000.params.

The input says its own shape, 0 being the free axis.
"""

import mxnet
from mxnet import symbol
from network import arguments, report


def _layer(layer, flow):
    name = layer.name
    sizes = {"kernel": layer.kernel, "stride": layer.stride, "pad": layer.pad}
    if layer.kind == "conv":
        return symbol.Convolution(flow, name=name, num_filter=len(layer.weight), **sizes)
    if layer.kind == "maxpool":
        return symbol.Pooling(flow, name=name, pool_type="max", **sizes)
    if layer.kind == "dense":
        return symbol.FullyConnected(flow, name=name, num_hidden=len(layer.weight))
    if layer.kind == "relu":
        return symbol.Activation(flow, name=name, act_type="relu")
    return symbol.flatten(flow, name=name)


def model(network):
    """Return the symbol."""
    shape = (0,) + network.shape
    flow = symbol.Variable(network.input, shape=shape, dtype="float32")
    for layer in network.layers:
        flow = _layer(layer, flow)
    return flow


def main():
    """Write the symbol, and the weights under MXNet's names."""
    network, target = arguments()
    graph = target + "-symbol.json"
    weights = target + "-0000.params"
    model(network).save(graph)
    arrays = {}
    for layer in network.layers:
        if layer.weight is not None:
            arrays["arg:%s_weight" % layer.name] = mxnet.nd.array(layer.weight)
            arrays["arg:%s_bias" % layer.name] = mxnet.nd.array(layer.bias)
    mxnet.nd.save(weights, arrays)
    report(graph=graph, weights=weights)


if __name__ == "__main__":
    main()
