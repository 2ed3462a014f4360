"""The frames that the pytest side and an agent exchange, and the records that a predictor sees.

A frame is one line of JSON, the header, and then the raw bytes of the arrays that the header's
``arrays`` lists as ``{"name", "dtype", "shape"}``. Requests and replies have the same form and
alternate strictly. A request has a ``type`` and a ``number``; its reply has both, or the type
``error``. Both sides share this file. It needs numpy only where a frame carries arrays, so
an interpreter without numpy can say so.
"""

import json
import math
import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

VERSION = 4
"""The version of the protocol, which the reply to ``hello`` has as ``protocol``.

Raise it by one with every change after which one side would misread the other: of the frame, of
what a request or a reply must have, or of what a field means. A new request, and a new field that
the receiver may ignore, need no new version.
"""

TIME = "time:"
"""The beginning of the names of times in a reply that has outputs, too."""
KEPT_STATE = "keeps a state"
"""The name in ``device_facts`` of what a model changes of itself in a call."""
OF_TEXTS = 1 << 52
"""The least number that stands for the text of a token whose id isn't told; ids are below."""
MAX_HEADER = 1 << 24  # bytes; a longer "line" is not a header but the output of something else

_DTYPE = re.compile(r"[<>|][biufc]\d{1,2}$|[<>]U[1-9]\d{0,6}$")  # numbers and texts
_LAST_CHARACTER = 0x10FFFF
_SHOWN = 200  # characters of what is no frame
_WHOLE_END = 1 << 63  # whole numbers go into arrays

NamedArrays = List[Tuple[str, Any]]
"""(name, ndarray) pairs, in an order that the request defines."""


class ProtocolError(Exception):
    """The bytes that came over the channel are not a frame."""


class Tensor(NamedTuple):
    """One input or output of a model.

    ``dtype`` is numpy's name, or string for texts; a free axis of ``shape`` is None.
    """

    name: str
    dtype: str
    shape: Tuple[Optional[int], ...]


class Generation(NamedTuple):
    """How a decoder generates: its inputs and outputs by their roles, and the ids that end it.

    ``prompt`` is the input of tokens and ``logits`` the output with a row for each. ``limit`` is
    what the input with the largest number of tokens is called. ``states`` has the output that each
    further input is taken from. ``mask`` and ``positions`` are inputs that are made, "" for none.
    ``scores`` is whether log-probabilities are told. ``prompt_type`` is that of the elements of the
    prompt: string for a text, which only servers take.
    """

    prompt: str
    logits: str
    limit: str
    states: Dict[str, str]
    mask: str = ""
    positions: str = ""
    end: Sequence[int] = ()
    scores: bool = False
    prompt_type: str = "int64"


class Load(NamedTuple):
    """A request to load a model.

    ``files`` are local paths by role (``graph``, ``weights``), ``device`` is such as ``cuda:0``,
    and ``threads`` the CPU threads to use, None for the framework's default. ``options`` are the
    manifest's for this framework, such as ``{"mode": "compile"}``; a predictor refuses those that
    it does not know. ``allow_code`` says whether the user lets the model's files run code; no
    manifest can say so. ``server`` is the stack's, for the predictors of servers: the ``command``
    that starts it, the path ``ready``, "" for the predictor's, and the seconds ``timeout`` of its
    start; or the ``endpoint`` of one that runs. ``generation`` is there for a decoder whose calls
    are generations.
    """

    files: Dict[str, str]
    device: str
    threads: Optional[int]
    options: Dict[str, Any]
    allow_code: bool = False
    server: Optional[Dict[str, Any]] = None
    generation: Optional[Generation] = None


class Loaded(NamedTuple):
    """A loaded model, with the device and the number of threads that it really uses.

    ``threads`` is None where the framework has its default. ``default_output`` is the output that
    the framework gives a caller who names none, "" where it has no such one. ``device_facts`` are
    for the record: what the predictor set for the device, and where the framework runs which part.
    ``server`` is the process that computes instead of this one, 0 for one that isn't ours.
    """

    model: Any
    device: str
    threads: Optional[int]
    inputs: List[Tensor]
    outputs: List[Tensor]
    default_output: str = ""
    device_facts: Optional[Dict[str, str]] = None
    server: Optional[int] = None


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

    The layers are in the order in which they ran. ``of_launches``: their times are those in which
    the host started them, and a GPU ran them some time later.
    """

    start: float
    end: float
    layers: List[Layer]
    of_launches: bool = False


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
    statistics of a normalization and states of zeros. ``learned`` are those that are, although
    their type is also that of sizes, such as the int32 biases of quantized layers.
    """

    layers: List[Operation]
    tensors: List[Tensor]
    inputs: List[str]
    outputs: List[str]
    counter: str
    buffers: Sequence[str] = ()
    learned: Sequence[str] = ()


class OutgoingReply(NamedTuple):
    """The fields of a reply, for JSON, and its arrays."""

    fields: Dict[str, Any]
    arrays: NamedArrays


def encode(header: Dict[str, Any], arrays: Iterable[Tuple[str, Any]] = ()) -> List[Any]:
    """Return the buffers of a frame.

    ``header`` is a dict with ``type``, ``arrays`` are (name, ndarray) pairs of numbers or texts.
    Raises ProtocolError for other arrays, and for a field that is NaN or infinite.
    """
    specs = []
    buffers = []
    for name, array in arrays:
        if array.dtype.kind not in "biufcU":
            found = "array %r has dtype %s" % (name, array.dtype)
            raise ProtocolError("%s; frames carry numbers and texts only" % found)
        specs.append({"name": name, "dtype": array.dtype.str, "shape": list(array.shape)})
        buffers.append(_bytes_of(array))
    try:
        text = json.dumps(dict(header, arrays=specs), separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise ProtocolError("a field can't be sent: %s" % error) from None
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
        array = _new_array(spec)
        _fill(array, stream)
        _check_texts(array)
        arrays.append((spec["name"], array))
    return header, arrays


def _parse_header(line):
    try:
        header = _READER.decode(line.decode())
        if isinstance(header["type"], str) and isinstance(header["arrays"], list):
            return header
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise ProtocolError("expected a frame, found %r" % line[:_SHOWN])


def _refuse(text):
    raise ProtocolError("a field is %s, which is no number here" % text[:_SHOWN])


def _finite(text):
    value = float(text)
    if math.isinf(value):
        _refuse(text)
    return value


def _of_64_bits(text):
    value = int(text)
    if not -_WHOLE_END <= value < _WHOLE_END:
        _refuse(text)
    return value


_READER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, parse_int=_of_64_bits)


def _new_array(spec):
    """Return an array with room for what a header lists."""
    import numpy

    try:
        sizes = spec["shape"]
        is_shape = all(type(size) is int and size >= 0 for size in sizes)
        if is_shape and _DTYPE.match(spec["dtype"]) and isinstance(spec["name"], str):
            return numpy.empty(sizes, spec["dtype"])
    except (KeyError, TypeError, ValueError, OverflowError, MemoryError):
        pass
    raise ProtocolError("expected an array, found %s" % repr(spec)[:_SHOWN])


def _fill(array, stream):
    view = memoryview(_bytes_of(array))
    done = 0
    while done < len(view):
        count = stream.readinto(view[done:])
        if not count:
            raise EOFError
        done += count


def _check_texts(array):
    """Raise ProtocolError for texts of what are no characters, which numpy fails to read."""
    if array.dtype.kind == "U" and array.size:
        codes = array.ravel().view(array.dtype.str[0] + "u4")
        if codes.max() > _LAST_CHARACTER:
            raise ProtocolError("expected a text, found the character %d" % codes.max())


def holds_texts(value: Any) -> bool:
    """Return whether a value is a text, or an array of texts or of any Python objects."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return isinstance(value, (str, bytes)) or kind in ("O", "S", "U")


def text_array(value: Any) -> Any:
    """Return a text, or an array of texts as frameworks have them, as an array that frames carry.

    Bytes are UTF-8; others stay apart as lone surrogates. Raises TypeError for other objects, and
    ValueError for a text that ends in NUL, which numpy would leave out.
    """
    import numpy

    array = numpy.asarray(value, object)
    texts = []
    for each in array.ravel():
        text = each.decode("utf-8", "surrogateescape") if isinstance(each, bytes) else each
        if not isinstance(text, str):
            raise TypeError("an output has a %s, not a number or a text" % type(each).__name__)
        if text.endswith("\0"):
            raise ValueError("an output has a text that ends in NUL, which can't be compared")
        texts.append(text)
    return numpy.array(texts, "U").reshape(array.shape)


def _bytes_of(array):
    return array.ravel().view("u1").data  # ravel copies only what is not contiguous
