"""What a TensorFlow graph is made of.

Its operators at one batch size, counted by TensorFlow's own profiler.
"""

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
)
_PRODUCTS += (
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


def structure(definition, inputs, outputs, shapes):
    """Return the Structure of a GraphDef.

    ``shapes`` are those of the tensors that are its inputs.
    """
    graph = _bound(definition, inputs, shapes)
    counts, same, layers = _counted(graph), {}, []
    for op in graph.get_operations():
        reads, writes = (
            [same.get(tensor.name, tensor.name) for tensor in side]
            for side in (op.inputs, op.outputs)
        )
        if op.type == "Identity":
            same[writes[0]] = reads[0]
        elif op.type not in ("NoOp", "Placeholder"):
            layers.append(Operation(op.name, op.type, _flops(op, counts), reads, writes))
    known = [
        tensor
        for op in graph.get_operations()
        for tensor in op.outputs
        if tensor.shape.is_fully_defined()
    ]
    tensors = [
        Tensor(tensor.name, tensor.dtype.name, tuple(tensor.shape.as_list())) for tensor in known
    ]
    counter = "the profiler of TensorFlow %s" % tensorflow.__version__
    return Structure(
        layers, tensors, list(inputs), [same.get(name, name) for name in outputs], counter
    )


def _bound(definition, inputs, shapes):
    """Return the graph with its inputs of fixed shapes, so that TensorFlow infers all that can be."""
    bound = v1.GraphDef()
    bound.CopyFrom(definition)
    sizes = dict(zip([name.split(":")[0] for name in inputs], shapes))
    for node in bound.node:
        if node.name in sizes:
            node.attr["shape"].shape.CopyFrom(tensorflow.TensorShape(sizes[node.name]).as_proto())
        node.attr.pop("_output_shapes", None)
    graph = tensorflow.Graph()
    with graph.as_default():
        tensorflow.graph_util.import_graph_def(bound, name="")
    return graph


def _counted(graph):
    """Return the profiler's operations by the operator's name."""
    builder = v1.profiler.ProfileOptionBuilder
    options = dict(builder.float_operation(), output="none", account_type_regexes=[".*"])
    found, left = {}, [v1.profiler.profile(graph, cmd="graph", options=options)]
    while left:
        node = left.pop()
        found[node.name] = node.float_ops
        left += node.children
    return found


def _flops(op, counts):
    """Return the operations of a convolution or product, none of another.

    None where TensorFlow doesn't know them.
    """
    if op.type in _OPAQUE:
        return None
    return (counts.get(op.name) or None) if op.type in _PRODUCTS else 0
