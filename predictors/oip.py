"""Servers of the Open Inference Protocol v2, such as Triton, OpenVINO Model Server and MLServer.

The stack says how the server is started, or where it runs: ``serve`` or ``endpoint``. ``graph`` is
the file that the server is given as ``{graph}``, or that stands for what it serves.

Versions: 2 is the protocol's; the server tells its own when it runs.

Devices: cpu; where the server computes isn't known here.

Synchronises: an answer has all outputs. A call is one POST over HTTP/1.1, on a connection that is
open already, from before the request is sent until the answer's tensors are arrays.

Options: ``model`` is the model's name on the server, ``version`` one of its versions. ``timeout``
are the seconds to wait for an answer, 60 by default. ``binary`` is whether tensors are sent as
binary data; by default where the server tells the extension. ``inputs`` and ``outputs`` are names,
types and shapes where it doesn't tell them: ``image float32[?,1,8,8]``.

Layer times: none, as a server's work is in other processes.

Threads: those of ``{threads}`` in the server's command, without which they aren't known.
"""

import json
from typing import Any, Dict, List, NamedTuple, Optional
from urllib.parse import quote

import numpy
from mlms_predictors import Arrays, Call, Devices, Load, Loaded, Outputs, Tensor, Versions
from mlms_predictors._run.checks import (
    describe,
    fits,
    in_order,
    name_of_type,
    read_tensors,
    refuse_gpu,
    refuse_unknown,
)
from mlms_predictors._run.servers import (
    Connection,
    ModelReplacedError,
    Server,
    ServerError,
    close_server,
    json_object,
    open_server,
    quoted,
    takes_threads,
    wait_until_ready,
)

OPTIONS = {
    "model": "text",
    "version": "text",
    "timeout": "float",
    "binary": "bool",
    "inputs": "text",
    "outputs": "text",
}
SERVES = {"ready": "/v2/health/ready"}
_TIMEOUT = 60.0  # seconds
_LONGEST_TIMEOUT = 1e6
_LENGTH = "Inference-Header-Content-Length"
_DTYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BYTES": "string",
}
_DATATYPES = {dtype: name for name, dtype in _DTYPES.items()}


class _Model(NamedTuple):
    """A model on a server, by a connection that one thread uses.

    ``asked`` has its ``model_name`` and, if it was said, ``model_version``; ``told`` what answers
    had until now.
    """

    server: Server
    connection: Connection
    path: str
    binary: bool
    asked: Dict[str, str]
    told: Dict[str, str]


def versions() -> Versions:
    """Return the version of the protocol, and that of numpy."""
    return {"oip": "2", "numpy": numpy.__version__}


def devices() -> Devices:
    """Return cpu: the server's devices are its own."""
    return ["cpu"]


def load(request: Load) -> Loaded:
    """Start the server, or find it, and wait until the model is ready.

    Raises ServerError where it isn't, and ValueError for wrong options.
    """
    refuse_gpu(request.device, "the client of a server")
    options = refuse_unknown(request.options, OPTIONS)
    if not options.get("model"):
        raise ValueError("the name of the model isn't said; write 'options: {model: NAME}'")
    path = "/v2/models/" + quote(options["model"])
    asked = {"model_name": options["model"]}
    if options.get("version"):
        path += "/versions/" + quote(options["version"])
        asked["model_version"] = options["version"]
    timeout = options.get("timeout", _TIMEOUT)
    if not 0 < timeout <= _LONGEST_TIMEOUT:
        raise ValueError("timeout is %r; write the seconds to wait for an answer" % timeout)
    server = open_server(request, SERVES["ready"])
    asking = Connection(server, server.timeout)
    try:
        wait_until_ready(server, path + "/ready", final=(404,))
        described = json_object(asking.ask("GET", path).body, path)
        of_server = json_object(asking.ask("GET", "/v2").body, "/v2")
        inputs = _signature(options.get("inputs"), described.get("inputs"), "inputs")
        outputs = _signature(options.get("outputs"), described.get("outputs"), "outputs")
        extensions = of_server.get("extensions") or []
        binary = options.get("binary", "binary_tensor_data" in extensions)
    except BaseException as error:
        asking.close()
        close_server(server)
        if isinstance(error, (TypeError, KeyError, AttributeError)):
            text = "the server's metadata aren't of the protocol: %s: %s"
            raise ServerError(text % (type(error).__name__, error)) from None
        raise
    asking.close()
    facts = {"server": quoted("%s %s" % (of_server.get("name"), of_server.get("version")))}
    if described.get("versions"):
        facts["model_versions"] = quoted(str(described["versions"]))
    told = server.told.setdefault(path, {})
    return Loaded(
        model=_Model(server, Connection(server, timeout), path + "/infer", binary, asked, told),
        device="cpu",
        threads=request.threads if takes_threads(request) else None,
        inputs=inputs,
        outputs=outputs,
        device_facts=facts,
        server=server.pid,
    )


def predict(loaded: Loaded, arrays: Arrays) -> Outputs:
    """Send one batch; return the outputs in the model's order."""
    return bind(loaded, arrays)()


def bind(loaded: Loaded, arrays: Arrays) -> Call:
    """Return ``predict`` on these arrays as a call without arguments, for the timed loop.

    The request's body is made here, and sent by each call.
    """
    model = loaded.model
    parts: List[bytes] = []
    described = []
    for tensor, array in zip(loaded.inputs, in_order(loaded.inputs, arrays)):
        found: Dict[str, Any] = {"name": tensor.name, "shape": list(array.shape)}
        found["datatype"] = _DATATYPES[tensor.dtype]
        if model.binary:
            parts.append(_bytes_of(array, tensor.dtype))
            found["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            found["data"] = _plain(array, tensor)
        described.append(found)
    names = [{"name": tensor.name} for tensor in loaded.outputs]
    content: Dict[str, Any] = {"inputs": described, "outputs": names}
    if model.binary:
        content["parameters"] = {"binary_data_output": True}
    text = json.dumps(content).encode()
    headers = {"Content-Type": "application/json"}
    if model.binary:
        headers = {"Content-Type": "application/octet-stream", _LENGTH: str(len(text))}
    body = b"".join([text] + parts)
    outputs = loaded.outputs

    def call(ask=model.connection.ask, path=model.path, body=body, headers=headers):
        answer = ask("POST", path, body, headers)
        try:
            return _outputs(answer, outputs, model)
        except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as error:
            text = "the answer isn't of the protocol: %s: %s"
            raise ServerError(text % (type(error).__name__, error)) from None

    return call


def close(loaded: Loaded) -> None:
    """Leave the server; one that was started here ends with its last model."""
    loaded.model.connection.close()
    close_server(loaded.model.server)


def _signature(option: Optional[str], described: Any, side: str) -> List[Tensor]:
    """Return the tensors of a side, as an option has them, or else as the server tells them."""
    if option:
        tensors = read_tensors(option)
        for tensor in tensors:
            if tensor.dtype not in _DATATYPES and (tensor.dtype or side == "inputs"):
                text = "options: %s: %r is of type %r; write one of %s"
                known = ", ".join(sorted(_DATATYPES))
                raise ValueError(text % (side, tensor.name, tensor.dtype, known))
        return tensors
    found = []
    for tensor in described or ():
        if not isinstance(tensor, dict) or not {"name", "datatype", "shape"}.issubset(tensor):
            raise ServerError("the server's metadata aren't of the protocol: %r" % tensor)
        dtype = _DTYPES.get(tensor["datatype"])
        if dtype is None:
            text = "%r is %s, which isn't taken here"
            raise ServerError(text % (tensor["name"], tensor["datatype"]))
        if any(type(size) is not int for size in tensor["shape"]):
            raise ServerError("the server's metadata aren't of the protocol: %r" % tensor)
        sizes = tuple(None if size < 0 else size for size in tensor["shape"])
        found.append(Tensor(tensor["name"], dtype, () if sizes == (None,) else sizes))
    if not found:
        text = "the server tells no %s of the model; write them as options: {%s: '%s'}"
        raise ValueError(text % (side, side, "image float32[?,1,8,8]"))
    return found


def _outputs(answer, tensors, model):
    """Return the arrays of an answer in the order of the model's outputs.

    Raises ServerError for one of another model or version, or of another signature.
    """
    length = answer.headers.get(_LENGTH)
    head = len(answer.body) if length is None else int(length)
    content = json_object(answer.body[:head], "infer")
    for key in ("model_name", "model_version"):
        name = content.get(key)
        if name and model.asked.get(key, name) != name:
            text = "the answer is of %s %r, and %r was asked for"
            raise ServerError(text % (key, name, model.asked[key]))
        if name and model.told.setdefault(key, name) != name:
            text = "the answer is of %s %r, and the one before was of %r: measure again"
            raise ModelReplacedError(text % (key, name, model.told[key]))
    described = content.get("outputs") or ()
    sizes = [(output.get("parameters") or {}).get("binary_data_size") for output in described]
    wrong = [size for size in sizes if size is not None and (type(size) is not int or size < 0)]
    size_of_all = len(answer.body) - head
    if wrong or sum(size or 0 for size in sizes) != size_of_all:
        text = "the answer has %d bytes of binary data, and says %s"
        said = " + ".join(str(size or 0) for size in sizes) or "0"
        raise ServerError(text % (size_of_all, said))
    found = {}
    place = head
    for output, size in zip(described, sizes):
        data = output.get("data")
        if size is not None:
            data = answer.body[place : place + size]
            place += size
        if output["name"] in found:
            raise ServerError("the answer has output %r twice" % output["name"])
        found[output["name"]] = _array(output, data)
    missing = [tensor.name for tensor in tensors if tensor.name not in found]
    if missing:
        text = "the answer has no output %r; it has %s"
        raise ServerError(text % (missing[0], ", ".join(sorted(found)) or "none"))
    for tensor in tensors:
        array = found[tensor.name]
        dtype = name_of_type(array.dtype)
        if tensor.dtype not in ("", dtype) or not fits(array.shape, tensor.shape):
            text = (
                "output %r is %s, and the model's is %s; if that is wrong, write options: outputs"
            )
            expected = describe(tensor.dtype, tensor.shape)
            raise ServerError(text % (tensor.name, describe(dtype, array.shape), expected))
    return [found[tensor.name] for tensor in tensors]


def _array(output, data):
    """Return the array of an output; raises ServerError where its data aren't what it says."""
    name, shape = output["name"], output["shape"]
    if any(type(size) is not int or size < 0 for size in shape):
        raise ServerError("output %r has the shape %r" % (name, shape))
    dtype = _DTYPES.get(output["datatype"])
    if dtype is None or data is None:
        raise ServerError("output %r is %s without data" % (name, output["datatype"]))
    if isinstance(data, bytes) and dtype == "string":
        return numpy.array(_texts(data), object).reshape(shape)
    if isinstance(data, bytes):
        little = numpy.dtype(dtype).newbyteorder("<")
        return numpy.frombuffer(data, little).astype(dtype, copy=False).reshape(shape)
    if dtype == "string":
        return numpy.array(data, object).reshape(shape)
    given = numpy.asarray(data)
    kind = numpy.dtype(dtype).kind
    if kind == "u" and given.dtype.kind == "f":  # as of numbers of 64 bits beside small ones
        given = numpy.asarray(data, object)
    kinds = {"b": "b", "u": "iuO", "i": "iu", "f": "iufO"}[kind]
    is_right = given.dtype.kind in kinds or not given.size
    if given.dtype.kind == "O":  # null is NaN, or an infinity
        taken = (int,) if kind == "u" else (int, float, type(None))
        is_right = is_right and all(type(each) in taken for each in given.flat)
    with numpy.errstate(over="ignore"):
        made = given.astype(dtype)
    if is_right and made.dtype.kind == "f":
        is_right = not (numpy.isinf(made) & numpy.isfinite(given.astype(float))).any()
    elif is_right:
        is_right = bool((made == given).all())
    if not is_right:
        raise ServerError("output %r is %s, and its data aren't" % (name, output["datatype"]))
    return made.reshape(shape)


def _texts(data):
    """Return the texts of binary data, each behind its length."""
    found = []
    place = 0
    while place < len(data):
        end = place + 4 + int.from_bytes(data[place : place + 4], "little")
        if end > len(data):
            raise ServerError("the answer ends within a text")
        found.append(data[place + 4 : end])
        place = end
    return found


def _bytes_of(array, dtype):
    """Return an array as binary data, which is little-endian."""
    if dtype != "string":
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    texts = [text if isinstance(text, bytes) else str(text).encode() for text in array.ravel()]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def _plain(array, tensor):
    """Return an array for JSON, which has no NaN and no infinity."""
    if array.dtype.kind == "f" and not numpy.isfinite(array).all():
        text = "input %r has a number that JSON doesn't have; write options: {binary: true}"
        raise ValueError(text % tensor.name)
    if tensor.dtype == "string":
        return [t.decode() if isinstance(t, bytes) else str(t) for t in array.ravel()]
    return array.ravel().tolist()
