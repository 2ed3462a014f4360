"""Caffe: TARGET.prototxt and TARGET.caffemodel, by Caffe itself.

The text has batch size 1, which can be changed.
"""

import caffe
from caffe import layers, params
from network import arguments, report


def _layer(layer, bottom):
    if layer.kind == "conv":
        sizes = _pairs(kernel=layer.kernel, stride=layer.stride, pad=layer.pad)
        return layers.Convolution(bottom, num_output=len(layer.weight), **sizes)
    if layer.kind == "maxpool":
        sizes = _pairs(kernel=layer.kernel, stride=layer.stride, pad=layer.pad)
        return layers.Pooling(bottom, pool=params.Pooling.MAX, **sizes)
    if layer.kind == "dense":
        return layers.InnerProduct(bottom, num_output=len(layer.weight))
    return layers.ReLU(bottom) if layer.kind == "relu" else layers.Flatten(bottom)


def _pairs(**sizes):
    return {
        "%s_%s" % (name, end): size for name, pair in sizes.items() for end, size in zip("hw", pair)
    }


def text(network):
    """Return the prototxt; raises ValueError where Caffe's pooling, which rounds up, would make
    another shape.
    """
    net = caffe.NetSpec()
    net[network.input] = layers.Input(shape={"dim": [1, *network.shape]})
    flow, shape = net[network.input], network.shape
    for layer, size in zip(network.layers, network.sizes):
        if layer.kind == "maxpool":
            over = [
                (a + 2 * p - k) % s
                for a, p, k, s in zip(shape[1:], layer.pad, layer.kernel, layer.stride)
            ]
            if any(over):
                raise ValueError("Caffe would round %s up" % layer.name)
        net[layer.name] = flow = _layer(layer, flow)
        shape = size
    return 'name: "%s"\n%s' % (network.name, net.to_proto())


def main():
    """Write the text, fill the network that it makes with the weights, and save those."""
    network, target = arguments()
    graph, weights = target + ".prototxt", target + ".caffemodel"
    with open(graph, "w") as file:
        file.write(text(network))
    net = caffe.Net(graph, caffe.TEST)
    for layer in network.layers:
        if layer.weight is not None:
            weight, bias = net.params[layer.name]
            weight.data[...], bias.data[...] = layer.weight, layer.bias
    net.save(weights)
    report(graph=graph, weights=weights)


if __name__ == "__main__":
    main()
