"""The structure of a TensorFlow graph: operators at one batch size, counted by its own profiler."""

from typing import Any, Dict, List, Tuple

import tensorflow
from mlms_predictors import Operation, Structure, Tensor

v1 = tensorflow.compat.v1
_PRODUCTS = (
    "BatchMatMul",
    "BatchMatMulV2",
    "BatchMatMulV3",
    "Conv2D",
    "Conv2DBackpropInput",
    "Conv3D",
    "Conv3DBackpropInputV2",
    "DepthwiseConv2dNative",
    "Einsum",
    "MatMul",
    "_FusedConv2D",
    "_FusedMatMul",
)
_OPAQUE = (
    "CudnnRNN",
    "If",
    "PartitionedCall",
    "StatefulPartitionedCall",
    "StatelessIf",
    "StatelessWhile",
    "While",
)


def structure(
    definition: Any, inputs: List[str], outputs: List[str], shapes: List[Tuple[int, ...]]
) -> Structure:
    """Return the Structure of a GraphDef.

    ``shapes`` are those of the tensors that are its inputs.
    """
    graph = _with_shapes(definition, inputs, shapes)
    flops = _counted(graph)
    aliases: Dict[str, str] = {}
    layers = []
    for op in graph.get_operations():
        reads = [aliases.get(tensor.name, tensor.name) for tensor in op.inputs]
        writes = [tensor.name for tensor in op.outputs]
        if op.type == "Identity":
            aliases[writes[0]] = reads[0]
        elif op.type not in ("NoOp", "Placeholder"):
            count = _flops(op, flops)
            layers.append(Operation(op.name, op.type, count, reads, writes))
    return Structure(
        layers=layers,
        tensors=_tensors(graph),
        inputs=list(inputs),
        outputs=[aliases.get(name, name) for name in outputs],
        counter="the profiler of TensorFlow %s" % tensorflow.__version__,
    )


def _with_shapes(definition, inputs, shapes):
    """Return the graph with inputs of fixed shapes, from which TensorFlow infers the others."""
    sizes = {}
    for name, shape in zip(inputs, shapes):
        node_name = name.split(":")[0]
        sizes[node_name] = tensorflow.TensorShape(shape).as_proto()
    fixed = v1.GraphDef()
    fixed.CopyFrom(definition)
    for node in fixed.node:
        if node.name in sizes:
            node.attr["shape"].shape.CopyFrom(sizes[node.name])
        node.attr.pop("_output_shapes", None)
    graph = tensorflow.Graph()
    with graph.as_default():
        tensorflow.graph_util.import_graph_def(fixed, name="")
    return graph


def _tensors(graph):
    """Return the outputs of all operators, without those whose shape TensorFlow cannot infer."""
    found = []
    for op in graph.get_operations():
        for tensor in op.outputs:
            if tensor.shape.is_fully_defined():
                shape = tuple(tensor.shape.as_list())
                found.append(Tensor(tensor.name, tensor.dtype.name, shape))
    return found


def _counted(graph):
    """Return the profiler's operations by the operator's name."""
    options = dict(v1.profiler.ProfileOptionBuilder.float_operation())
    options["output"] = "none"
    options["account_type_regexes"] = [".*"]
    root = v1.profiler.profile(graph, cmd="graph", options=options)
    flops = {}
    remaining = [root]
    while remaining:
        node = remaining.pop()
        flops[node.name] = node.float_ops
        remaining += node.children
    return flops


def _flops(op, counted):
    """Return the operations of a convolution or product, none of another.

    None where TensorFlow doesn't know them.
    """
    if op.type in _OPAQUE:
        return None
    if op.type in _PRODUCTS:
        return counted.get(op.name) or None
    return 0
