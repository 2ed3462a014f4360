"""Apache MXNet: ``graph`` is a symbol's JSON, ``weights`` its params.

Versions: 1.6 to 1.9; tried with 1.9.1. Devices: cpu; its GPU builds ended with CUDA 11.
Synchronises: MXNet computes behind the caller's back, and asnumpy waits for the outputs and copies
them.

Options: ``inputs``, as in ``data float32[?,3,224,224]``, where the symbol doesn't say their shapes
(``__shape__``). Threads are OpenMP's in the thread of MXNet's engine that computes, set and read
back there, and OpenBLAS's.

Layer times: the time from one operator's end to the next's, timed here by the monitor callback of a
second executor that fuses nothing (MXNET_SUBGRAPH_BACKEND=NONE) and waits after each; handing an
operator to the engine's thread is in them, about 10 microseconds. Inner outputs: by the same
callback.
"""

import contextlib
import ctypes
import json
import os
import re
import time
from typing import Any, Dict, NamedTuple

import mxnet
import numpy
from mlms_predictors import Layer, Loaded, Profile, Tensor
from mlms_predictors._run.checks import check, file_of, read_tensors, refuse_gpu, refuse_unknown
from mlms_predictors._run.steps import between
from mxnet.base import _LIB, NDArrayHandle, check_call
from mxnet.ndarray.ndarray import _DTYPE_MX_TO_NP

_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class _Model(NamedTuple):
    """The symbol, its weights and other states by name, and executors by (shapes, whether layers
    are watched).
    """

    symbol: Any
    weights: Dict[str, Any]
    states: Dict[str, Any]
    executors: Dict[Any, Any]


def versions():
    """Return the versions of what computes."""
    return {"mxnet": mxnet.__version__, "numpy": numpy.__version__}


def devices():
    """Return the devices that a model can be loaded on, here and now."""
    return ["cpu"]


def load(request):
    """Read symbol and params.

    Raises ValueError or MXNetError where they are none, or don't fit together.
    """
    refuse_gpu(request.device, "MXNet")
    options = refuse_unknown(request.options, ("inputs",))
    symbol = _symbol(request.files["graph"])
    weights, states = _params(file_of(request.files, "weights", "MODEL-0000.params"))
    inputs = _inputs(
        symbol, weights, read_tensors(options["inputs"]) if "inputs" in options else None
    )
    _check_weights(symbol, dict(weights, **states), inputs)
    model = _Model(symbol, weights, states, {})
    return Loaded(model, "cpu", _use_threads(request.threads), inputs, _outputs(symbol, inputs))


def predict(loaded, arrays):
    """Run one batch: arrays by input name in, a list of arrays in the model's order out."""
    return bind(loaded, arrays)()


def bind(loaded, arrays):
    """Return predict as a call without arguments: what the timed loop runs."""
    check(loaded.inputs, arrays)
    executor = _executor(loaded, arrays)
    pairs = [(executor.arg_dict[t.name]._sync_copyfrom, arrays[t.name]) for t in loaded.inputs]

    def call():
        for copy, array in pairs:
            copy(array)
        return [output.asnumpy() for output in executor.forward(is_train=False)]

    return call


def layers(loaded, arrays):
    """Run one batch operator by operator and return when each ran."""
    watched = _watched(loaded, arrays)
    watched()  # the first call for a shape also prepares kernels
    between()
    start = time.perf_counter()
    seen = watched()
    return Profile(
        start, time.perf_counter(), [_layer(start, *pair) for pair in zip([None] + seen, seen)]
    )


def inner(loaded, arrays):
    """Run one batch operator by operator and return what each gave."""
    found = []  # copied there and then, as later operators reuse the memory
    _watched(loaded, arrays, lambda node, array: found.append((node["name"], array.asnumpy())))()
    return found


def structure(loaded, shapes):
    """Return the symbol as a graph for inputs of these shapes.

    Counts are ours, from shapes that MXNet infers.
    """
    from mlms_predictors._mxnet_structure import structure as write_down

    model = loaded.model
    return write_down(model.symbol, set(model.weights) | set(model.states), loaded.inputs, shapes)


def close(loaded):
    """Free the executors and the weights, whoever still holds what was loaded."""
    for held in (loaded.model.executors, loaded.model.weights, loaded.model.states):
        held.clear()
    mxnet.nd.waitall()
    mxnet.Context.empty_cache(mxnet.cpu())


def _symbol(path):
    try:
        with open(path, encoding="utf-8") as file:
            nodes = json.load(file)["nodes"]
    except (ValueError, KeyError, TypeError):
        raise ValueError("%s is no symbol of MXNet" % path) from None
    known = set(mxnet.operator.get_all_registered_operators())
    for node in nodes:
        if node["op"] != "null" and node["op"] not in known:
            raise ValueError(
                "%s: this MXNet has no operator %s, as is %r" % (path, node["op"], node["name"])
            )
    return mxnet.symbol.load(path)


def _params(path):
    """Return weights and other states by name."""
    try:
        saved = mxnet.nd.load(path)
        found = {kind: {} for kind in ("arg", "aux")}
        for key, array in saved.items():
            kind, _, name = key.partition(":")
            found[kind][name] = array
    except (mxnet.base.MXNetError, AttributeError, KeyError):
        raise ValueError("%s are no params of MXNet" % path) from None
    return found["arg"], found["aux"]


def _inputs(symbol, weights, given):
    """Return the arguments that are no weights: as given, else as the symbol says.

    Labels of losses are none either.
    """
    names = [
        name
        for name in symbol.list_arguments()
        if name not in weights and not name.endswith("_label")
    ]
    if given is None:
        described = symbol.attr_dict()
        given = [_input(name, described.get(name, {})) for name in names]
        if any(tensor.shape for tensor in given):
            given = [tensor for tensor in given if tensor.shape]
    lacking = sorted(set(names) - {tensor.name for tensor in given})
    if lacking:
        raise ValueError("the params have no weights %s" % ", ".join(lacking))
    return given


def _input(name, described):
    """Return an input by its attributes; 0 is the free axis, -1 and -2 in newer files."""
    shape = [int(size) for size in re.findall(r"-?\d+", described.get("__shape__", ""))]
    kind = _DTYPE_MX_TO_NP.get(int(described.get("__dtype__", 0)), numpy.float32)
    return Tensor(name, numpy.dtype(kind).name, tuple(size if size > 0 else None for size in shape))


def _check_weights(symbol, saved, inputs):
    """Compare shapes; MXNet itself would speak up at the first call only."""
    shapes = {
        tensor.name: tuple(size or 1 for size in tensor.shape) for tensor in inputs if tensor.shape
    }
    arguments, _, states = symbol.infer_shape_partial(**shapes)
    names = symbol.list_arguments() + symbol.list_auxiliary_states()
    for name, shape in zip(names, arguments + states):
        if name in saved and shape and 0 not in shape and tuple(shape) != saved[name].shape:
            raise ValueError(
                "weights %r are %s, and the symbol takes %s"
                % (name, saved[name].shape, tuple(shape))
            )


def _outputs(symbol, inputs):
    """Return the outputs; MXNet adds a word to the name of the node that each is of."""
    shapes = {
        tensor.name: tuple(size or 1 for size in tensor.shape) for tensor in inputs if tensor.shape
    }
    found = symbol.infer_shape_partial(**shapes)[1]
    names = [re.sub("_output$", "", name) for name in symbol.list_outputs()]
    return [
        Tensor(name, "float32", (None,) + tuple(shape[1:]) if shape else ())
        for name, shape in zip(names, found)
    ]


def _executor(loaded, arrays, unfused=False):
    """Return the executor for these shapes; all of them share the weights."""
    model = loaded.model
    shapes = {tensor.name: arrays[tensor.name].shape for tensor in loaded.inputs}
    key = tuple(sorted(shapes.items())), unfused
    if key not in model.executors:
        inferred = dict(zip(model.symbol.list_arguments(), model.symbol.infer_shape(**shapes)[0]))
        own = {
            name: mxnet.nd.zeros(shape)
            for name, shape in inferred.items()
            if name not in model.weights
        }
        for tensor in loaded.inputs:
            own[tensor.name] = mxnet.nd.zeros(shapes[tensor.name], dtype=tensor.dtype)
        with _environment(*[("MXNET_SUBGRAPH_BACKEND", "NONE")] * unfused):
            bound = model.symbol.bind(
                mxnet.cpu(), dict(model.weights, **own), grad_req="null", aux_states=model.states
            )
        model.executors[key] = bound
    return model.executors[key]


@contextlib.contextmanager
def _environment(*pairs):
    """Have MXNet read other variables while it makes an executor."""
    before = dict(os.environ)
    os.environ.update(pairs)
    try:
        yield
    finally:
        for name, _ in pairs:
            del os.environ[name]
        os.environ.update(before)


def _watched(loaded, arrays, keep=lambda node, array: None):
    """Return a call that gives (node, first output, when it was ready, when the next began) of each
    operator.
    """
    check(loaded.inputs, arrays)
    executor, seen = _executor(loaded, arrays, unfused=True), []
    nodes = [
        node for node in json.loads(loaded.model.symbol.tojson())["nodes"] if node["op"] != "null"
    ]

    def note(name, handle):
        array = mxnet.nd.NDArray(ctypes.cast(handle, NDArrayHandle), writable=False)
        array.wait_to_read()
        ready, name = time.perf_counter(), name.decode()
        if len(seen) < len(nodes) and name.startswith(nodes[len(seen)]["name"] + "_"):
            keep(nodes[len(seen)], array)
            between()
            seen.append((nodes[len(seen)], array, ready, time.perf_counter()))

    def call():
        del seen[:]
        for tensor in loaded.inputs:
            executor.arg_dict[tensor.name]._sync_copyfrom(arrays[tensor.name])
        executor.forward(is_train=False)
        mxnet.nd.waitall()
        return list(seen)

    executor.set_monitor_callback(note)
    return call


def _layer(start, before, this):
    node, array, ready, _ = this
    begin = before[3] if before else start
    return Layer(
        node["name"], node["op"], begin, ready, array.size * array.dtype().itemsize, array.shape
    )


def _use_threads(count):
    """Set OpenMP's and OpenBLAS's threads, if a count is asked for.

    Return what the engine's thread says.
    """
    if count:
        _LIB.openblas_set_num_threads(count)
    found, array = [], mxnet.nd.zeros((1,))

    def run(*_):
        if count:
            _LIB.omp_set_num_threads(count)
        found.append(_LIB.omp_get_max_threads())

    function, context = _CALLBACK(run), (ctypes.c_int32 * 2)(mxnet.cpu().device_typeid, 0)
    handles, name = (ctypes.c_void_p * 1)(array.handle), b"threads"
    # MXEnginePushSyncND(function, parameter, deleter, context, read, 0, written, 1, property,
    # priority, name)
    check_call(
        _LIB.MXEnginePushSyncND(function, None, None, context, None, 0, handles, 1, None, 0, name)
    )
    array.wait_to_read()
    return found[0]
