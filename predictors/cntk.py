"""CNTK: ``graph`` is a .model file as Function.save writes it.

Versions: 2.7, the last one, for Python 3.6. It needs the libraries of Open MPI (Debian:
libopenmpi3) under the names that they had in 2014; the stack in manifests/stacks.yaml provides
them.

Devices: cpu.

Synchronises: ``forward`` returns when its outputs are in host memory.

Options: none. A model with functions of the user's own needs ``--mlms-allow-code``. The first axis
of inputs and outputs is CNTK's symbolic batch axis. The number of threads is that of the process,
and cannot change once a function has run.

Layer times: CNTK's node timing, in microseconds, of the second call of a clone that shares the
weights. It reports durations without start times, so the nodes are placed one after another. CNTK
cannot disable the timing again: functions loaded later in the same process are timed too. Inner
outputs: those of every node, of a function with all of them as outputs.
"""

import ctypes
import mmap
import os
import re
import sys
import tempfile
import time
import warnings
from typing import Any, Dict, List, NamedTuple

import numpy
from mlms_predictors import (
    Arrays,
    Call,
    Devices,
    InnerOutputs,
    Load,
    Loaded,
    Outputs,
    Profile,
    Shapes,
    Structure,
    Tensor,
    Versions,
)
from mlms_predictors._run.checks import check, refuse_gpu, refuse_unknown
from mlms_predictors._run.products import prod
from mlms_predictors._run.timeline import in_turn

warnings.filterwarnings("ignore", module="cntk")  # pages on GPUs and Ubuntu 16.04
import cntk  # noqa: E402
from cntk import cntk_py  # noqa: E402

OPTIONS: Dict[str, str] = {}
_TIMING = re.compile(r"^(\S+)\s+forward avg ([0-9.]+)s", re.MULTILINE)
_HEAD_BYTES = 4096
_USER_FUNCTION = b"UserDefinedFunction"
"""The type of such a function in a file."""
_FLOAT_BYTES = 4
_WITH_BLOCKS = -1
"""The depth of a search that goes into all blocks."""

_threads_in_use: List[int] = []
"""The number of threads, once something ran in this process."""


class _Model(NamedTuple):
    """A function as it was loaded, and clones of it.

    ``timed`` has one element once ``layers`` has run, ``opened`` once ``inner`` has.
    """

    function: Any
    timed: List[Any]
    opened: List[Any]


def versions() -> Versions:
    """Return the versions of the framework and of numpy."""
    return {"cntk": cntk.__version__, "numpy": numpy.__version__}


def devices() -> Devices:
    """Return the devices that a model can be loaded on in this process."""
    return ["cpu"]


def load(request: Load) -> Loaded:
    """Read a function; raises ValueError where the file is none."""
    refuse_gpu(request.device, "CNTK")
    refuse_unknown(request.options, OPTIONS)
    if request.threads:
        _use_threads(request.threads)
    function = _read(request.files["graph"], request.allow_code)
    return Loaded(
        model=_Model(function, [], []),
        device="cpu",
        threads=cntk_py.get_max_num_cputhreads(),
        inputs=_tensors(function.arguments),
        outputs=_tensors(function.outputs),
    )


def predict(loaded: Loaded, arrays: Arrays) -> Outputs:
    """Run one batch; return the outputs in the model's order."""
    return bind(loaded, arrays)()


def bind(loaded: Loaded, arrays: Arrays) -> Call:
    """Return ``predict`` on these arrays as a call without arguments, for the timed loop."""
    check(loaded.inputs, arrays)
    return _bound(loaded.model.function, arrays)


def layers(loaded: Loaded, arrays: Arrays) -> Profile:
    """Run one batch with CNTK's node timing and return how long each node took."""
    check(loaded.inputs, arrays)
    function = _timed(loaded.model)
    call = _bound(function, arrays)
    call()  # the first call also prepares for the shape
    _printed(function.print_node_timing)  # that forgets it
    start = time.perf_counter()
    call()
    end = time.perf_counter()
    report = _printed(function.print_node_timing)
    seconds = {}
    for uid, text in _TIMING.findall(report):
        seconds[uid] = float(text)
    originals = {}
    for node, clone in zip(
        _found(loaded.model.function, _WITH_BLOCKS), _found(function, _WITH_BLOCKS)
    ):
        originals[clone.uid] = node
    batch_size = len(next(iter(arrays.values())))
    ran = []
    for node in _nodes(function, _WITH_BLOCKS):
        if node.uid in seconds:
            original = originals[node.uid]
            ran.append(_layer(original, seconds[node.uid], batch_size))
    return in_turn(start, end, ran)


def inner(loaded: Loaded, arrays: Arrays) -> InnerOutputs:
    """Run one batch and return what each node gave."""
    check(loaded.inputs, arrays)
    if not loaded.model.opened:
        outputs = [node.output for node in _nodes(loaded.model.function)]
        loaded.model.opened.append(cntk.combine(outputs))
    function = loaded.model.opened[0]
    owners = [variable.owner for variable in function.outputs]
    names = [owner.name or owner.uid for owner in owners]
    call = _bound(function, arrays)
    return list(zip(names, call()))


def structure(loaded: Loaded, shapes: Shapes) -> Structure:
    """Return the function as a graph for inputs of these shapes.

    Operations are counted by ``products``, from the shapes of the variables.
    """
    from mlms_predictors._cntk_structure import structure as describe

    function = loaded.model.function
    return describe(function, _nodes(function, _WITH_BLOCKS), shapes)


def _use_threads(count):
    """Set the number of threads.

    After a function has run, CNTK ends the process (SIGFPE) if it changes.
    """
    if _threads_in_use and count != cntk_py.get_max_num_cputhreads():
        text = "CNTK has run with %d threads here and can't change that; start another agent"
        raise RuntimeError(text % _threads_in_use[0])
    cntk_py.set_max_num_cputhreads(count)


def _read(path, allow_code):
    """Read a function.

    CNTK ends its process on some files of other frameworks, so the beginning is checked first. Of a
    function of the user's, it runs the names of its module and class as Python.
    """
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
        if b"CompositeFunction" not in head and b"PrimitiveFunction" not in head:
            raise ValueError("%s is no model of CNTK 2" % path)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            has_code = content.find(_USER_FUNCTION) >= 0
    if has_code and not allow_code:
        text = "%s has a function of the user's, which is code; allow it with --mlms-allow-code"
        raise PermissionError(text % path)
    try:
        return cntk.Function.load(path, device=cntk.cpu())
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise ValueError("%s can't be read: %s" % (path, reason)) from None


def _timed(model):
    """Return the clone whose nodes are timed, made when it is first asked for."""
    if not model.timed:
        cntk_py.enable_node_timing()
        model.timed.append(model.function.clone("share"))
    return model.timed[0]


def _bound(function, arrays):
    """Return a call that gives the function's outputs, in its order."""
    _threads_in_use[:] = [cntk_py.get_max_num_cputhreads()]
    inputs = {argument: arrays[argument.name] for argument in function.arguments}
    outputs = function.outputs
    forward = function.forward
    device = cntk.cpu()

    def call():
        found = forward(inputs, outputs, device=device)[1]
        return [found[output] for output in outputs]

    return call


def _nodes(function, depth=0):
    """Return the function's nodes as they were made, an order in which they can run."""
    return sorted(_found(function, depth), key=_number)


def _number(node):
    """Return the number at the end of a node's identifier, which counts as nodes are made."""
    digits = re.search(r"\d+$", node.uid)
    return int(digits.group()) if digits else 0


def _found(function, depth):
    search = cntk.logging.graph.depth_first_search
    return search(function.root_function, lambda node: hasattr(node, "op_name"), depth=depth)


def _layer(node, seconds, batch_size):
    """Return a node as an argument of ``in_turn``."""
    shape = (batch_size, *node.output.shape)
    size = _FLOAT_BYTES * prod(shape)
    return node.name or node.uid, node.op_name, seconds, size, shape


def _tensors(variables):
    """Return variables as Tensors; their dynamic axes are free and come first."""
    found = []
    for variable in variables:
        name = variable.name or variable.uid
        free = (None,) * len(variable.dynamic_axes)
        dtype = numpy.dtype(variable.dtype).name
        found.append(Tensor(name, dtype, free + variable.shape))
    return found


def _printed(call):
    """Return the output of a call on the process's own descriptors."""
    sys.stdout.flush()
    with tempfile.TemporaryFile() as file:
        saved = [(number, os.dup(number)) for number in (1, 2)]
        try:
            for number, _ in saved:
                os.dup2(file.fileno(), number)
            call()
            ctypes.CDLL(None).fflush(None)
        finally:
            for number, copy in saved:
                os.dup2(copy, number)
                os.close(copy)
        file.seek(0)
        return file.read().decode(errors="replace")
