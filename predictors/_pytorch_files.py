"""The files of PyTorch to a module and its signature, without running what somebody hid in them.

Pickles are read as weights only. torch.export.load also evaluates formulas of shapes as Python:
they are checked first, and may call sympy's classes on plain names and numbers, nothing else.
"""

import ast
import contextlib
import importlib.util
import json
import os
import re
import zipfile

import torch
from mlms_predictors import Tensor

_METHODS = ("size", "stride", "storage_offset", "dim")
_FUNCTIONS = ("len", "isinstance", "type", "max", "min")


def read_model(request, device):
    """Return kind, module, inputs and outputs of the files, by what the graph is."""
    path = request.files["graph"]
    if path.endswith(".py"):
        return _read_module(request, device)
    members = zipfile.ZipFile(path).namelist() if zipfile.is_zipfile(path) else []
    if any(name.endswith("/archive_format") for name in members):
        return ("export",) + _read_pt2(path, device, members, request.allow_code)
    if any("/code/" in name for name in members):
        return ("script",) + _read_script(path, device)
    if any(name.endswith("data.pkl") for name in members) or _starts_as_pickle(path):
        raise RuntimeError(
            "it is a pickle, which holds no graph, or code that would run when loaded; save the model with "
            "torch.export or TorchScript, or give a .py file as graph and a state dict as weights"
        )
    raise RuntimeError("it is no model of PyTorch: neither .pt2 nor TorchScript nor a .py file")


def _starts_as_pickle(path):
    with open(path, "rb") as file:
        return file.read(1) == b"\x80"


def _read_script(path, device):
    module = torch.jit.load(path, map_location=device).eval()
    schema = module.forward.schema
    inputs = [Tensor(argument.name, "float32", ()) for argument in schema.arguments[1:]]
    return module, inputs, [Tensor("output", "", ())]


def _read_module(request, device):
    options = request.options
    if not request.allow_code:
        raise PermissionError(
            "%s is code; allow it with --mlms-allow-code" % request.files["graph"]
        )
    if "class" not in options or "weights" not in request.files:
        raise ValueError("a .py graph needs the option 'class', and a state dict as weights")
    spec = importlib.util.spec_from_file_location("mlms_model", request.files["graph"])
    code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)
    module = getattr(code, options["class"])(**json.loads(options.get("arguments", "{}")))
    module.load_state_dict(_read_weights(request.files["weights"], device))
    return (
        "module",
        module.to(device).eval(),
        [Tensor("input", "float32", ())],
        [Tensor("output", "", ())],
    )


def _read_weights(path, device):
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        text = "the weights are no plain state dict, and a pickle would run code: %s"
        raise RuntimeError(text % reason) from error


def _read_pt2(path, device, members, allow_code):
    if allow_code:
        program = torch.export.load(path)
    else:
        _refuse_code(path, members)
        with _weights_only():
            program = torch.export.load(path)
    if device.type != "cpu":
        from torch.export.passes import move_to_device_pass

        program = move_to_device_pass(program, device)
    return program.module(), _inputs(program), _outputs(program)


def _inputs(program):
    values = {
        node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"
    }
    return [_tensor(name, values[name]) for name in program.graph_signature.user_inputs]


def _outputs(program):
    """Name the outputs by the keys of a dict that the model returns, else by the nodes that made
    them.
    """
    node = next(node for node in program.graph.nodes if node.op == "output")
    names, spec = program.graph_signature.user_outputs, program.call_spec.out_spec
    values = {arg.name: arg.meta["val"] for arg in node.args[0] if hasattr(arg, "meta")}
    shown = list(spec.context) if spec.type is dict and len(spec.context) == len(names) else names
    return [_tensor(label, values[name]) for label, name in zip(shown, names)]


def _tensor(name, value):
    shape = tuple(size if isinstance(size, int) else None for size in value.shape)
    return Tensor(name, str(value.dtype).replace("torch.", ""), shape)


@contextlib.contextmanager
def _weights_only():
    before = os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    try:
        yield
    finally:
        del os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"]
        if before is not None:
            os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = before


def _refuse_code(path, members):
    pickled = [name for name in members if "/constants/" in name and "opaque_obj" in name]
    if pickled:
        raise RuntimeError(
            "%s is a pickle that would run code; allow it with --mlms-allow-code" % pickled[0]
        )
    with zipfile.ZipFile(path) as archive:
        for name in members:
            if re.search(r"/models/[^/]*\.json$", name):
                for formula in _formulas(json.loads(archive.read(name).decode())):
                    if not _is_plain(formula):
                        raise RuntimeError(
                            "%s has a formula that would run code: %.80s" % (name, formula)
                        )


def _formulas(value):
    """Yield what torch.export evaluates: the values of every ``expr_str``, and the guards."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        if key in ("expr_str", "guards_code"):
            yield from [part] if isinstance(part, str) else part
        elif isinstance(part, (dict, list)):
            yield from _formulas(part)


def _is_plain(formula):
    try:
        return all(map(_is_plain_node, ast.walk(ast.parse(formula.strip(), mode="eval"))))
    except SyntaxError:
        return False


def _is_plain_node(node):
    if isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Attribute):
            return function.attr in _METHODS
        return isinstance(function, ast.Name) and (
            function.id in _FUNCTIONS or function.id[:1].isupper()
        )
    if isinstance(node, ast.Attribute):
        return not node.attr.startswith("_")
    text = (
        getattr(node, "value", None)
        if type(node).__name__ == "Constant"
        else getattr(node, "s", None)
    )
    return not isinstance(text, str) or (re.match(r"\w*$", text) is not None and "__" not in text)
