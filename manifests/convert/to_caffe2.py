"""Caffe2: TARGET_predict.pb and TARGET_init.pb."""

from caffe2.proto import caffe2_pb2
from caffe2.python import core
from network import arguments, report


def _operator(layer, flow):
    name, given = layer.name, [flow, layer.name + "_weight", layer.name + "_bias"]
    if layer.kind == "relu":
        return core.CreateOperator("Relu", flow, name, name=name)
    if layer.kind == "flatten":
        return core.CreateOperator("Flatten", flow, name, name=name)
    if layer.kind == "dense":
        return core.CreateOperator("FC", given, name, name=name)
    (top, left), (down, right) = layer.pad, layer.stride
    sizes = {
        "kernels": list(layer.kernel),
        "strides": [down, right],
        "pads": [top, left, top, left],
    }
    kind, inputs = ("Conv", given) if layer.kind == "conv" else ("MaxPool", flow)
    return core.CreateOperator(kind, inputs, name, name=name, order="NCHW", **sizes)


def predict_net(network, names):
    """Return the operators, and what comes from outside."""
    net = caffe2_pb2.NetDef(
        name=network.name, external_input=[network.input, *names], external_output=[network.output]
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
        for part in ("weight", "bias"):
            values = getattr(layer, part)
            if values is not None:
                name = "%s_%s" % (layer.name, part)
                fill = core.CreateOperator(
                    "GivenTensorFill", [], name, shape=values.shape, values=values.flatten()
                )
                net.op.add().CopyFrom(fill)
                net.external_output.append(name)
    return net


def main():
    """Write both nets."""
    network, target = arguments()
    init = init_net(network)
    graph, weights = target + "_predict.pb", target + "_init.pb"
    for path, net in ((graph, predict_net(network, list(init.external_output))), (weights, init)):
        with open(path, "wb") as file:
            file.write(net.SerializeToString())
    report(graph=graph, weights=weights)


if __name__ == "__main__":
    main()
