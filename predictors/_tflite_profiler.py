"""LiteRT's profiler for tflite.py, by its C API, since its Python interpreter has none.

libLiteRt.so is a part of ai-edge-litert; what it exports is declared in litert/c/*.h of LiteRT's
sources, under a version of its binary interface. Its compiled model runs the kernels that the
interpreter runs. The profiler says in microseconds, on the clock of perf_counter, when each
operator began and what it took; of operators that XNNPACK ran only what they took, in their order.
It has room for half a million operators, and takes some 70 MB for that.
"""

import contextlib
import ctypes
import os
import time
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence

import numpy

_FIRST_VERSION = (2, 2)
_END_OF_VERSIONS = (3, 0)
_P = ctypes.c_void_p
_I = ctypes.c_int
_N = ctypes.c_size_t
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
# Types of events
_SUBGRAPH = 1
_OPERATOR = 2
_DELEGATED = 8
_SUBGRAPH_ENDS = 32

_MICROSECONDS = 1e6


class Operator(NamedTuple):
    """An operator that ran; times are seconds.

    ``place`` is its place in the file, None for an operator of XNNPACK's.
    """

    kind: str
    place: Optional[int]
    start: float
    end: float


class ProfiledCall(NamedTuple):
    """One call in seconds, and the operators that ran in it."""

    start: float
    end: float
    operators: List[Operator]


class Compilation(NamedTuple):
    """Arguments of a compilation.

    ``signature`` is the position of one in the file. Arrays are in the order of its tensors; a call
    reads ``inputs`` and writes ``outputs``.
    """

    path: str
    signature: int
    threads: int
    xnnpack: bool
    inputs: List[Any]
    outputs: List[Any]


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
    """An event of the profiler; the names of fields are ours, their order is LiteRT's.

    ``place`` is an operator's place in the file. One of XNNPACK's has no place and no start.
    """

    _fields_ = [
        ("tag", ctypes.c_char_p),
        ("type", _I),
        ("start", ctypes.c_uint64),
        ("took", ctypes.c_uint64),
        ("memory", _N * 6),
        ("place", ctypes.c_uint64),
        ("more", ctypes.c_uint64),
        ("source", _I),
    ]


def library_of(package: Any) -> Any:
    """Return the C API that comes with a package.

    Raises NotImplementedError where it has no profiler to read.
    """
    path = os.path.join(os.path.dirname(package.__file__), "libLiteRt.so")
    version = tuple(int(part) for part in package.__version__.split(".")[:2])
    is_known = _FIRST_VERSION <= version < _END_OF_VERSIONS
    if not is_known or not os.path.exists(path):
        found = "%s %s" % (package.__name__, package.__version__)
        known = "the profiler is that of ai-edge-litert 2.2 and later on Linux"
        raise NotImplementedError("%s; this is %s" % (known, found))
    library = ctypes.CDLL(path)
    for name, arguments in _ARGUMENTS.items():
        getattr(library, "LiteRt" + name).argtypes = arguments
    for kind in _DESTROYED:
        function = getattr(library, "LiteRtDestroy" + kind)
        function.argtypes = (_P,)
        function.restype = None
    return library


@contextlib.contextmanager
def compiled(
    library: Any,
    compilation: Compilation,
) -> Iterator[Callable[[], ProfiledCall]]:
    """Compile a model; yield a call that runs it under the profiler."""
    with contextlib.ExitStack() as stack:
        api = _Api(library, stack)
        model = _compile(api, compilation)
        profiler = _P()
        api.do("CompiledModelGetProfiler", model, ctypes.byref(profiler))
        read = [_memory(array) for array in compilation.inputs]
        written = [_memory(array) for array in compilation.outputs]
        sides = (*_buffers(api, read), *_buffers(api, written))

        def call():
            api.do("StartProfiler", profiler)
            start = time.perf_counter()
            for memory, array in zip(read, compilation.inputs):
                memory[...] = array
            api.do("RunCompiledModel", model, compilation.signature, *sides)
            for array, memory in zip(compilation.outputs, written):
                array[...] = memory
            end = time.perf_counter()
            api.do("StopProfiler", profiler)
            return ProfiledCall(start, end, operators_of(_events(api, profiler)))

        yield call


class _Api:
    """Calls of the C API that raise errors; objects are destroyed with the stack."""

    def __init__(self, library, stack):
        self._library = library
        self._stack = stack

    def do(self, name, *arguments):
        """Call a function; raises RuntimeError where it fails."""
        status = getattr(self._library, "LiteRt" + name)(*arguments)
        if status:
            raise RuntimeError("LiteRt%s gave status %d; the log may say why" % (name, status))

    def make(self, kind, *arguments, by=""):
        """Return an object; ``by`` is the rest of the name of the function that creates it."""
        handle = _P()
        self.do("Create" + kind + by, *arguments, ctypes.byref(handle))
        destroy = getattr(self._library, "LiteRtDestroy" + kind)
        self._stack.callback(destroy, handle)
        return handle


def _compile(api, compilation):
    """Return the compiled model, its inputs of the shapes of the arrays."""
    value = _Value(_WHOLE_NUMBER, _CPU)
    option = _EnvironmentOption(_ONLY_ACCELERATORS, value)
    environment = api.make("Environment", 1, ctypes.byref(option))
    file = api.make("Model", environment, os.fsencode(compilation.path), by="FromFile")
    options = _options(api, compilation)
    model = api.make("CompiledModel", environment, file, options)
    for place, array in enumerate(compilation.inputs):
        sizes = (_I * array.ndim)(*array.shape)
        api.do(
            "CompiledModelResizeInputTensorNonStrict",
            model,
            compilation.signature,
            place,
            sizes,
            array.ndim,
        )
    return model


def _options(api, compilation):
    """Return the options of a compilation.

    LiteRT reads those of the CPU under one name for XNNPACK and under another for other kernels.
    """
    options = api.make("Options")
    api.do("SetOptionsHardwareAccelerators", options, _CPU)
    mode = "delegate" if compilation.xnnpack else "builtin"
    cpu = 'kernel_mode = "%s"\nnum_threads = %d\n' % (mode, compilation.threads)
    _add(api, options, "runtime_options_string", "enable_profiling = true\n")
    _add(api, options, "xnnpack", cpu)
    _add(api, options, "cpu_delegate", cpu)
    return options


def _add(api, options, name, text):
    """Add options under a name; LiteRT frees their text with C's free."""
    libc = ctypes.CDLL(None)
    libc.strdup.restype = _P
    copy = _P(libc.strdup(text.encode()))
    free = ctypes.cast(libc.free, _P)
    part = _P()
    api.do("CreateOpaqueOptions", name.encode(), copy, free, ctypes.byref(part))
    api.do("AddOpaqueOptions", options, part)


def _memory(array):
    """Return memory for such an array, aligned as LiteRT requires.

    There is room behind it, since XNNPACK may read beyond the end.
    """
    raw = numpy.zeros(array.nbytes + 2 * _ALIGNMENT, "u1")
    offset = -raw.ctypes.data % _ALIGNMENT
    aligned = raw[offset : offset + array.nbytes]
    return aligned.view(array.dtype).reshape(array.shape)


def _buffers(api, arrays):
    """Return the number of buffers, and an array of them."""
    made = [_buffer(api, array).value for array in arrays]
    return len(made), (_P * len(made))(*made)


def _buffer(api, array):
    dtype = array.dtype.name
    if dtype not in _ELEMENTS:
        raise NotImplementedError("LiteRT's profiler can't be used with tensors of %s here" % dtype)
    layout = _Layout(array.ndim, 0, array.shape)
    kind = _TensorType(_ELEMENTS[dtype], layout)
    return api.make(
        "TensorBuffer",
        ctypes.byref(kind),
        array.ctypes.data,
        array.nbytes,
        None,  # what frees the memory
        by="FromHostMemory",
    )


def _events(api, profiler):
    count = _I()
    api.do("GetNumProfilerEvents", profiler, ctypes.byref(count))
    events = (Event * count.value)()
    api.do("GetProfilerEvents", profiler, count, events)
    return events


def operators_of(events: Sequence[Event]) -> List[Operator]:
    """Return the operators of the graph itself, not those of subgraphs that it calls.

    XNNPACK's are one after another. Raises RuntimeError where the events are not one whole call.
    """
    found = []
    depth = 0
    now = 0.0
    for event in events:
        start = event.start / _MICROSECONDS
        seconds = event.took / _MICROSECONDS
        kind = event.tag.decode()
        if kind == "Invoke" and event.type == _SUBGRAPH:
            depth += 1
            if depth == 1:
                now = start
        elif kind == "Invoke" and event.type == _SUBGRAPH_ENDS:
            depth -= 1
        elif depth == 1 and event.type == _OPERATOR:
            now = start + seconds
            found.append(Operator(kind, event.place, start, now))
        elif depth == 1 and event.type == _DELEGATED:
            found.append(Operator(kind, None, now, now + seconds))
            now += seconds
    if depth or not found:
        text = "LiteRT's profiler lost what ran: %d events don't make a call"
        raise RuntimeError(text % len(events))
    return found
