"""Caffe2: ``graph`` is a predict net (NetDef), ``weights`` its init net.

Versions: those inside PyTorch 1.2 to 1.11, whose version it has; tried with 1.10.2. Devices: cpu;
its CUDA builds are not supported here. Synchronises: on the CPU an operator is done when its call
returns; outputs are copied.

Options: ``inputs``, as in ``data float32[?,3,224,224]``, since a net doesn't say shapes.

Layer times: each operator as a net of its own, run by a call of its own and timed here; that call's
few microseconds are in them. Inner outputs: the operators' first outputs, copied after each.
"""

import itertools
import time
from typing import Any, List, NamedTuple

import numpy
import torch
from caffe2.proto import caffe2_pb2
from caffe2.python import workspace
from google.protobuf import message
from mlms_predictors import Layer, Loaded, Profile, Tensor
from mlms_predictors._run.checks import check, file_of, read_tensors, refuse_gpu, refuse_unknown
from mlms_predictors._run.steps import between

_NUMBERS = itertools.count()
workspace.GlobalInit(["mlms", "--caffe2_log_level=2"])


class _Model(NamedTuple):
    """The predict net, the workspace of its name with its blobs, and a call for each operator on
    demand.
    """

    net: Any
    workspace: Any
    steps: List[Any]


def versions():
    """Return the versions of what computes."""
    return {"caffe2": torch.__version__.partition("+")[0], "numpy": numpy.__version__}


def devices():
    """Return the devices that a model can be loaded on, here and now."""
    return ["cpu"]


def load(request):
    """Make the blobs and the net.

    Raises ValueError or RuntimeError where files are none, or don't fit together.
    """
    refuse_gpu(request.device, "Caffe2")
    options = refuse_unknown(request.options, ("inputs",))
    if request.threads:
        torch.set_num_threads(request.threads)
    net, fill = _net(request.files["graph"]), _net(file_of(request.files, "weights", "init_net.pb"))
    inputs = _inputs(net, fill, read_tensors(options["inputs"]) if "inputs" in options else None)
    net.name = "mlms-%d" % next(_NUMBERS)  # one name, one workspace
    workspace.SwitchWorkspace(net.name, True)
    workspace.RunNetOnce(fill)
    outputs = _outputs(net, inputs)
    for tensor in inputs:
        workspace.CreateBlob(tensor.name)
    workspace.CreateNet(net)
    return Loaded(
        _Model(net, workspace.C.Workspace.current, []),
        "cpu",
        torch.get_num_threads(),
        inputs,
        outputs,
    )


def predict(loaded, arrays):
    """Run one batch: arrays by input name in, a list of arrays in the model's order out."""
    return bind(loaded, arrays)()


def bind(loaded, arrays):
    """Return predict as a call without arguments: what the timed loop runs."""
    feeds = _feeds(loaded, arrays)
    workspace_ = loaded.model.workspace
    run = workspace_.nets[loaded.model.net.name].run
    fetches = [workspace_.blobs[tensor.name].fetch for tensor in loaded.outputs]

    def call():
        for feed, array in feeds:
            feed(array)
        run()
        return [fetch() for fetch in fetches]

    return call


def layers(loaded, arrays):
    """Run one batch operator by operator and return when each ran."""
    runs, clock, times = _steps(loaded), time.perf_counter, []
    feeds = _feeds(loaded, arrays)
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
    return Profile(
        start, end, [_layer(loaded, *pair) for pair in zip(_names(loaded.model.net), times)]
    )


def inner(loaded, arrays):
    """Run one batch operator by operator and return what each gave."""
    found = []
    for feed, array in _feeds(loaded, arrays):
        feed(array)
    for run, (name, op) in zip(_steps(loaded), _names(loaded.model.net)):
        run()
        found.append((name, loaded.model.workspace.blobs[op.output[0]].fetch()))
    return found


def structure(loaded, shapes):
    """Return the net as a graph for inputs of these shapes; counts are ours, from shapes that
    Caffe2 infers.

    Where it has no inference for an operator, the net runs once on zeros, with a copy of its
    weights.
    """
    from mlms_predictors._caffe2_structure import structure as write_down

    fed = [tensor._replace(shape=shapes[tensor.name]) for tensor in loaded.inputs]
    outputs = [tensor.name for tensor in loaded.outputs]
    return write_down(_names(loaded.model.net), fed, outputs, loaded.model.workspace.blobs)


def close(loaded):
    """Free the blobs and nets; the name of the workspace stays."""
    workspace.SwitchWorkspace(loaded.model.net.name, True)
    workspace.ResetWorkspace()


def _net(path):
    """Read a NetDef; raises ValueError where the file is none, or has an operator that this Caffe2
    lacks.
    """
    net = caffe2_pb2.NetDef()
    try:
        with open(path, "rb") as file:
            net.ParseFromString(file.read())
    except message.DecodeError:
        raise ValueError("%s is no net of Caffe2" % path) from None
    if not net.op or not all(op.type for op in net.op):
        raise ValueError("%s is no net of Caffe2" % path)
    known = set(workspace.RegisteredOperators())
    for op in net.op:
        if op.type not in known:
            raise ValueError(
                "%s: this Caffe2 has no operator %s, as is %r"
                % (path, op.type, op.name or op.output[0])
            )
    return net


def _inputs(net, fill, given):
    """Return what the predict net takes and the init net doesn't make.

    Raises ValueError where that isn't ``given``.
    """
    made = {name for op in list(fill.op) + list(net.op) for name in op.output}
    needed = {name for op in net.op for name in op.input} - made
    if given is None:
        names = [name for name in net.external_input if name in needed]
        return [Tensor(name, "float32", ()) for name in names]
    lacking, unknown = needed - {t.name for t in given}, {t.name for t in given} - needed
    if lacking or unknown:
        said = "makes no %s" if lacking else "leaves no input %s"
        raise ValueError("the init net " + said % ", ".join(sorted(lacking or unknown)))
    return given


def _outputs(net, inputs):
    """Return the net's outputs, with shapes where those of the inputs are known.

    Raises RuntimeError where none fit.
    """
    shapes = {}
    if all(tensor.shape for tensor in inputs):
        for tensor in inputs:
            workspace.FeedBlob(
                tensor.name, numpy.zeros([size or 1 for size in tensor.shape], tensor.dtype)
            )
        found = caffe2_pb2.TensorShapes()
        found.ParseFromString(
            workspace.C.infer_shapes_and_types_from_workspace([net.SerializeToString()])
        )
        shapes = {
            shape.name: (None,) + tuple(shape.dims)[1:]
            for shape in found.shapes
            if not shape.unknown_shape
        }
    return [
        Tensor(name, "float32", shapes.get(name, ()))
        for name in net.external_output or net.op[-1].output
    ]


def _feeds(loaded, arrays):
    check(loaded.inputs, arrays)
    return [(loaded.model.workspace.blobs[t.name].feed, arrays[t.name]) for t in loaded.inputs]


def _steps(loaded):
    """Return a call for each operator, from nets that are made when first wanted."""
    model = loaded.model
    if not model.steps:
        workspace.SwitchWorkspace(model.net.name)
        for number, op in enumerate(model.net.op):
            step = caffe2_pb2.NetDef(name="%s-%d" % (model.net.name, number), op=[op])
            workspace.CreateNet(step)
            model.steps.append(model.workspace.nets[step.name].run)
    return model.steps


def _names(net):
    """Return (name, operator) of each.

    Its own, else its output's, with its type where an output is written again.
    """
    found = {}
    for op in net.op:
        name = op.name or op.output[0]
        found[name if name not in found else "%s/%s" % (name, op.type)] = op
    return list(found.items())


def _layer(loaded, named, times):
    name, op = named
    outputs = [loaded.model.workspace.blobs[output].fetch() for output in op.output]
    return Layer(
        name, op.type, times[0], times[1], sum(array.nbytes for array in outputs), outputs[0].shape
    )
