"""``POST /api/v1/predict``: the prediction of one of the portal's models for an input."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from fastapi import APIRouter, HTTPException, Request
from numpy.typing import NDArray
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from pytest_mlms.predict.inputs import Given, Value
from pytest_mlms.show.portal.guard import PREDICT
from pytest_mlms.show.portal.multipart import given_of, parse_multipart
from pytest_mlms.show.portal.predictions import Predictions, while_connected

_MOST_JSON = 4 << 20  # bytes; a list of 2 bytes takes 56 in memory
_PARSING = threading.Lock()
_FIELDS = ("manifest", "stack", "input", "latency")
_EXAMPLE = '{"manifest": "digits.yaml", "input": {"base64": "iVBORw0…"}}'


class _Asked(NamedTuple):
    """A request for a prediction."""

    manifest: str
    stack: str
    given: Given
    name: str
    latency: bool


def make_predict_api(predictions: Predictions) -> APIRouter:
    """Return the route."""
    router = APIRouter()

    @router.post(PREDICT, summary="The prediction of a model for an input")
    async def predict(request: Request) -> Response:
        async with predictions.reading(request) as body:
            kind = request.headers.get("content-type", "")
            asked = await run_in_threadpool(read_asked, body, kind)
            work = predictions.predict(
                asked.manifest,
                asked.stack,
                asked.given,
                name=asked.name,
                latency=asked.latency,
            )
            line = await while_connected(request, work)
        return JSONResponse(line)

    return router


def read_asked(body: bytes, content_type: str) -> _Asked:
    """Return what a body asks for: JSON, or a form with files. Raises HTTPException."""
    if content_type.startswith("multipart/"):
        parts = parse_multipart(body, content_type)
        given, name = given_of(parts)
        texts = {part.name: part.text for part in parts if part.name.partition(".")[0] != "input"}
        latency = {"true": True, "false": False}.get(texts.get("latency", "false"))
        return _asked({**texts, "latency": latency}, given, name)
    if len(body) > _MOST_JSON:
        advice = "send what is larger as a file of multipart/form-data"
        raise HTTPException(413, f"JSON may have {_MOST_JSON >> 20} MiB; {advice}")
    with _PARSING:
        return _read_json(body)


def _read_json(body: bytes) -> _Asked:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or "input" not in fields:
        raise HTTPException(400, f"send a JSON object, such as {_EXAMPLE}")
    given = _given(fields["input"])
    return _asked(fields, given, given if isinstance(given, str) else "")


def _asked(fields: Mapping[str, Any], given: Given, name: str) -> _Asked:
    for field in fields:
        if field not in _FIELDS:
            known = ", ".join(_FIELDS)
            raise HTTPException(400, f"{field[:50]!r} is no field; there are {known}")
    manifest, stack = fields.get("manifest"), fields.get("stack", "")
    if not isinstance(manifest, str) or not isinstance(stack, str):
        raise HTTPException(400, "'manifest' and 'stack' are texts: of a manifest its path, a name")
    latency = fields.get("latency", False)
    if not isinstance(latency, bool):
        raise HTTPException(400, "'latency' is true or false")
    return _Asked(manifest, stack, given, name, latency)


def _given(value: Any) -> Given:
    """Return an input of JSON: of an object, a value by each name."""
    if isinstance(value, dict) and set(value) != {"base64"}:
        if "" in value:  # the name that an input without any has
            raise HTTPException(400, "an input has no name; send one, or the input alone")
        return {name: _value(one) for name, one in value.items()}
    return _value(value)


def _value(value: Any) -> Value:
    """Return a text, a number, an array, or the bytes of a file in base64."""
    if isinstance(value, dict) and set(value) == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (ValueError, TypeError):
            raise HTTPException(400, "an input's base64 is none (RFC 4648)") from None
    if isinstance(value, list):
        return _array(value)
    if isinstance(value, (str, int, float)):
        return value
    raise HTTPException(400, "an input is a text, numbers, lists of them, or {'base64': …}")


def _array(values: list[Any]) -> NDArray[Any]:
    """Return lists of numbers as an array, which is small in memory while its request waits."""
    try:
        if '"' not in json.dumps(values):  # an array of texts could be of any size
            array = np.asarray(values)
            if array.dtype.kind in "biuf":
                return array
    except (ValueError, RecursionError):
        pass
    raise HTTPException(400, "an input's lists are no array of numbers of 64 bits")
