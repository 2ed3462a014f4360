"""Caffe2: TARGET_predict.pb and TARGET_init.pb."""

from caffe2.proto import caffe2_pb2
from caffe2.python import core
from network import arguments, report


def _operator(layer, flow):
    name = layer.name
    with_weights = [flow, name + "_weight", name + "_bias"]
    if layer.kind == "relu":
        return core.CreateOperator("Relu", flow, name, name=name)
    if layer.kind == "flatten":
        return core.CreateOperator("Flatten", flow, name, name=name)
    if layer.kind == "dense":
        return core.CreateOperator("FC", with_weights, name, name=name)
    if layer.kind == "conv":
        return _spatial("Conv", with_weights, layer)
    return _spatial("MaxPool", flow, layer)


def _spatial(kind, inputs, layer):
    return core.CreateOperator(
        kind,
        inputs,
        layer.name,
        name=layer.name,
        order="NCHW",
        kernels=list(layer.kernel),
        strides=list(layer.stride),
        pads=list(layer.pad) * 2,
    )


def predict_net(network, names):
    """Return the operators, and what comes from outside."""
    net = caffe2_pb2.NetDef(
        name=network.name,
        external_input=[network.input, *names],
        external_output=[network.output],
    )
    flow = network.input
    for layer in network.layers:
        net.op.add().CopyFrom(_operator(layer, flow))
        flow = layer.name
    return net


def init_net(network):
    """Return the operators that make each weight, and their names."""
    net = caffe2_pb2.NetDef(name=network.name + "-init")
    for layer in network.layers:
        if layer.weight is not None:
            _fill(net, layer.name + "_weight", layer.weight)
            _fill(net, layer.name + "_bias", layer.bias)
    return net


def _fill(net, name, values):
    """Add the operator that makes a weight."""
    kind = "GivenTensorFill"
    fill = core.CreateOperator(kind, [], name, shape=values.shape, values=values.flatten())
    net.op.add().CopyFrom(fill)
    net.external_output.append(name)


def _write(net, path):
    with open(path, "wb") as file:
        file.write(net.SerializeToString())


def main():
    """Write both nets."""
    network, target = arguments()
    init = init_net(network)
    graph = target + "_predict.pb"
    weights = target + "_init.pb"
    _write(predict_net(network, list(init.external_output)), graph)
    _write(init, weights)
    report(graph=graph, weights=weights)


if __name__ == "__main__":
    main()
