"""CNTK: ``graph`` is a .model file as Function.save writes it.

Versions: 2.7, the last one, for Python 3.6; it needs Open MPI's libraries (Debian: libopenmpi3)
under the names that they had in 2014, as the stack in manifests/stacks.yaml has them. Devices: cpu.
Synchronises: forward returns when its outputs are in host memory.

Options: none. The first axis of inputs and outputs is CNTK's symbolic batch axis. Threads are the
process's, and stay as they are once something ran.

Layer times: CNTK's node timing, in microseconds, on a clone of the function that shares its
weights, of its second call. It tells how long each node took and not when: they are laid one after
another. CNTK can't switch this off again: functions loaded later in the same process are timed too.
Inner outputs: every node's, of a function with all of them as outputs.
"""

import ctypes
import os
import re
import sys
import tempfile
import time
import warnings
from typing import Any, List, NamedTuple

import numpy
from mlms_predictors import Loaded, Tensor
from mlms_predictors._run.checks import check, refuse_gpu, refuse_unknown
from mlms_predictors._run.timeline import in_turn

warnings.filterwarnings("ignore", module="cntk")  # pages on GPUs and Ubuntu 16.04
import cntk  # noqa: E402
from cntk import cntk_py  # noqa: E402

_RAN = []  # the number of threads, once something ran
_TIMING = re.compile(r"^(\S+)\s+forward avg ([0-9.]+)s", re.MULTILINE)


class _Model(NamedTuple):
    """The function as it was loaded, and clones of it.

    One that is timed, one that shows every node.
    """

    function: Any
    timed: List[Any]
    opened: List[Any]


def versions():
    """Return the versions of what computes."""
    return {"cntk": cntk.__version__, "numpy": numpy.__version__}


def devices():
    """Return the devices that a model can be loaded on, here and now."""
    return ["cpu"]


def load(request):
    """Read a function; raises ValueError where the file is none."""
    refuse_gpu(request.device, "CNTK")
    refuse_unknown(request.options, ())
    if request.threads:
        _use_threads(request.threads)
    function = _read(request.files["graph"])
    threads = cntk_py.get_max_num_cputhreads()
    return Loaded(
        _Model(function, [], []),
        "cpu",
        threads,
        _tensors(function.arguments),
        _tensors(function.outputs),
    )


def predict(loaded, arrays):
    """Run one batch: arrays by input name in, a list of arrays in the model's order out."""
    return bind(loaded, arrays)()


def bind(loaded, arrays):
    """Return predict as a call without arguments: what the timed loop runs."""
    check(loaded.inputs, arrays)
    return _bound(loaded.model.function, arrays)


def layers(loaded, arrays):
    """Run one batch with CNTK's node timing and return how long each node took."""
    check(loaded.inputs, arrays)
    if not loaded.model.timed:
        cntk_py.enable_node_timing()
        loaded.model.timed.append(loaded.model.function.clone("share"))
    function = loaded.model.timed[0]
    call = _bound(function, arrays)
    call()  # the first call also prepares for the shape
    _printed(function.print_node_timing)  # that forgets it
    start = time.perf_counter()
    call()
    end = time.perf_counter()
    took = {
        uid: float(seconds)
        for uid, seconds in _TIMING.findall(_printed(function.print_node_timing))
    }
    count = len(next(iter(arrays.values())))
    named = {
        twin.uid: node
        for node, twin in zip(_found(loaded.model.function, -1), _found(function, -1))
    }
    ran = [node for node in _nodes(function, -1) if node.uid in took]
    return in_turn(start, end, [_layer(named[node.uid], took[node.uid], count) for node in ran])


def inner(loaded, arrays):
    """Run one batch and return what each node gave."""
    check(loaded.inputs, arrays)
    if not loaded.model.opened:
        loaded.model.opened.append(
            cntk.combine([node.output for node in _nodes(loaded.model.function)])
        )
    function = loaded.model.opened[0]
    names = [variable.owner.name or variable.owner.uid for variable in function.outputs]
    return list(zip(names, _bound(function, arrays)()))


def structure(loaded, shapes):
    """Return the function as a graph for inputs of these shapes.

    Counts are ours, from the shapes of its variables.
    """
    from mlms_predictors._cntk_structure import structure as write_down

    return write_down(loaded.model.function, _nodes(loaded.model.function, -1), shapes)


def _use_threads(count):
    """Set the number of threads.

    Once something ran, CNTK would end the process (SIGFPE) where it changes.
    """
    if _RAN and count != cntk_py.get_max_num_cputhreads():
        raise RuntimeError(
            "CNTK has run with %d threads here and can't change that; start another agent" % _RAN[0]
        )
    cntk_py.set_max_num_cputhreads(count)


def _read(path):
    """Read a function; CNTK ends its process on some files of others, so they are looked at first."""
    with open(path, "rb") as file:
        head = file.read(4096)
    if b"CompositeFunction" not in head and b"PrimitiveFunction" not in head:
        raise ValueError("%s is no model of CNTK 2" % path)
    try:
        return cntk.Function.load(path, device=cntk.cpu())
    except RuntimeError as error:
        raise ValueError("%s can't be read: %s" % (path, str(error).partition("\n")[0])) from None


def _bound(function, arrays):
    """Return a call that gives the function's outputs, in its order."""
    _RAN[:] = [cntk_py.get_max_num_cputhreads()]
    inputs = {argument: arrays[argument.name] for argument in function.arguments}
    outputs, forward, device = function.outputs, function.forward, cntk.cpu()

    def call():
        found = forward(inputs, outputs, device=device)[1]
        return [found[output] for output in outputs]

    return call


def _nodes(function, depth=0):
    """Return the function's nodes as they were made, an order in which they can run.

    -1: those in blocks too.
    """
    return sorted(
        _found(function, depth), key=lambda node: int(re.search(r"\d*$", node.uid).group() or 0)
    )


def _found(function, depth):
    return cntk.logging.graph.depth_first_search(
        function.root_function, lambda node: hasattr(node, "op_name"), depth=depth
    )


def _layer(node, seconds, count):
    shape = (count,) + tuple(node.output.shape)
    return node.name or node.uid, node.op_name, seconds, 4 * int(numpy.prod(shape)), shape


def _tensors(variables):
    return [
        Tensor(v.name or v.uid, numpy.dtype(v.dtype).name, (None,) * len(v.dynamic_axes) + v.shape)
        for v in variables
    ]


def _printed(call):
    """Return what a call prints on the process's own descriptors."""
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
