"""LiteRT's profiler for tflite.py: that of its C API, as its Python interpreter offers none.

libLiteRt.so is a part of ai-edge-litert; what it exports is declared in litert/c/*.h of LiteRT's
sources, under a version of its binary interface. Its compiled model runs the kernels that the
interpreter runs. The profiler says in microseconds, on the clock of perf_counter, when each
operator began and what it took; of operators that XNNPACK ran only what they took, in their order.
It has room for half a million operators, and takes some 70 MB for that.
"""

import contextlib
import ctypes
import functools
import os
import time
from typing import NamedTuple, Optional

import numpy

_SINCE, _BEFORE = (2, 2), (3, 0)
_P, _I, _N = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_ARGUMENTS = {
    "CreateEnvironment": (_I, _P, _P),
    "CreateModelFromFile": (_P, ctypes.c_char_p, _P),
    "CreateOptions": (_P,),
    "SetOptionsHardwareAccelerators": (_P, _I),
    "CreateOpaqueOptions": (ctypes.c_char_p, _P, _P, _P),
    "AddOpaqueOptions": (_P, _P),
    "CreateCompiledModel": (_P, _P, _P, _P),
    "CompiledModelResizeInputTensorNonStrict": (_P, _N, _N, _P, _N),
    "CreateTensorBufferFromHostMemory": (_P, _P, _N, _P, _P),
    "RunCompiledModel": (_P, _N, _N, _P, _N, _P),
    "CompiledModelGetProfiler": (_P, _P),
    "StartProfiler": (_P,),
    "StopProfiler": (_P,),
    "GetNumProfilerEvents": (_P, _P),
    "GetProfilerEvents": (_P, _I, _P),
}
_DESTROYED = ("Environment", "Model", "Options", "CompiledModel", "TensorBuffer")
_CPU = 1
_ONLY_ACCELERATORS = 24  # an environment's option: it doesn't look for a GPU's library then
_WHOLE_NUMBER = 2
_ALIGNMENT = 64
_ELEMENTS = {
    "float32": 1,
    "int32": 2,
    "uint8": 3,
    "int64": 4,
    "bool": 6,
    "int16": 7,
    "complex64": 8,
    "int8": 9,
    "float16": 10,
    "float64": 11,
    "uint64": 13,
    "uint32": 16,
    "uint16": 17,
}
_SUBGRAPH, _OPERATOR, _DELEGATED, _SUBGRAPH_ENDS = 1, 2, 8, 32  # types of events


class Operator(NamedTuple):
    """What ran when; ``index`` is its place in the file, None for an operator of XNNPACK's."""

    kind: str
    index: Optional[int]
    start: float
    end: float


class _Value(ctypes.Structure):
    _fields_ = [("type", _I), ("whole", ctypes.c_int64)]


class _EnvironmentOption(ctypes.Structure):
    _fields_ = [("tag", _I), ("value", _Value)]


class _Layout(ctypes.Structure):
    _fields_ = [
        ("rank", ctypes.c_uint, 7),
        ("has_strides", ctypes.c_uint, 1),
        ("sizes", ctypes.c_int32 * 8),
        ("strides", ctypes.c_uint32 * 8),
    ]


class _TensorType(ctypes.Structure):
    _fields_ = [("element", _I), ("layout", _Layout)]


class Event(ctypes.Structure):
    """What the profiler tells: of an operator of the file ``index`` is its place.

    One of XNNPACK's has no start.
    """

    _fields_ = [
        ("tag", ctypes.c_char_p),
        ("type", _I),
        ("start", ctypes.c_uint64),
        ("took", ctypes.c_uint64),
        ("memory", _N * 6),
        ("index", ctypes.c_uint64),
        ("more", ctypes.c_uint64),
        ("source", _I),
    ]


def library_of(package):
    """Return the C API that comes with a package.

    Raises NotImplementedError where it has no profiler to read.
    """
    path = os.path.join(os.path.dirname(package.__file__), "libLiteRt.so")
    version = tuple(int(part) for part in package.__version__.split(".")[:2])
    if not os.path.exists(path) or not _SINCE <= version < _BEFORE:
        found = "%s %s" % (package.__name__, package.__version__)
        raise NotImplementedError(
            "the profiler is that of ai-edge-litert 2.2 and later on Linux; this is " + found
        )
    library = ctypes.CDLL(path)
    for name, arguments in _ARGUMENTS.items():
        getattr(library, "LiteRt" + name).argtypes = arguments
    for kind in _DESTROYED:
        function = getattr(library, "LiteRtDestroy" + kind)
        function.argtypes, function.restype = (_P,), None
    return library


@contextlib.contextmanager
def opened(library, path, signature, threads, xnnpack, inputs, outputs):
    """Compile the model for these inputs; yield a call that runs it into ``outputs``: (start, end,
    its operators).

    ``signature`` is the place of one in the file; arrays are in the order of its tensors.
    """
    do = functools.partial(_do, library)
    with contextlib.ExitStack() as stack:
        make = functools.partial(_make, library, stack)
        option = _EnvironmentOption(_ONLY_ACCELERATORS, _Value(_WHOLE_NUMBER, _CPU))
        environment = make("Environment", 1, ctypes.byref(option))
        model = make("Model", environment, os.fsencode(path), by="FromFile")
        compiled = make(
            "CompiledModel", environment, model, _options(library, make, threads, xnnpack)
        )
        for place, array in enumerate(inputs):
            sizes = (_I * array.ndim)(*array.shape)
            do(
                "CompiledModelResizeInputTensorNonStrict",
                compiled,
                signature,
                place,
                sizes,
                array.ndim,
            )
        profiler = _P()
        do("CompiledModelGetProfiler", compiled, ctypes.byref(profiler))
        read, written = [_memory(array) for array in inputs], [_memory(array) for array in outputs]
        run = functools.partial(
            do,
            "RunCompiledModel",
            compiled,
            signature,
            *_buffers(make, read),
            *_buffers(make, written),
        )

        def call():
            do("StartProfiler", profiler)
            start = time.perf_counter()
            for memory, array in zip(read, inputs):
                memory[...] = array
            run()
            for array, memory in zip(outputs, written):
                array[...] = memory
            end = time.perf_counter()
            do("StopProfiler", profiler)
            return start, end, operators_of(_events(library, profiler))

        yield call


def _do(library, name, *arguments):
    status = getattr(library, "LiteRt" + name)(*arguments)
    if status:
        raise RuntimeError("LiteRt%s gave status %d; the log may say why" % (name, status))


def _make(library, stack, kind, *arguments, by=""):
    """Return an object of the C API, which is destroyed with ``stack``."""
    handle = _P()
    _do(library, "Create" + kind + by, *arguments, ctypes.byref(handle))
    stack.callback(getattr(library, "LiteRtDestroy" + kind), handle)
    return handle


def _options(library, make, threads, xnnpack):
    """Return what to compile by.

    LiteRT looks for the CPU's under one name for XNNPACK and another for the rest.
    """
    options = make("Options")
    _do(library, "SetOptionsHardwareAccelerators", options, _CPU)
    cpu = 'kernel_mode = "%s"\nnum_threads = %d\n' % ("delegate" if xnnpack else "builtin", threads)
    _add(library, options, "runtime_options_string", "enable_profiling = true\n")
    _add(library, options, "xnnpack", cpu)
    _add(library, options, "cpu_delegate", cpu)
    return options


def _add(library, options, name, text):
    """Add options under the name that LiteRT looks for; they free their text with C's free."""
    part, libc = _P(), ctypes.CDLL(None)
    libc.strdup.restype = _P
    text, free = _P(libc.strdup(text.encode())), ctypes.cast(libc.free, _P)
    _do(library, "CreateOpaqueOptions", name.encode(), text, free, ctypes.byref(part))
    _do(library, "AddOpaqueOptions", options, part)


def _memory(array):
    """Return memory for such an array, aligned as LiteRT wants it, with room behind it that XNNPACK
    may read.
    """
    raw = numpy.zeros(array.nbytes + 2 * _ALIGNMENT, "u1")
    offset = -raw.ctypes.data % _ALIGNMENT
    return raw[offset : offset + array.nbytes].view(array.dtype).reshape(array.shape)


def _buffers(make, arrays):
    """Return how many buffers, and them."""
    made = []
    for array in arrays:
        if array.dtype.name not in _ELEMENTS:
            raise NotImplementedError(
                "LiteRT's profiler can't be used with tensors of %s here" % array.dtype.name
            )
        layout = _Layout(array.ndim, 0, array.shape)
        kind = _TensorType(_ELEMENTS[array.dtype.name], layout)
        place = (ctypes.byref(kind), array.ctypes.data, array.nbytes, None)
        made.append(make("TensorBuffer", *place, by="FromHostMemory").value)
    return len(made), (_P * len(made))(*made)


def _events(library, profiler):
    count = _I()
    _do(library, "GetNumProfilerEvents", profiler, ctypes.byref(count))
    events = (Event * count.value)()
    _do(library, "GetProfilerEvents", profiler, count, events)
    return events


def operators_of(events):
    """Return the operators of the graph itself, not those of subgraphs that it calls.

    XNNPACK's one after another.
    """
    found, depth, now = [], 0, 0.0
    for event in events:
        start, took, kind = event.start / 1e6, event.took / 1e6, event.tag.decode()
        if kind == "Invoke" and event.type == _SUBGRAPH:
            depth += 1
            now = start if depth == 1 else now
        elif kind == "Invoke" and event.type == _SUBGRAPH_ENDS:
            depth -= 1
        elif depth == 1 and event.type in (_OPERATOR, _DELEGATED):
            began = start if event.type == _OPERATOR else now
            now = began + took
            found.append(
                Operator(kind, event.index if event.type == _OPERATOR else None, began, now)
            )
    if depth or not found:
        raise RuntimeError(
            "LiteRT's profiler lost what ran: %d events don't make a call" % len(events)
        )
    return found
