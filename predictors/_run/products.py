"""What convolutions and matrix products take by their shapes, for frameworks that have no counter
of their own.

A multiplication with its addition is two operations, and nothing else has any. Formulas take the
shapes of two operands and of the output.
"""

import math
import re

_OPAQUE = re.compile(
    "attention|conv(?!ert)|correlation|custom|dot|einsum|fc|^flex|foreach|fully_?connected|gemm|gru|linalg|loop|lstm"
    "|matmul|product|python|recurrent|rnn|^scan$|svdf|^_?(call|cond|if|while)",
    re.IGNORECASE,
)


def count(kind, formulas, shapes):
    """Return the operations of a layer of some type: by its formula, None where that lacks a shape,
    else 0.

    None also for types that compute and have no formula. A shape of which something isn't known is
    None.
    """
    if kind not in formulas:
        return None if _OPAQUE.search(kind) else 0
    return None if None in shapes else formulas[kind](*shapes)


def convolution(source, kernel, output):
    """Each output is a sum over a kernel and the inputs of its group.

    The kernel has its outputs first.
    """
    return 2 * prod(output) * prod(kernel[1:])


def transposed_convolution(source, kernel, output):
    """Each input is spread over a kernel and the outputs of its group.

    The kernel has its inputs first.
    """
    return 2 * prod(source) * prod(kernel[1:])


def contraction(left, right, output):
    """A product of two matrices, whichever is turned or has its axes split.

    Mk kn mn is the square of mkn.
    """
    return 2 * round(math.sqrt(prod(left) * prod(right) * prod(output)))


def matrix_products(left, right, output):
    """Products of stacks of matrices, whichever are turned.

    A vector stands for a matrix as in numpy.matmul.
    """
    if len(left) == 1 or len(right) == 1:
        return 2 * prod(output) * (left if len(left) == 1 else right)[0]
    return prod(output[:-2]) * contraction(left[-2:], right[-2:], output[-2:])


def prod(sizes):
    """Return the product of whole numbers; math.prod is younger than Python 3.6."""
    found = 1
    for size in sizes:
        found *= size
    return found
