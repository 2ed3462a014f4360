"""Operations of convolutions and matrix products by their shapes.

For frameworks that have no counter of their own. A multiplication with its addition counts as two
operations; all other operations count nothing. A formula takes the shapes of two operands and of
the output.
"""

import math
import re
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

Shape = Sequence[int]
"""The sizes of the axes of a tensor."""
Formula = Callable[..., int]
"""Operations for the shapes of two operands and of the output."""

# Parts of the names of layers that compute, in all frameworks.
_COMPUTING = re.compile(
    "attention|conv(?!ert)|correlation|custom|dot|einsum|fc|^flex|foreach|fully_?connected|gemm"
    "|gru|linalg|loop|lstm|matmul|product|python|recurrent|rnn|^scan$|svdf"
    "|^_?(call|cond|if|while)",
    re.IGNORECASE,
)


def count(
    kind: str,
    formulas: Mapping[str, Formula],
    shapes: Sequence[Any],
) -> Optional[int]:
    """Return the operations of a layer of type ``kind`` by its formula.

    A shape that is not fully known is None. Return None where the formula lacks a shape, and for a
    type that computes and has no formula; 0 for all other types.
    """
    formula = formulas.get(kind)
    if formula is None:
        return None if _COMPUTING.search(kind) else 0
    if None in shapes:
        return None
    return formula(*shapes)


def convolution(source: Shape, kernel: Shape, output: Shape) -> int:
    """Count a convolution: each output is a sum over a kernel and the inputs of its group.

    The first axis of the kernel is for the outputs.
    """
    outputs = prod(output)
    taps = prod(kernel[1:])
    return 2 * outputs * taps


def transposed_convolution(source: Shape, kernel: Shape, output: Shape) -> int:
    """Count a transposed convolution: each input is spread over the outputs of its group.

    The first axis of the kernel is for the inputs.
    """
    inputs = prod(source)
    taps = prod(kernel[1:])
    return 2 * inputs * taps


def contraction(left: Shape, right: Shape, output: Shape) -> int:
    """Count a product of two matrices, transposed or not, also with split axes.

    The sizes mk, kn and mn of the three matrices have the product (mkn)^2.
    """
    square = prod(left) * prod(right) * prod(output)
    return 2 * round(math.sqrt(square))


def matrix_products(left: Shape, right: Shape, output: Shape) -> int:
    """Count products of stacks of matrices, transposed or not.

    A vector stands for a matrix as in numpy.matmul.
    """
    if len(left) == 1:
        return 2 * prod(output) * left[0]
    if len(right) == 1:
        return 2 * prod(output) * right[0]
    stack = prod(output[:-2])
    product = contraction(left[-2:], right[-2:], output[-2:])
    return stack * product


def prod(sizes: Iterable[int]) -> int:
    """Return the product of whole numbers; math.prod is younger than Python 3.6."""
    product = 1
    for size in sizes:
        product *= size
    return product
