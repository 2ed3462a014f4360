"""Caffe: TARGET.prototxt and TARGET.caffemodel, by Caffe itself.

The text has batch size 1, which can be changed.
"""

import caffe
from caffe import layers, params
from network import arguments, report


def _layer(layer, bottom):
    if layer.kind == "conv":
        return layers.Convolution(bottom, num_output=len(layer.weight), **_sizes(layer))
    if layer.kind == "maxpool":
        return layers.Pooling(bottom, pool=params.Pooling.MAX, **_sizes(layer))
    if layer.kind == "dense":
        return layers.InnerProduct(bottom, num_output=len(layer.weight))
    if layer.kind == "relu":
        return layers.ReLU(bottom)
    return layers.Flatten(bottom)


def _sizes(layer):
    height, width = layer.kernel
    down, right = layer.stride
    top, left = layer.pad
    return {
        "kernel_h": height,
        "kernel_w": width,
        "stride_h": down,
        "stride_w": right,
        "pad_h": top,
        "pad_w": left,
    }


def text(network):
    """Return the prototxt.

    Raises ValueError where Caffe's pooling, which rounds up, would make another shape.
    """
    net = caffe.NetSpec()
    net[network.input] = layers.Input(shape={"dim": [1, *network.shape]})
    flow = net[network.input]
    shape = network.shape
    for layer, size in zip(network.layers, network.sizes):
        if layer.kind == "maxpool" and _rounds(layer, shape):
            raise ValueError("Caffe would round %s up" % layer.name)
        flow = _layer(layer, flow)
        net[layer.name] = flow
        shape = size
    return 'name: "%s"\n%s' % (network.name, net.to_proto())


def _rounds(layer, shape):
    """True if the last step of a pooling would go past the end of its input."""
    for axis, size in enumerate(shape[1:]):
        padded = size + 2 * layer.pad[axis]
        if (padded - layer.kernel[axis]) % layer.stride[axis]:
            return True
    return False


def main():
    """Write the text, fill the network that it makes with the weights, and save those."""
    network, target = arguments()
    graph = target + ".prototxt"
    weights = target + ".caffemodel"
    with open(graph, "w") as file:
        file.write(text(network))
    net = caffe.Net(graph, caffe.TEST)
    for layer in network.layers:
        if layer.weight is not None:
            weight, bias = net.params[layer.name]
            weight.data[...] = layer.weight
            bias.data[...] = layer.bias
    net.save(weights)
    report(graph=graph, weights=weights)


if __name__ == "__main__":
    main()
