"""What a function of CNTK is made of: its primitive nodes, with shapes as CNTK keeps them."""

import cntk
import numpy
from mlms_predictors import Operation, Structure, Tensor
from mlms_predictors._run.products import (
    contraction,
    convolution,
    count,
    prod,
    transposed_convolution,
)

_FORMULAS = {
    "Convolution": convolution,
    "ConvolutionTranspose": transposed_convolution,
    "Times": contraction,
    "TransposeTimes": contraction,
}


def structure(function, nodes, shapes):
    """Return the Structure of a function.

    ``nodes`` are its and its blocks', in the order they run.
    """
    sizes, same, tensors, layers = _axes(function, shapes), _inside_blocks(nodes), {}, []
    for node in nodes:
        variables = [v for v in list(node.inputs) + list(node.outputs) if not v.is_placeholder]
        tensors.update((v.uid, _tensor(v, sizes)) for v in variables)
        if not node.is_block and node.op_name != "Combine":  # which hands on what it is given
            reads, writes = (
                [_resolved(v.uid, same) for v in side] for side in (node.inputs, node.outputs)
            )
            layers.append(
                Operation(node.name or node.uid, node.op_name, _flops(node, sizes), reads, writes)
            )
    known = [tensor for tensor in tensors.values() if tensor]
    inputs, outputs = (
        [_resolved(v.uid, same) for v in side] for side in (function.arguments, function.outputs)
    )
    return Structure(
        layers, known, inputs, outputs, "the shapes of CNTK %s's graph" % cntk.__version__
    )


def _axes(function, shapes):
    """Return the size of each dynamic axis by its name, from the shapes of the inputs."""
    pairs = [
        pair for v in function.arguments for pair in zip(v.dynamic_axes, shapes[v.name or v.uid])
    ]
    return {axis.name: size for axis, size in pairs}


def _inside_blocks(nodes):
    """Return what blocks rename.

    Their outputs to those of nodes inside, placeholders to what is fed to them.
    """
    same = {}
    for node in nodes:
        if node.is_block:
            same.update((inside.uid, fed.uid) for inside, fed in node.block_arguments_mapping)
            same.update(
                (made.uid, inside.uid)
                for made, inside in zip(node.outputs, node.block_root.outputs)
            )
    return same


def _resolved(uid, same):
    while uid in same:
        uid = same[uid]
    return uid


def _flops(node, sizes):
    """Return a node's operations: those of one step along its dynamic axes, so many times."""
    kind, operands, output = node.op_name, [v.shape for v in node.inputs[:2]], node.output
    if kind == "Convolution":
        operands.reverse()  # CNTK has the kernel first
        kind += "Transpose" * node.attributes["transpose"]
    steps = _sizes(output.dynamic_axes, sizes)
    flops = count(kind, _FORMULAS, [_known(shape) for shape in operands + [output.shape]])
    return flops and (None if steps is None else flops * prod(steps))


def _tensor(variable, sizes):
    """Return a variable as a Tensor, None where its shape can't be told."""
    steps, shape = _sizes(variable.dynamic_axes, sizes), _known(variable.shape)
    known = steps is not None and shape is not None
    return Tensor(variable.uid, numpy.dtype(variable.dtype).name, steps + shape) if known else None


def _sizes(axes, sizes):
    found = tuple(sizes.get(axis.name) for axis in axes)
    return None if None in found else found


def _known(shape):
    """Return a shape, None where an axis is free or is to be inferred, which are numbers below
    zero.
    """
    return None if any(size < 0 for size in shape) else tuple(shape)
