"""Apache MXNet: ``graph`` is a symbol's JSON, ``weights`` its params.

Versions: 1.6 to 1.9; tested with 1.9.1.

Devices: cpu. The GPU builds ended with CUDA 11.

Synchronises: MXNet computes asynchronously. ``asnumpy`` waits for the outputs and copies them.

Options: ``inputs``, such as ``data float32[?,3,224,224]``, for a symbol without shapes
(``__shape__``). The number of threads is OpenMP's, set and read back in the thread of MXNet's
engine that computes, and OpenBLAS's.

Layer times: the time from the end of one operator to the end of the next. The monitor callback of a
second executor takes them, which fuses nothing (MXNET_SUBGRAPH_BACKEND=NONE) and waits after each
operator. They include about 10 microseconds to pass an operator to the engine's thread. Inner
outputs: by the same callback.
"""

import contextlib
import ctypes
import json
import os
import re
import time
from typing import Any, Callable, Dict, List, NamedTuple, Set, Tuple

import mxnet
import numpy
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
from mlms_predictors._run.checks import check, file_of, read_tensors, refuse_gpu, refuse_unknown
from mlms_predictors._run.shapes import smallest
from mlms_predictors._run.steps import between
from mxnet.base import _LIB, NDArrayHandle, check_call
from mxnet.ndarray.ndarray import _DTYPE_MX_TO_NP

OPTIONS = {"inputs": "text"}
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_UNFUSED = {"MXNET_SUBGRAPH_BACKEND": "NONE"}


class _Model(NamedTuple):
    """A symbol, its weights and other states by name, and its executors.

    Executors are for some shapes, and either fused or for layers.
    """

    symbol: Any
    weights: Dict[str, Any]
    states: Dict[str, Any]
    executors: Dict[Any, Any]


class _Operator(NamedTuple):
    """An operator as it ran: when its first output was ready, and when the next one began."""

    node: Dict[str, Any]
    output: Any
    ready: float
    next_begins: float


def versions() -> Versions:
    """Return the versions of the framework and of numpy."""
    return {"mxnet": mxnet.__version__, "numpy": numpy.__version__}


def devices() -> Devices:
    """Return the devices that a model can be loaded on in this process."""
    return ["cpu"]


def load(request: Load) -> Loaded:
    """Read symbol and params.

    Raises ValueError or MXNetError where they are none, or don't fit together.
    """
    refuse_gpu(request.device, "MXNet")
    options = refuse_unknown(request.options, OPTIONS)
    symbol = _read_symbol(request.files["graph"])
    weights, states = _read_params(file_of(request.files, "weights", "MODEL-0000.params"))
    inputs = _inputs(symbol, set(weights), options)
    shapes = _smallest_shapes(inputs)
    _check_weights(symbol, dict(weights, **states), shapes)
    return Loaded(
        model=_Model(symbol, weights, states, {}),
        device="cpu",
        threads=_use_threads(request.threads),
        inputs=inputs,
        outputs=_outputs(symbol, shapes),
    )


def predict(loaded: Loaded, arrays: Arrays) -> Outputs:
    """Run one batch; return the outputs in the model's order."""
    return bind(loaded, arrays)()


def bind(loaded: Loaded, arrays: Arrays) -> Call:
    """Return ``predict`` on these arrays as a call without arguments, for the timed loop."""
    check(loaded.inputs, arrays)
    executor = _executor(loaded, arrays)
    pairs = []
    for tensor in loaded.inputs:
        copy = executor.arg_dict[tensor.name]._sync_copyfrom
        pairs.append((copy, arrays[tensor.name]))

    def call():
        for copy, array in pairs:
            copy(array)
        return [output.asnumpy() for output in executor.forward(is_train=False)]

    return call


def layers(loaded: Loaded, arrays: Arrays) -> Profile:
    """Run one batch operator by operator and return when each ran."""
    call = _by_operator(loaded, arrays)
    call()  # the first call for a shape also prepares kernels
    between()
    start = time.perf_counter()
    operators = call()
    end = time.perf_counter()
    found = []
    begin = start
    for operator in operators:
        found.append(_layer(operator, begin))
        begin = operator.next_begins
    return Profile(start, end, found)


def inner(loaded: Loaded, arrays: Arrays) -> InnerOutputs:
    """Run one batch operator by operator and return what each gave."""
    found = []

    def keep(node: Dict[str, Any], output: Any) -> None:
        found.append((node["name"], output.asnumpy()))  # later operators reuse the memory

    call = _by_operator(loaded, arrays, keep)
    call()
    return found


def structure(loaded: Loaded, shapes: Shapes) -> Structure:
    """Return the symbol as a graph for inputs of these shapes.

    Operations are counted by ``products``, from shapes that MXNet infers.
    """
    from mlms_predictors._mxnet_structure import structure as describe

    model = loaded.model
    saved = set(model.weights) | set(model.states)
    return describe(model.symbol, saved, loaded.inputs, shapes)


def close(loaded: Loaded) -> None:
    """Free the executors and the weights, even where ``loaded`` is still referenced."""
    model = loaded.model
    for held in (model.executors, model.weights, model.states):
        held.clear()
    mxnet.nd.waitall()
    mxnet.Context.empty_cache(mxnet.cpu())


def _read_symbol(path):
    try:
        with open(path, encoding="utf-8") as file:
            nodes = json.load(file)["nodes"]
    except (ValueError, KeyError, TypeError):
        raise ValueError("%s is no symbol of MXNet" % path) from None
    known = set(mxnet.operator.get_all_registered_operators())
    for node in nodes:
        if node["op"] != "null" and node["op"] not in known:
            text = "%s: this MXNet has no operator %s, as is %r"
            raise ValueError(text % (path, node["op"], node["name"]))
    return mxnet.symbol.load(path)


def _read_params(path):
    """Return weights and other states by name."""
    found: Dict[str, Dict[str, Any]] = {"arg": {}, "aux": {}}
    try:
        for key, array in mxnet.nd.load(path).items():
            kind, _, name = key.partition(":")
            found[kind][name] = array
    except (mxnet.base.MXNetError, AttributeError, KeyError):
        raise ValueError("%s are no params of MXNet" % path) from None
    return found["arg"], found["aux"]


def _inputs(symbol, weights: Set[str], options):
    """Return the arguments that are neither weights nor labels of losses.

    The options declare them, or else the symbol.
    """
    names = []
    for name in symbol.list_arguments():
        if name not in weights and not name.endswith("_label"):
            names.append(name)
    inputs = _described(symbol, names)
    if "inputs" in options:
        inputs = read_tensors(options["inputs"])
    given = {tensor.name for tensor in inputs}
    missing = sorted(set(names) - given)
    if missing:
        raise ValueError("the params have no weights %s" % ", ".join(missing))
    return inputs


def _described(symbol, names):
    """Return arguments as the symbol declares them; if any has a shape, only those with one."""
    attributes = symbol.attr_dict()
    tensors = [_input(name, attributes.get(name, {})) for name in names]
    with_shape = [tensor for tensor in tensors if tensor.shape]
    return with_shape or tensors


def _input(name, attributes):
    """Return an input by its attributes; 0 is the free axis, -1 and -2 in newer files."""
    shape = []
    for text in re.findall(r"-?\d+", attributes.get("__shape__", "")):
        size = int(text)
        shape.append(size if size > 0 else None)
    number = int(attributes.get("__dtype__", 0))
    dtype = numpy.dtype(_DTYPE_MX_TO_NP.get(number, numpy.float32))
    return Tensor(name, dtype.name, tuple(shape))


def _smallest_shapes(inputs):
    """Return the shapes of inputs by name, free axes being one; unknown shapes are left out."""
    shapes = {}
    for tensor in inputs:
        if tensor.shape:
            shapes[tensor.name] = smallest(tensor.shape)
    return shapes


def _check_weights(symbol, saved, shapes):
    """Raise ValueError where shapes differ; MXNet itself raises at the first call only."""
    arguments, _, states = symbol.infer_shape_partial(**shapes)
    names = symbol.list_arguments() + symbol.list_auxiliary_states()
    for name, shape in zip(names, arguments + states):
        is_known = shape and 0 not in shape
        if not is_known or name not in saved:
            continue
        found = saved[name].shape
        expected = tuple(shape)
        if found != expected:
            text = "weights %r are %s, and the symbol takes %s"
            raise ValueError(text % (name, found, expected))


def _outputs(symbol, shapes):
    """Return the outputs, called as the nodes are: MXNet adds ``_output`` to those names."""
    found = []
    inferred = symbol.infer_shape_partial(**shapes)[1]
    for name, shape in zip(symbol.list_outputs(), inferred):
        axes: Tuple[Any, ...] = ()
        if shape:
            axes = (None, *shape[1:])
        found.append(Tensor(re.sub("_output$", "", name), "float32", axes))
    return found


def _executor(loaded, arrays, unfused=False):
    """Return the executor for these shapes, made when it is first asked for."""
    executors = loaded.model.executors
    shapes = {tensor.name: arrays[tensor.name].shape for tensor in loaded.inputs}
    key = (tuple(sorted(shapes.items())), unfused)
    if key not in executors:
        with _environment(_UNFUSED if unfused else {}):
            executors[key] = _new_executor(loaded, shapes)
    return executors[key]


def _new_executor(loaded, shapes):
    """Make an executor; all of them share the weights."""
    model = loaded.model
    arguments = dict(model.weights)
    inferred = model.symbol.infer_shape(**shapes)[0]
    for name, shape in zip(model.symbol.list_arguments(), inferred):
        if name not in model.weights:
            arguments[name] = mxnet.nd.zeros(shape)
    for tensor in loaded.inputs:
        shape = shapes[tensor.name]
        arguments[tensor.name] = mxnet.nd.zeros(shape, dtype=tensor.dtype)
    return model.symbol.bind(mxnet.cpu(), arguments, grad_req="null", aux_states=model.states)


@contextlib.contextmanager
def _environment(variables):
    """Set environment variables while MXNet makes an executor."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update(before)


def _ignore(node, output):
    """Keep nothing of an operator's output."""


def _by_operator(loaded, arrays, keep=_ignore) -> Callable[[], List[_Operator]]:
    """Return a call that runs a batch and returns the operators as they ran.

    ``keep`` is called with each node and its first output, untimed.
    """
    check(loaded.inputs, arrays)
    executor = _executor(loaded, arrays, unfused=True)
    symbol = json.loads(loaded.model.symbol.tojson())
    nodes = [node for node in symbol["nodes"] if node["op"] != "null"]
    operators: List[_Operator] = []

    def note(name, handle):
        """Note the first output of a node; MXNet reports inputs and other outputs too."""
        output = mxnet.nd.NDArray(ctypes.cast(handle, NDArrayHandle), writable=False)
        output.wait_to_read()
        ready = time.perf_counter()
        if len(operators) == len(nodes):
            return
        node = nodes[len(operators)]
        if name.decode().startswith(node["name"] + "_"):
            keep(node, output)
            between()
            operators.append(_Operator(node, output, ready, time.perf_counter()))

    def call():
        del operators[:]
        for tensor in loaded.inputs:
            executor.arg_dict[tensor.name]._sync_copyfrom(arrays[tensor.name])
        executor.forward(is_train=False)
        mxnet.nd.waitall()
        return list(operators)

    executor.set_monitor_callback(note)
    return call


def _layer(operator, begin):
    node, output, ready, _ = operator
    size = output.size * output.dtype().itemsize
    return Layer(node["name"], node["op"], begin, ready, size, output.shape)


def _use_threads(count):
    """Set the threads of OpenMP and OpenBLAS, if a count is asked for.

    Return the number in the engine's thread, which computes.
    """
    if count:
        _LIB.openblas_set_num_threads(count)
    found = []

    def run(*_):
        if count:
            _LIB.omp_set_num_threads(count)
        found.append(_LIB.omp_get_max_threads())

    _run_in_engine(run)
    return found[0]


def _run_in_engine(run):
    """Run a function in the thread of MXNet's engine, as an operation that writes an array."""
    array = mxnet.nd.zeros((1,))
    function = _CALLBACK(run)
    context = (ctypes.c_int32 * 2)(mxnet.cpu().device_typeid, 0)
    written = (ctypes.c_void_p * 1)(array.handle)
    status = _LIB.MXEnginePushSyncND(
        function,
        None,  # the function's parameter
        None,  # what deletes that
        context,
        None,  # arrays that are read
        0,
        written,
        1,
        None,  # property
        0,  # priority
        b"threads",
    )
    check_call(status)
    array.wait_to_read()
