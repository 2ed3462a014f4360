"""The frames that the pytest side and an agent exchange, and the records that a predictor sees.

A frame is one line of JSON, the header, and then the raw bytes of the arrays that the header's
``arrays`` lists as ``{"name", "dtype", "shape"}``. Requests and replies have the same form and
alternate strictly. This file is shared by both sides; it needs numpy only where a frame carries
arrays, so an interpreter without it can say so.
"""

import json
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

VERSION = 1
MAX_HEADER = 1 << 24  # bytes; a longer "line" is not a header but something else's output


class ProtocolError(Exception):
    """What came over the channel is not a frame."""


class Tensor(NamedTuple):
    """One input or output of a model.

    ``dtype`` is numpy's name, a free axis of ``shape`` is None.
    """

    name: str
    dtype: str
    shape: Tuple[Optional[int], ...]


class Load(NamedTuple):
    """What to load: local paths by role (``graph``, ``weights``), a device such as ``cuda:0``, CPU
    threads or None.

    ``options`` are the manifest's for this framework, such as ``{"mode": "compile"}``; a predictor
    refuses what it doesn't know. ``allow_code``: whether the user lets the model's files run code;
    no manifest can say so.
    """

    files: Dict[str, str]
    device: str
    threads: Optional[int]
    options: Dict[str, Any]
    allow_code: bool = False


class Loaded(NamedTuple):
    """What was loaded, and on which device and with how many threads it really runs (None.

    The framework's default).
    """

    model: Any
    device: str
    threads: Optional[int]
    inputs: List[Tensor]
    outputs: List[Tensor]


class Layer(NamedTuple):
    """One layer of one call: its name in the model, the framework's word for its type, and when it
    ran.

    ``start`` and ``end`` are seconds on the clock of time.perf_counter; ``bytes`` is what it
    allocated or its outputs hold, None where that is unknown; ``shape`` is its first output's.
    """

    name: str
    type: str
    start: float
    end: float
    bytes: Optional[int]
    shape: Optional[Tuple[int, ...]]


class Profile(NamedTuple):
    """One call as the framework's own profiler saw it.

    Begin and end in seconds, and its layers as they ran.
    """

    start: float
    end: float
    layers: List[Layer]


class Operation(NamedTuple):
    """One layer of a Structure: the names of the tensors that it reads and writes, and its
    operations in numbers.

    A multiplication with its addition is two of ``flops``; None where the layer computes and that
    can't be counted.
    """

    name: str
    type: str
    flops: Optional[int]
    reads: List[str]
    writes: List[str]


class Structure(NamedTuple):
    """A model as a graph at one batch size: layers in the order in which they run, and its tensors.

    What a layer reads that is no input and that none writes is a weight. Tensors whose shape can't
    be told are left out, and those that only one layer uses may be. ``counter`` says who counted.
    """

    layers: List[Operation]
    tensors: List[Tensor]
    inputs: List[str]
    outputs: List[str]
    counter: str


def encode(header: Dict[str, Any], arrays: Iterable[Tuple[str, Any]] = ()) -> List[Any]:
    """Return the buffers of a frame.

    ``header`` is a dict with ``type``, ``arrays`` are (name, ndarray) pairs.
    """
    specs, buffers = [], []
    for name, array in arrays:
        if array.dtype.kind not in "biufc":
            raise ProtocolError(
                "array %r has dtype %s; frames carry numbers only" % (name, array.dtype)
            )
        specs.append({"name": name, "dtype": array.dtype.str, "shape": list(array.shape)})
        buffers.append(_bytes_of(array))
    line = json.dumps(dict(header, arrays=specs), separators=(",", ":")).encode() + b"\n"
    return [line] + buffers


def read_frame(stream: Any) -> Tuple[Dict[str, Any], List[Tuple[str, Any]]]:
    """Read one frame from ``stream`` (``readline`` and ``readinto``); return its header and its
    (name, ndarray) pairs.

    Raises EOFError where the stream ends, between frames or inside one, and ProtocolError where it
    is not a frame.
    """
    line = stream.readline(MAX_HEADER)
    if not line:
        raise EOFError
    header = _header(line)
    return header, [(spec["name"], _read_array(stream, spec)) for spec in header.pop("arrays")]


def _header(line):
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
    view, done = memoryview(_bytes_of(array)), 0
    while done < len(view):
        count = stream.readinto(view[done:])
        if not count:
            raise EOFError
        done += count
    return array


def _bytes_of(array):
    return array.reshape(-1).view("u1").data  # reshape copies only what is not contiguous
