"""The Open Inference Protocol v2 over HTTP: the models' own tensors in and out.

A model's name is the path of its manifest, and its versions are the stacks that run it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from fastapi import APIRouter, HTTPException, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

import pytest_mlms
from pytest_mlms.predict.warm import Reply
from pytest_mlms.show.portal.guard import INFERENCE
from pytest_mlms.show.portal.predictions import Predictions, while_connected

SERVER: dict[str, Any] = {
    "name": "pytest-mlms",
    "version": pytest_mlms.__version__,
    "extensions": ["binary_tensor_data"],
}
"""The metadata of the server."""


_LENGTH = "Inference-Header-Content-Length"
_ACTIONS = ("ready", "infer")


class _Address(NamedTuple):
    """The model and its version that an address names, and what is asked of it."""

    name: str
    version: str
    action: str


def make_inference_api(predictions: Predictions) -> APIRouter:
    """Return the routes."""
    router = APIRouter()
    router.include_router(_of_server())

    @router.get(
        f"{INFERENCE}/models/{{path:path}}", summary="A model's tensors, or whether it is ready"
    )
    async def model(request: Request, path: str) -> dict[str, Any]:
        asked = _address(path)
        if asked.action == "infer":
            raise HTTPException(405, "send POST", {"Allow": "POST"})
        found = await while_connected(request, described(predictions, asked.name, asked.version))
        return found if not asked.action else {"name": asked.name, "ready": True}

    @router.post(f"{INFERENCE}/models/{{path:path}}", summary="Run a model on tensors")
    async def infer(request: Request, path: str) -> Response:
        asked = _address(path)
        if asked.action != "infer":
            raise HTTPException(404, "send POST to …/infer")
        if request.headers.get("content-encoding", "identity") != "identity":
            raise HTTPException(415, "send the request without compression")
        fields = {
            "type": "infer",
            "model_name": asked.name,
            "model_version": asked.version,
            "json_bytes": _json_bytes(request),
        }
        async with predictions.reading(request) as body:
            arrays = {"body": np.frombuffer(body, np.uint8)}
            work = predictions.ask(asked.name, asked.version, fields, arrays)
            reply = await while_connected(request, work)
        return _answer(reply)

    return router


def _of_server() -> APIRouter:
    """Return the routes of the server itself."""
    router = APIRouter(prefix=INFERENCE)

    @router.get("", summary="The server, as the Open Inference Protocol tells it")
    def server() -> dict[str, Any]:
        return SERVER

    @router.get("/health/live", summary="Whether the server answers")
    def live() -> dict[str, bool]:
        return {"live": True}

    @router.get("/health/ready", summary="Whether models can be asked")
    def ready() -> dict[str, bool]:
        return {"ready": True}

    return router


def _answer(reply: Reply) -> Response:
    content = reply.arrays["body"].tobytes()
    json_bytes = reply.fields["json_bytes"]
    if json_bytes is None:
        return Response(content, media_type="application/json")
    headers = {_LENGTH: str(json_bytes)}
    return Response(content, headers=headers, media_type="application/octet-stream")


async def described(predictions: Predictions, name: str, version: str) -> dict[str, Any]:
    """Return a model's metadata, for which it is opened; raises HTTPException."""
    reply = await predictions.ask(name, version, {"type": "describe"})
    entry = await run_in_threadpool(predictions.entry, name)
    versions = await run_in_threadpool(predictions.stacks, entry)
    return {"name": name, "versions": versions, **reply.fields["tensors"]}


def _address(path: str) -> _Address:
    before, slash, action = path.rpartition("/")
    model, action = (before, action) if slash and action in _ACTIONS else (path, "")
    name, said, version = model.partition("/versions/")
    if not name or (said and not version):
        raise HTTPException(404, "there is no such model")
    return _Address(name, version, action)


def _json_bytes(request: Request) -> int | None:
    """Return the length of the JSON in a request with binary data."""
    length = request.headers.get(_LENGTH)
    if length is None:
        return None
    if not length.isdecimal() or len(length) > 12:
        raise HTTPException(400, f"{_LENGTH} is no number of bytes")
    return int(length)
