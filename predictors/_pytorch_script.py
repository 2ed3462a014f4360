"""The check of a TorchScript before torch.jit.load compiles it, so that it touches no file or host.

Its code is text in the file, in the syntax of Python. It may use what torch computes with; methods
of it run already when it is loaded. So the text is checked, not what was loaded.
"""

import ast
import re
import zipfile
from typing import List

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

_CLASSES = re.compile(rb"torch[.\n]classes[.\n](?!(?:%s)\b)(\w+)" % "|".join(_PACKED).encode())
"""A class of C++ other than those, in a pickle or in a type."""


def check_script(path: str) -> None:
    """Raise RuntimeError where the code of a TorchScript does more than compute."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.lower()  # torch finds its files in any case of letters
            if name.endswith("/model.json"):
                raise RuntimeError("it is a TorchScript of before 2019; save it again")
            if name.endswith((".py", "pkl")):
                _check_member(name, archive.read(member))


def _check_member(name, data):
    found = _CLASSES.search(data)
    if found:
        raise RuntimeError("%s has torch.classes.%s; %s" % (name, found[1].decode(), _ADVICE))
    if name.endswith(".py"):
        problem = _problem(data)
        if problem:
            raise RuntimeError("%s %s; %s" % (name, problem, _ADVICE))


def _problem(data):
    """Return what keeps code from being taken, or None."""
    try:
        nodes = list(ast.walk(ast.parse(data.decode())))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return "can't be read as code: %.80s" % error
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
