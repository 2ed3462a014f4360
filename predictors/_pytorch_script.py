"""The check of a TorchScript before torch.jit.load compiles it, so that it touches no file or host.

Its code is text in the file, in the syntax of Python. It may use what torch computes with; methods
of it run already when it is loaded. So the text is checked, not what was loaded.
"""

import ast
import re
import zipfile
from typing import Any, Dict, List

_ADVICE = "allow it with --mlms-allow-code"

FILE_OPERATORS = ("from_file", "save")
"""Operators of aten that read or write files."""

_REFUSED = frozenset(
    (*FILE_OPERATORS, "rpc_sync", "rpc_async", "rpc_remote", "PythonOp", "IgnoredPythonOp")
)
"""Operators with effects beside their outputs, in namespaces that compute."""

_NAMESPACES = (
    *("aten", "prim", "prims", "quantized", "_quantized", "quantization", "quantized_decomposed"),
    *("mkl", "mkldnn", "mkldnn_prepacked", "onednn", "prepacked", "sparse"),
    *("torchvision", "profiler", "static_runtime"),
)
"""The namespaces behind ``ops`` in code; others reach hosts, memory or what a person registered."""

_PACKED = ("quantized", "rnn", "xnnpack", "mkldnn", "sparse")
"""The namespaces of classes of C++ that are packed weights."""

_CLASSES_OF_CPP = "__torch__.torch.classes"
_SPACES = ("ops", "__torch__", "__torch__.torch", _CLASSES_OF_CPP)
"""Names in code that have all operators or classes of C++ below them."""

_IN_PLACE = re.compile(r"torch\.\w*[a-z0-9]_")
"""Functions that change their first argument."""

_MAKING = ("__init__", "__setstate__")
"""Methods that set attributes before the first call."""

_CLASSES = re.compile(rb"torch[.\n]classes[.\n](?!(?:%s)\b)(\w+)" % "|".join(_PACKED).encode())
"""A class of C++ other than those, in a pickle or in a type."""


def check_script(path: str) -> List[str]:
    """Raise RuntimeError where the code of a TorchScript does more than compute.

    Return the names of what its modules change of themselves in a call: states.
    """
    states: List[str] = []
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.lower()  # torch finds its files in any case of letters
            if name.endswith("/model.json"):
                raise RuntimeError("it is a TorchScript of before 2019; save it again")
            if name.endswith((".py", "pkl")):
                states += _check_member(name, archive.read(member))
    return sorted(set(states))


def _check_member(name, data):
    """Raise RuntimeError for a file that does more than compute; return the states in its code."""
    found = _CLASSES.search(data)
    if found:
        raise RuntimeError("%s has torch.classes.%s; %s" % (name, found[1].decode(), _ADVICE))
    if not name.endswith(".py"):
        return []
    try:
        nodes = list(ast.walk(ast.parse(data.decode())))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RuntimeError(
            "%s can't be read as code: %.80s; %s" % (name, error, _ADVICE)
        ) from error
    problem = _problem(nodes)
    if problem:
        raise RuntimeError("%s %s; %s" % (name, problem, _ADVICE))
    return [state for node in nodes for state in _changed_by(node)]


def _problem(nodes):
    """Return what keeps code from being taken, or None."""
    problem = _reached(nodes)
    if problem:
        return problem
    for node in nodes:  # names are the texts of nodes, also those that getattr is given
        for value in vars(node).values():
            if isinstance(value, str) and value in _REFUSED:
                return "uses the operator %s, which reaches files, hosts or Python" % value
    return None


def _reached(nodes):
    """Return which operators or classes of C++ code reaches that it may not, or None."""
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    members = [node for node in attributes if _dotted(node.value) in _SPACES]
    for node in members:
        space = _dotted(node.value)
        if space == "ops" and node.attr not in _NAMESPACES:
            return "uses the operators ops.%s" % node.attr
        if space == _CLASSES_OF_CPP and node.attr not in _PACKED:
            return "has torch.classes.%s" % node.attr
    if len(members) != sum(_dotted(node) in _SPACES for node in nodes):
        return "hands on all operators or classes"
    return None


def _dotted(node):
    """Return a name with its attributes; nothing for a longer or another expression."""
    names: List[str] = []
    while isinstance(node, ast.Attribute) and len(names) < 2:
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""


def _changed_by(node):
    """Return the attributes that a method changes of its module; nothing for another node.

    Code says ``h = self.h`` before ``torch.add_(h, 1)``, and ``self.h = …``. What is done in
    training only is left out.
    """
    if not isinstance(node, ast.FunctionDef) or not node.args.args or node.name in _MAKING:
        return []
    owner = node.args.args[0].arg
    found: List[str] = []
    attributes: Dict[str, str] = {}
    left: List[Any] = list(reversed(node.body))
    while left:
        part = left.pop()
        if isinstance(part, ast.If) and attributes.get(_dotted(part.test)) == "training":
            part = part.orelse
        elif isinstance(part, ast.Assign):
            found += _own_attribute(part.targets[0], owner)
            for name in _own_attribute(part.value, owner):
                attributes[_dotted(part.targets[0])] = name
        elif isinstance(part, ast.Call) and _IN_PLACE.fullmatch(_dotted(part.func)):
            names = [_dotted(each) for each in _changed_parts(part)]
            found += [attributes[name] for name in names if name in attributes]
        left += reversed(part if isinstance(part, list) else list(ast.iter_child_nodes(part)))
    return found


def _changed_parts(call):
    """Yield what an operator in place changes, and what that is a part of."""
    while isinstance(call, ast.Call) and call.args:
        call = call.args[0]
        yield call


def _own_attribute(node, owner):
    """Return the name of an attribute of a method's own module in a list, [] for another node."""
    is_own = isinstance(node, ast.Attribute) and _dotted(node.value) == owner
    return [node.attr] if is_own else []
