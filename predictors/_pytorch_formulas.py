"""Formulas of sizes in a .pt2, which torch evaluates as Python.

A plain formula calls classes of sympy's and torch's on names and numbers, and is computed at once.
"""

import ast
import re

_METHODS = ("size", "stride", "storage_offset", "dim")
_FUNCTIONS = """
    len isinstance type max min
    Symbol Integer Rational Float Add Mul Pow Mod Max Min Abs
    Eq Ne Lt Le Gt Ge Equality Unequality StrictLessThan LessThan StrictGreaterThan GreaterThan
    And Or Not ITE Piecewise ExprCondPair
    FloorDiv ModularIndexing Where PythonMod CleanDiv CeilToInt FloorToInt CeilDiv LShift RShift
    PowByNatural FloatPow FloatTrueDiv IntTrueDiv IsNonOverlappingAndDenseIndicator TruncToFloat
    TruncToInt RoundToInt RoundDecimal ToFloat Identity
    """
_POWERS = ("Pow", "PowByNatural", "FloatPow", "LShift")
_NODES = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.Call,
    ast.keyword,
    ast.Attribute,
    ast.Subscript,
    ast.Name,
    ast.Constant,
    ast.Tuple,
    ast.List,
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)
_WORD = re.compile(r"(?!\w*__)\w*\Z")
_LONGEST = 20000  # characters
_LARGEST_NUMBER = 1 << 64
_LARGEST_POWER = 256
"""The largest product of exponents that are nested in each other."""
_LARGEST_PRECISION = 256  # digits or bits of a Float


def is_plain(formula: object) -> bool:
    """Return whether a formula is nothing more, and is computed at once."""
    if not isinstance(formula, str) or len(formula) > _LONGEST:
        return False
    try:
        tree = ast.parse(formula.strip(), mode="eval")
        return all(_is_plain_node(node) for node in ast.walk(tree)) and _has_small_powers(tree)
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # too deep for the parser
        return False


def _is_plain_node(node):
    if not isinstance(node, _NODES):
        return False
    if isinstance(node, ast.Call):
        return _is_plain_call(node)
    if isinstance(node, ast.Attribute):
        return not node.attr.startswith("_")
    if isinstance(node, ast.BinOp):
        return not any(_repeats(side) for side in (node.left, node.right))
    if isinstance(node, ast.Constant):
        return _is_plain_constant(node.value)
    return True


def _is_plain_call(node):
    """True for a method of tensors, a harmless builtin, or a class of sympy's or torch's."""
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr in _METHODS
    if not isinstance(function, ast.Name) or function.id not in _FUNCTIONS.split():
        return False
    if function.id == "Float":
        precisions = [*node.args[1:], *(keyword.value for keyword in node.keywords)]
        return all(_is_below(precision, _LARGEST_PRECISION) for precision in precisions)
    return True


def _is_plain_constant(value):
    if isinstance(value, str):
        return _WORD.match(value) is not None or _is_number(value)
    if isinstance(value, int):
        return abs(value) < _LARGEST_NUMBER
    return isinstance(value, float) or value is None


def _is_number(text):
    """True for the digits of a Float."""
    return re.match(r"-?\d{1,400}(\.\d{0,400})?(e[+-]?\d{1,4})?\Z", text) is not None


def _repeats(node):
    """True for what a product would repeat many times."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    return isinstance(node, (ast.Tuple, ast.List))


def _has_small_powers(tree):
    return _power_in(tree) <= _LARGEST_POWER


def _power_in(node):
    """Return the largest product of exponents in each other; infinity for one that is unknown."""
    base, exponent = _power(node)
    if exponent is None:
        return max((_power_in(child) for child in ast.iter_child_nodes(node)), default=1)
    return _power_in(base) * max(1, _size_of(exponent))


def _power(node):
    """Return the base and the exponent of a power or a shift to the left, else None twice."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift)):
        return node.left, node.right
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in _POWERS:
        if len(node.args) == 2 and not node.keywords:
            return node.args[0], node.args[1]
        return node, node  # an unknown exponent
    return None, None


def _size_of(node):
    """Return the absolute value of a number, or infinity for what is no plain number."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return _size_of(node.operand)
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Integer", "Rational"):
        return max((_size_of(argument) for argument in node.args), default=1)
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return abs(node.value)
    return float("inf")


def _is_below(node, limit):
    return _size_of(node) <= limit
