"""The frames that the pytest side and an agent exchange, and the records that a predictor sees.

A frame is one line of JSON, the header, and then the raw bytes of the arrays that the header's
``arrays`` lists as ``{"name", "dtype", "shape"}``. Requests and replies have the same form and
alternate strictly. Both sides share this file. It needs numpy only where a frame carries arrays, so
an interpreter without numpy can say so.
"""

import json
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

VERSION = 2
"""The version of the protocol, which the reply to ``hello`` has as ``protocol``.

Raise it by one with every change after which one side would misread the other: of the frame, of
what a request or a reply must have, or of what a field means. A new request, and a new field that
the receiver may ignore, need no new version.
"""
MAX_HEADER = 1 << 24  # bytes; a longer "line" is not a header but the output of something else

NamedArrays = List[Tuple[str, Any]]
"""(name, ndarray) pairs, in an order that the request defines."""


class ProtocolError(Exception):
    """The bytes that came over the channel are not a frame."""


class Tensor(NamedTuple):
    """One input or output of a model.

    ``dtype`` is numpy's name; a free axis of ``shape`` is None.
    """

    name: str
    dtype: str
    shape: Tuple[Optional[int], ...]


class Load(NamedTuple):
    """A request to load a model.

    ``files`` are local paths by role (``graph``, ``weights``), ``device`` is such as ``cuda:0``,
    and ``threads`` the CPU threads to use, None for the framework's default. ``options`` are the
    manifest's for this framework, such as ``{"mode": "compile"}``; a predictor refuses those that
    it does not know. ``allow_code`` says whether the user lets the model's files run code; no
    manifest can say so.
    """

    files: Dict[str, str]
    device: str
    threads: Optional[int]
    options: Dict[str, Any]
    allow_code: bool = False


class Loaded(NamedTuple):
    """A loaded model, with the device and the number of threads that it really uses.

    ``threads`` is None where the framework has its default.
    """

    model: Any
    device: str
    threads: Optional[int]
    inputs: List[Tensor]
    outputs: List[Tensor]


class Layer(NamedTuple):
    """One layer of one call: its name in the model, the framework's name of its type, its times.

    ``start`` and ``end`` are seconds on the clock of time.perf_counter. ``bytes`` is the size of
    what it allocated or of its outputs, None where that is unknown. ``shape`` is that of its first
    output.
    """

    name: str
    type: str
    start: float
    end: float
    bytes: Optional[int]
    shape: Optional[Tuple[int, ...]]


class Profile(NamedTuple):
    """One call as the framework's own profiler saw it: begin and end in seconds, and its layers.

    The layers are in the order in which they ran.
    """

    start: float
    end: float
    layers: List[Layer]


class Operation(NamedTuple):
    """One layer of a Structure: the names of the tensors that it reads and writes, and its cost.

    A multiplication with its addition is two ``flops``; None where the layer computes and its
    operations cannot be counted.
    """

    name: str
    type: str
    flops: Optional[int]
    reads: List[str]
    writes: List[str]


class Structure(NamedTuple):
    """A model as a graph at one batch size: its layers in the order in which they run, its tensors.

    A tensor that a layer reads, that is no input and that no layer writes, is a weight. Tensors
    whose shape is unknown are left out, and those that only one layer uses may be. ``counter``
    names what counted the operations. ``buffers`` are the weights that are not learned, such as the
    statistics of a normalization and states of zeros.
    """

    layers: List[Operation]
    tensors: List[Tensor]
    inputs: List[str]
    outputs: List[str]
    counter: str
    buffers: Sequence[str] = ()


class OutgoingReply(NamedTuple):
    """The fields of a reply, for JSON, and its arrays."""

    fields: Dict[str, Any]
    arrays: NamedArrays


def encode(header: Dict[str, Any], arrays: Iterable[Tuple[str, Any]] = ()) -> List[Any]:
    """Return the buffers of a frame.

    ``header`` is a dict with ``type``, ``arrays`` are (name, ndarray) pairs. Raises ProtocolError
    for an array that does not hold numbers.
    """
    specs = []
    buffers = []
    for name, array in arrays:
        if array.dtype.kind not in "biufc":
            raise ProtocolError(
                "array %r has dtype %s; frames carry numbers only" % (name, array.dtype)
            )
        specs.append({"name": name, "dtype": array.dtype.str, "shape": list(array.shape)})
        flat = array.reshape(-1)  # a view of what is strided evenly, such as a column
        buffers.append(_bytes_of(flat if flat.flags.c_contiguous else flat.copy()))
    text = json.dumps(dict(header, arrays=specs), separators=(",", ":"))
    return [text.encode() + b"\n"] + buffers


def read_frame(stream: Any) -> Tuple[Dict[str, Any], NamedArrays]:
    """Read one frame from ``stream``, which has ``readline`` and ``readinto``.

    Return its header and its (name, ndarray) pairs. Raises EOFError where the stream ends, between
    frames or inside one, and ProtocolError where the bytes are no frame.
    """
    line = stream.readline(MAX_HEADER)
    if not line:
        raise EOFError
    header = _parse_header(line)
    arrays = []
    for spec in header.pop("arrays"):
        arrays.append((spec["name"], _read_array(stream, spec)))
    return header, arrays


def _parse_header(line):
    try:
        header = json.loads(line.decode())
        if isinstance(header["type"], str) and isinstance(header["arrays"], list):
            return header
    except (ValueError, KeyError, TypeError):
        pass
    raise ProtocolError("expected a frame, found %r" % line[:200])


def _read_array(stream, spec):
    import numpy

    array = numpy.empty(spec["shape"], spec["dtype"])
    view = memoryview(_bytes_of(array))
    done = 0
    while done < len(view):
        count = stream.readinto(view[done:])
        if not count:
            raise EOFError
        done += count
    return array


def _bytes_of(array):
    return array.reshape(-1).view("u1").data  # reshape copies only what is not contiguous
