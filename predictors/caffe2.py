"""Caffe2: ``graph`` is a predict net (NetDef), ``weights`` its init net.

Versions: those inside PyTorch 1.2 to 1.11, numbered as PyTorch is; tested with 1.10.2.

Devices: cpu. The CUDA builds are not supported.

Synchronises: on the CPU an operator has finished when its call returns. Outputs are copied.

Options: ``inputs``, such as ``data float32[?,3,224,224]``, since a net does not contain the shapes.

Layer times: each operator is a net of its own, which is run and timed by its own call. The times
include a few microseconds for that call. Inner outputs: the first output of each operator, copied
after each.
"""

import itertools
import time
from typing import Any, List, NamedTuple

import numpy
import torch
from caffe2.proto import caffe2_pb2
from caffe2.python import workspace
from google.protobuf import message, text_format
from mlms_predictors import (
    Arrays,
    Call,
    Devices,
    InnerOutputs,
    Layer,
    Load,
    Loaded,
    Outputs,
    Profile,
    Shapes,
    Structure,
    Tensor,
    Versions,
)
from mlms_predictors._run.checks import (
    file_of,
    in_order,
    read_tensors,
    refuse_gpu,
    refuse_unknown,
)
from mlms_predictors._run.shapes import smallest
from mlms_predictors._run.steps import between

OPTIONS = {"inputs": "text"}
_WITH_FILES = frozenset(
    [
        "Checkpoint",
        "CreateCommonWorld",
        "CreateDB",
        "CreateTextFileReader",
        "DBExists",
        "FileStoreHandlerCreate",
        "Load",
        "Onnxifi",
        "Print",
        "Python",
        "PythonDLPack",
        "Save",
        "Snapshot",
        "TensorProtosDBInput",
    ]
)
"""Operators that read or write files, connect to others, or run code."""
_NUMBERS = itertools.count()
workspace.GlobalInit(["mlms", "--caffe2_log_level=2"])


class _Model(NamedTuple):
    """A predict net, and the workspace of its name with its blobs.

    ``steps`` has a call for each operator, once those were asked for.
    """

    net: Any
    workspace: Any
    steps: List[Any]


def versions() -> Versions:
    """Return the versions of the framework and of numpy."""
    version = torch.__version__.partition("+")[0]
    return {"caffe2": version, "numpy": numpy.__version__}


def devices() -> Devices:
    """Return the devices that a model can be loaded on in this process."""
    return ["cpu"]


def load(request: Load) -> Loaded:
    """Make the blobs and the net.

    Raises ValueError or RuntimeError where files are none, or don't fit together.
    """
    refuse_gpu(request.device, "Caffe2")
    options = refuse_unknown(request.options, OPTIONS)
    if request.threads:
        torch.set_num_threads(request.threads)
    net = _net(request.files["graph"])
    fill = _net(file_of(request.files, "weights", "init_net.pb"))
    inputs = _inputs(net, fill, options)
    net.name = "mlms-%d" % next(_NUMBERS)  # one name, one workspace
    workspace.SwitchWorkspace(net.name, True)
    workspace.RunNetOnce(fill)
    outputs = _outputs(net, inputs)
    for tensor in inputs:
        workspace.CreateBlob(tensor.name)
    workspace.CreateNet(net)
    model = _Model(net, workspace.C.Workspace.current, [])
    return Loaded(model, "cpu", torch.get_num_threads(), inputs, outputs)


def predict(loaded: Loaded, arrays: Arrays) -> Outputs:
    """Run one batch; return the outputs in the model's order."""
    return bind(loaded, arrays)()


def bind(loaded: Loaded, arrays: Arrays) -> Call:
    """Return ``predict`` on these arrays as a call without arguments, for the timed loop."""
    feeds = _feeds(loaded, arrays)
    model = loaded.model
    run = model.workspace.nets[model.net.name].run
    fetches = [model.workspace.blobs[tensor.name].fetch for tensor in loaded.outputs]

    def call():
        for feed, array in feeds:
            feed(array)
        run()
        return [fetch() for fetch in fetches]

    return call


def layers(loaded: Loaded, arrays: Arrays) -> Profile:
    """Run one batch operator by operator and return when each ran."""
    runs = _steps(loaded.model)
    feeds = _feeds(loaded, arrays)
    clock = time.perf_counter
    times = []
    start = clock()
    for feed, array in feeds:
        feed(array)
    for run in runs:
        between()
        begin = clock()
        run()
        times.append((begin, clock()))
    between()
    end = clock()
    blobs = loaded.model.workspace.blobs
    found = []
    for (name, op), (begin, ended) in zip(_named(loaded.model.net), times):
        outputs = [blobs[output].fetch() for output in op.output]
        layer = Layer(
            name=name,
            type=op.type,
            start=begin,
            end=ended,
            bytes=sum(output.nbytes for output in outputs),
            shape=outputs[0].shape,
        )
        found.append(layer)
    return Profile(start, end, found)


def inner(loaded: Loaded, arrays: Arrays) -> InnerOutputs:
    """Run one batch operator by operator and return what each gave."""
    model = loaded.model
    for feed, array in _feeds(loaded, arrays):
        feed(array)
    found = []
    for run, (name, op) in zip(_steps(model), _named(model.net)):
        run()
        output = model.workspace.blobs[op.output[0]]
        found.append((name, output.fetch()))
    return found


def structure(loaded: Loaded, shapes: Shapes) -> Structure:
    """Return the net as a graph for inputs of these shapes.

    Operations are counted by ``products``, from shapes that Caffe2 infers. Where it has no
    inference for an operator, the net runs once on zeros, with a copy of its weights.
    """
    from mlms_predictors._caffe2_structure import structure as describe

    model = loaded.model
    inputs = []
    for tensor in loaded.inputs:
        inputs.append(tensor._replace(shape=shapes[tensor.name]))
    outputs = [tensor.name for tensor in loaded.outputs]
    return describe(_named(model.net), inputs, outputs, model.workspace.blobs)


def close(loaded: Loaded) -> None:
    """Free the blobs and nets; the name of the workspace stays."""
    workspace.SwitchWorkspace(loaded.model.net.name, True)
    workspace.ResetWorkspace()


def _net(path):
    """Read a NetDef.

    Raises ValueError where the file is none, or has an operator that this Caffe2 lacks.
    """
    net = caffe2_pb2.NetDef()
    try:
        with open(path, "rb") as file:
            net.ParseFromString(file.read())
    except message.DecodeError:
        raise ValueError("%s is no net of Caffe2" % path) from None
    types = [op.type for op in net.op]
    if not types or not all(types):
        raise ValueError("%s is no net of Caffe2" % path)
    known = set(workspace.RegisteredOperators())
    for op in _operators(net):
        if op.type.partition("_ENGINE_")[0] in _WITH_FILES:
            text = "%s: operator %s reads or writes files that no digest covers, or runs code"
            raise ValueError(text % (path, op.type))
        if op.type not in known:
            name = op.name or op.output[0]
            text = "%s: this Caffe2 has no operator %s, as is %r"
            raise ValueError(text % (path, op.type, name))
    return net


def _operators(net):
    """Yield the operators of a net and of the nets in their arguments, which may be texts."""
    for op in net.op:
        yield op
        for argument in op.arg:
            nets = list(argument.nets)
            if argument.HasField("n"):
                nets.append(argument.n)
            if argument.name.endswith("step_net") and argument.s:
                nets.append(text_format.Parse(argument.s, caffe2_pb2.NetDef()))
            for inner in nets:
                yield from _operators(inner)


def _inputs(net, fill, options):
    """Return what the predict net takes and the init net doesn't make.

    Raises ValueError where that isn't what the options give.
    """
    made = set()
    for op in [*fill.op, *net.op]:
        made.update(op.output)
    needed = set()
    for op in net.op:
        needed.update(op.input)
    needed -= made
    if "inputs" not in options:
        names = [name for name in net.external_input if name in needed]
        return [Tensor(name, "float32", ()) for name in names]
    inputs = read_tensors(options["inputs"])
    given = {tensor.name for tensor in inputs}
    missing = sorted(needed - given)
    if missing:
        raise ValueError("the init net makes no " + ", ".join(missing))
    unknown = sorted(given - needed)
    if unknown:
        raise ValueError("the init net leaves no input " + ", ".join(unknown))
    return inputs


def _outputs(net, inputs):
    """Return the net's outputs, with shapes where those of the inputs are known.

    Raises RuntimeError where none fit.
    """
    shapes = {}
    if all(tensor.shape for tensor in inputs):
        shapes = _shapes(net, inputs)
    names = net.external_output or net.op[-1].output
    return [Tensor(name, "float32", shapes.get(name, ())) for name in names]


def _shapes(net, inputs):
    """Return the shapes that Caffe2 infers, by name, the first axis free."""
    for tensor in inputs:
        zeros = numpy.zeros(smallest(tensor.shape), tensor.dtype)
        workspace.FeedBlob(tensor.name, zeros)
    infer = workspace.C.infer_shapes_and_types_from_workspace
    reply = caffe2_pb2.TensorShapes()
    reply.ParseFromString(infer([net.SerializeToString()]))
    shapes = {}
    for one in reply.shapes:
        if not one.unknown_shape:
            shapes[one.name] = (None, *one.dims[1:])
    return shapes


def _feeds(loaded, arrays):
    """Return a call that takes an array, and the array, for each input."""
    given = in_order(loaded.inputs, arrays)
    blobs = loaded.model.workspace.blobs
    feeds = [blobs[tensor.name].feed for tensor in loaded.inputs]
    return list(zip(feeds, given))


def _steps(model):
    """Return a call for each operator, from nets that are made when first asked for."""
    if not model.steps:
        workspace.SwitchWorkspace(model.net.name)
        for number, op in enumerate(model.net.op):
            name = "%s-%d" % (model.net.name, number)
            workspace.CreateNet(caffe2_pb2.NetDef(name=name, op=[op]))
            model.steps.append(model.workspace.nets[name].run)
    return model.steps


def _named(net):
    """Return (name, operator) of each operator.

    It has its own name, else its output's, with its type where an output is written again.
    """
    found = {}
    for op in net.op:
        name = op.name or op.output[0]
        if name in found:
            name = "%s/%s" % (name, op.type)
        found[name] = op
    return list(found.items())
