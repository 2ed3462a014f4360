"""The process of a model that is kept open: it opens the model, and answers until its input ends.

What strangers send is decoded here, so that a process that takes too long or too much is ended, and
no other. Requests are frames of ``mlms_predictors._run.protocol`` on the standard input. Replies
are such frames behind their length of 8 bytes, on a private copy of the standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import struct
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from mlms_predictors._run import protocol
from numpy.typing import NDArray

from pytest_mlms.core.errors import (
    ArtifactError,
    DatasetError,
    DeviceInUse,
    ManifestError,
    MlmsError,
    StackError,
    Unavailable,
)
from pytest_mlms.core.text import encodable, shortened
from pytest_mlms.predict.elements import element_of
from pytest_mlms.predict.model import MisfitError, Model, model_spec
from pytest_mlms.predict.plain import plain_prediction
from pytest_mlms.predict.tensors import metadata_of, read_request, write_answer
from pytest_mlms.predict.warm import given_of

Array = NDArray[Any]
Fields = dict[str, Any]
Arrays = dict[str, Array]
Frame = tuple[Fields, Arrays]

_ENDING_SECONDS = 10.0  # of a call that goes on when the portal has ended
_LONGEST_ERROR = 4000  # characters
_KINDS: Sequence[tuple[str, tuple[type[Exception], ...]]] = (
    ("input", (DatasetError, MisfitError)),
    ("busy", (DeviceInUse,)),
    ("unavailable", (ArtifactError, ManifestError, StackError, Unavailable)),
)
"""The kinds of errors for the portal: those of no such class are failures."""


def main() -> None:
    """Serve the model that the argument says, as JSON."""
    options = json.loads(sys.argv[1])
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # frameworks print

    def send(fields: Fields, arrays: Iterable[tuple[str, Array]] = ()) -> None:
        buffers = protocol.encode(fields, arrays)
        replies.write(struct.pack("<Q", sum(len(memoryview(one).cast("B")) for one in buffers)))
        replies.writelines(buffers)
        replies.flush()

    frames: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(frames,), daemon=True).start()
    with contextlib.suppress(BrokenPipeError):
        _serve(options, frames, send)


def _read(frames: queue.SimpleQueue[Frame | None]) -> None:
    """Put requests into the queue, and None at their end, after which the process must end."""
    with contextlib.suppress(EOFError, protocol.ProtocolError):
        while True:
            header, arrays = protocol.read_frame(sys.stdin.buffer)
            frames.put((header, dict(arrays)))
    frames.put(None)
    time.sleep(_ENDING_SECONDS)
    os._exit(1)


def _serve(
    options: Mapping[str, Any], frames: queue.SimpleQueue[Frame | None], send: Callable[..., None]
) -> None:
    """Open the model in two steps, of which the second one needs the device; answer requests."""
    with contextlib.ExitStack() as ends:
        try:
            spec, files = model_spec(
                options["manifest"], stack=options["stack"] or None, may_create=options["create"]
            )
            send({"type": "found", "device": spec.case.device})
            if frames.get() is None:
                return
            model = ends.enter_context(Model(spec, files, options["patience"]))
            send({"type": "opened"})
        except Exception as error:
            send(_told(error))
            return
        while (frame := frames.get()) is not None:
            try:
                fields, arrays = _ANSWERS[frame[0]["type"]](model, *frame)
            except Exception as error:
                fields, arrays = _told(error), {}
            send(fields, arrays.items())


def _told(error: Exception) -> Fields:
    """Return an error for the portal; print a failure, which is the operator's to look at."""
    if not isinstance(error, (MlmsError, MemoryError)):
        traceback.print_exception(error)
        text = "the model's process failed; what the portal prints says how"
        return {"type": "error", "kind": "failed", "text": text}
    kind = next((kind for kind, classes in _KINDS if isinstance(error, classes)), "failed")
    text = str(error) or "there is not enough memory"
    if kind == "failed":
        print(text, file=sys.stderr)
    text = text.replace(f"{tempfile.gettempdir()}/", "")
    text = encodable(shortened(text, _LONGEST_ERROR))  # it may have a name of a stranger's
    return {"type": "error", "kind": kind, "text": text}


def _predict(model: Model, fields: Fields, arrays: Arrays) -> Frame:
    given = given_of(fields["given"], arrays)
    prediction = model.predict(given)
    latency = model.latency(given) if fields["latency"] else None
    line = plain_prediction(fields["name"], model, prediction, latency)
    return {"type": "predicted", "line": line}, {}


def _show(model: Model, fields: Fields, arrays: Arrays) -> Frame:
    number = fields["element"]
    given = given_of(fields["given"], arrays)
    if number is not None:
        given = element_of(model.case.loaded, number)
    prediction = model.predict(given)
    line = plain_prediction(fields["name"], model, prediction, model.latency(given))
    return {"type": "shown", "line": line}, model.shown(given, prediction)


def _describe(model: Model, fields: Fields, arrays: Arrays) -> Frame:
    inputs, outputs = model.tensors
    platform = f"{model.case.stack.framework}_{model.versions.get(model.case.stack.framework)}"
    tensors = {"platform": platform, "inputs": metadata_of(inputs), "outputs": metadata_of(outputs)}
    return {"type": "described", "tensors": tensors}, {}


def _infer(model: Model, fields: Fields, arrays: Arrays) -> Frame:
    request = read_request(arrays["body"].tobytes(), fields["json_bytes"])
    outputs = model.infer(request.inputs)
    body, json_bytes = write_answer(request, outputs, _names(model, fields))
    return {"type": "inferred", "json_bytes": json_bytes}, {"body": np.frombuffer(body, np.uint8)}


def _infer_message(model: Model, fields: Fields, arrays: Arrays) -> Frame:
    from pytest_mlms.predict.messages import read_message, write_message  # protobuf is an extra

    request = read_message(arrays["body"].tobytes())
    body = write_message(request, model.infer(request.inputs), _names(model, fields))
    return {"type": "inferred"}, {"body": np.frombuffer(body, np.uint8)}


def _names(model: Model, fields: Fields) -> dict[str, str]:
    """Return the model's name and version as an answer has them: that which was asked for."""
    version = fields["model_version"] or model.case.stack.name
    return {"model_name": fields["model_name"], "model_version": version}


_ANSWERS: Mapping[str, Callable[[Model, Fields, Arrays], Frame]] = {
    "describe": _describe,
    "infer": _infer,
    "infer_message": _infer_message,
    "predict": _predict,
    "show": _show,
}


if __name__ == "__main__":
    main()
