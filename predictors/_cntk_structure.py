"""The structure of a CNTK function: its primitive nodes, with the shapes that CNTK keeps."""

from typing import Any, Dict, Iterable, List, Optional

import cntk
import numpy
from mlms_predictors import Operation, Shapes, Structure, Tensor
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


def structure(function: Any, nodes: List[Any], shapes: Shapes) -> Structure:
    """Return the Structure of a function for inputs of these shapes.

    ``nodes`` are those of the function and of its blocks, in an order in which they can run.
    """
    graph = _Graph(nodes, _axis_sizes(function, shapes))
    for node in nodes:
        graph.add(node)
    return Structure(
        layers=graph.operations,
        tensors=graph.tensors(),
        inputs=graph.resolved(function.arguments),
        outputs=graph.resolved(function.outputs),
        counter="the shapes of CNTK %s's graph" % cntk.__version__,
    )


class _Graph:
    """Operations and variables of a function, its blocks opened."""

    def __init__(self, nodes, axis_sizes):
        self.operations: List[Operation] = []
        self._axis_sizes = axis_sizes
        self._aliases = _aliases_of_blocks(nodes)
        self._variables: Dict[str, Any] = {}

    def add(self, node: Any) -> None:
        """Add a node; Combine only passes values on, and a block is the nodes in it."""
        for variable in list(node.inputs) + list(node.outputs):
            if not variable.is_placeholder:
                self._variables[variable.uid] = variable
        if node.is_block or node.op_name == "Combine":
            return
        operation = Operation(
            name=node.name or node.uid,
            type=node.op_name,
            flops=self._flops(node),
            reads=self.resolved(node.inputs),
            writes=self.resolved(node.outputs),
        )
        self.operations.append(operation)

    def tensors(self) -> List[Tensor]:
        """Return the variables as Tensors, without those whose shape is not known."""
        found = []
        for uid, variable in self._variables.items():
            steps = self._steps(variable)
            shape = _known(variable.shape)
            if steps is not None and shape is not None:
                dtype = numpy.dtype(variable.dtype)
                found.append(Tensor(uid, dtype.name, steps + shape))
        return found

    def resolved(self, variables: Iterable[Any]) -> List[str]:
        """Return the identifiers of variables, outside of all blocks."""
        found = []
        for variable in variables:
            uid = variable.uid
            while uid in self._aliases:
                uid = self._aliases[uid]
            found.append(uid)
        return found

    def _flops(self, node):
        """Return a node's operations: those of one step along its dynamic axes, so many times."""
        kind = node.op_name
        operands = [variable.shape for variable in node.inputs[:2]]
        if kind == "Convolution":
            operands.reverse()  # CNTK has the kernel first
            if node.attributes["transpose"]:
                kind = "ConvolutionTranspose"
        shapes = [_known(shape) for shape in operands]
        shapes.append(_known(node.output.shape))
        flops: Optional[int] = count(kind, _FORMULAS, shapes)
        if not flops:
            return flops
        steps = self._steps(node.output)
        if steps is None:
            return None
        return flops * int(prod(steps))

    def _steps(self, variable):
        """Return the sizes of a variable's dynamic axes, None where one is not known."""
        sizes = []
        for axis in variable.dynamic_axes:
            if axis.name not in self._axis_sizes:
                return None
            sizes.append(self._axis_sizes[axis.name])
        return tuple(sizes)


def _axis_sizes(function, shapes):
    """Return the size of each dynamic axis by its name, from the shapes of the inputs."""
    sizes = {}
    for argument in function.arguments:
        shape = shapes[argument.name or argument.uid]
        for axis, size in zip(argument.dynamic_axes, shape):
            sizes[axis.name] = size
    return sizes


def _aliases_of_blocks(nodes):
    """Return the identifiers that blocks replace.

    The outputs of a block are outputs of nodes in it, and its placeholders are the values fed to
    it.
    """
    aliases = {}
    for node in nodes:
        if node.is_block:
            for placeholder, fed in node.block_arguments_mapping:
                aliases[placeholder.uid] = fed.uid
            for output, inside in zip(node.outputs, node.block_root.outputs):
                aliases[output.uid] = inside.uid
    return aliases


def _known(shape):
    """Return a shape, None where an axis is free or inferred: those have sizes below zero."""
    if any(size < 0 for size in shape):
        return None
    return tuple(shape)
