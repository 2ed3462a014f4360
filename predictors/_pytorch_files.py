"""Reading of PyTorch's files, without running code that is hidden in them.

Pickles are read as weights only. torch.export.load can run code in more ways, and operators of a
TorchScript write files, so both are checked first. Zip files must be plain: torch reads them by a
reader of its own.
"""

import contextlib
import importlib.util
import json
import os
from typing import Any, List, NamedTuple, Sequence

import torch
from mlms_predictors import Load, Tensor
from mlms_predictors._pytorch_archive import check_pt2
from mlms_predictors._pytorch_script import check_script
from mlms_predictors._run.shapes import shape_of
from mlms_predictors._run.zip_files import begins_as_zip, plain_members

_WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


class ReadModel(NamedTuple):
    """A module and its signature; ``kind`` is export, script or module.

    ``states`` are the names of what a script or an exported program changes of
    itself in a call.
    """

    kind: str
    module: Any
    inputs: List[Tensor]
    outputs: List[Tensor]
    states: Sequence[str] = ()


def read_model(request: Load, device: Any) -> ReadModel:
    """Read the files in the format of the graph.

    Raises RuntimeError where it is no model, or would run code.
    """
    path = request.files["graph"]
    if path.endswith(".py"):
        return _read_module(request, device)
    members = _members(path)
    if any(name.endswith("/archive_format") for name in members):
        return _read_pt2(path, device, request.allow_code)
    if any("/code/" in name for name in members):
        return _read_script(path, device, request.allow_code)
    if any(name.endswith("data.pkl") for name in members) or _starts_as_pickle(path):
        raise RuntimeError(
            "it is a pickle, which holds no graph, or code that would run when loaded; save the "
            "model with torch.export or TorchScript, or give a .py file as graph and a state dict "
            "as weights"
        )
    raise RuntimeError("it is no model of PyTorch: neither .pt2 nor TorchScript nor a .py file")


def _members(path):
    """Return the names of the files in a zip file, of another file none.

    Raises ValueError for a zip file that torch might see otherwise.
    """
    if not begins_as_zip(path):
        return []
    return [member.filename for member in plain_members(path)]


def _starts_as_pickle(path):
    with open(path, "rb") as file:
        return file.read(1) == b"\x80"


def _read_script(path, device, allow_code):
    states = [] if allow_code else check_script(path)
    module = torch.jit.load(path, map_location=device).eval()
    arguments = module.forward.schema.arguments[1:]
    inputs = [Tensor(argument.name, "float32", ()) for argument in arguments]
    outputs = [Tensor("output", "", ())]
    return ReadModel("script", module, inputs, outputs, states)


def _read_module(request, device):
    """Run a .py file, and load the weights into the class that the options name."""
    path = request.files["graph"]
    if not request.allow_code:
        raise PermissionError("%s is code; allow it with --mlms-allow-code" % path)
    if "class" not in request.options or "weights" not in request.files:
        raise ValueError("a .py graph needs the option 'class', and a state dict as weights")
    kind = getattr(_import(path), request.options["class"])
    arguments = json.loads(request.options.get("arguments", "{}"))
    module = kind(**arguments)
    module.load_state_dict(_read_weights(request.files["weights"], device))
    inputs = [Tensor("input", "float32", ())]
    outputs = [Tensor("output", "", ())]
    return ReadModel("module", module.to(device).eval(), inputs, outputs)


def _import(path):
    spec = importlib.util.spec_from_file_location("mlms_model", path)
    assert spec is not None and spec.loader is not None  # noqa: PT018  # a .py file has both
    code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)
    return code


def _read_weights(path, device):
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        text = "the weights are no plain state dict, and a pickle would run code: %s"
        raise RuntimeError(text % reason) from error


def _read_pt2(path, device, allow_code):
    if not allow_code:
        check_pt2(path)
    with _told_damages(), _weights_only(not allow_code):
        program = torch.export.load(path)
        inputs, outputs = _inputs(program), _outputs(program)
    if device.type != "cpu":
        from torch.export.passes import move_to_device_pass

        program = move_to_device_pass(program, device)
    states = _changed_buffers(program)
    return ReadModel("export", program.module(), inputs, outputs, states)


def _changed_buffers(program):
    """Return the buffers that a call changes, by operators in place on them or on views of them."""
    buffers = program.graph_signature.inputs_to_buffers
    found = set(program.graph_signature.buffers_to_mutate.values())
    for node in program.graph.nodes:
        schema = _schema(node)
        part: Any = None
        if schema is not None and schema.is_mutable and node.args:
            part = node.args[0]
        while _is_view(part):
            part = part.args[0]
        if getattr(part, "name", None) in buffers:
            found.add(buffers[part.name])
    return sorted(found)


def _is_view(node):
    schema = _schema(node)
    return bool(schema and schema.arguments and schema.arguments[0].alias_info and node.args)


def _schema(node):
    return getattr(getattr(node, "target", None), "_schema", None)


@contextlib.contextmanager
def _told_damages():
    """Say of an error of torch.export, which may be of any class, that the file is the reason.

    That memory is full, or that a module is missing, is none of the file.
    """
    try:
        yield
    except (MemoryError, ImportError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:
        if "t allocate memory" in str(error):  # as a RuntimeError of the allocator of the CPU
            raise
        reason = str(error).partition("\n")[0]
        text = "torch %s can't read it; export it again with this version (%s: %.200s)"
        raise RuntimeError(text % (torch.__version__, type(error).__name__, reason)) from error


def _inputs(program):
    values = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            values[node.name] = node.meta["val"]
    names = program.graph_signature.user_inputs
    return [_tensor(name, values[name]) for name in names]


def _outputs(program):
    """Name the outputs by the keys of a dict that the model returns, or else by their nodes."""
    names = program.graph_signature.user_outputs
    labels = names
    spec = program.call_spec.out_spec
    if spec.type is dict:
        keys = list(spec.context)
        if len(keys) == len(names):
            labels = keys
    values = _output_values(program.graph)
    tensors = []
    for label, name in zip(labels, names):
        tensors.append(_tensor(label, values[name]))
    return tensors


def _output_values(graph):
    """Return example values of the nodes that a graph returns, by name; it may return constants."""
    values = {}
    for node in graph.nodes:
        if node.op == "output":
            for given in node.args[0]:
                if hasattr(given, "meta"):
                    values[given.name] = given.meta["val"]
    return values


def _tensor(name, value):
    dtype = str(value.dtype).replace("torch.", "")
    return Tensor(name, dtype, shape_of(value.shape))


@contextlib.contextmanager
def _weights_only(is_asked):
    """Have torch.load refuse pickles that are more than weights, wherever it is called."""
    before = os.environ.get(_WEIGHTS_ONLY)
    if is_asked:
        os.environ[_WEIGHTS_ONLY] = "1"
    try:
        yield
    finally:
        os.environ.pop(_WEIGHTS_ONLY, None)
        if before is not None:
            os.environ[_WEIGHTS_ONLY] = before
