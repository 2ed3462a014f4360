"""The Open Inference Protocol v2 over gRPC, by the models and tokens of the portal."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
from starlette.exceptions import HTTPException

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.predict.messages import MESSAGES, SERVICE, parse
from pytest_mlms.show.portal.inference import SERVER, described
from pytest_mlms.show.portal.predictions import Predictions
from pytest_mlms.show.portal.settings import PortalSettings

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.CANCELLED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""The code of each status that the same error has over HTTP; INTERNAL for others."""

_MOST_DETAIL = 2000  # bytes
_ENDING_SECONDS = 5  # for calls that have begun, as HTTP's have
_Answering = Callable[[bytes], Awaitable[bytes]]


@contextlib.asynccontextmanager
async def serving_grpc(predictions: Predictions, settings: PortalSettings) -> AsyncIterator[None]:
    """Serve models until the context ends; print the address."""
    assert settings.grpc is not None
    limits = settings.limits
    server = grpc.aio.server(
        maximum_concurrent_rpcs=limits.connections,
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", limits.predict_bytes),
            ("grpc.max_send_message_length", -1),
        ],
    )
    service = _Service(predictions)
    methods: Mapping[str, _Answering] = {
        "ServerLive": service.live,
        "ServerReady": service.ready,
        "ServerMetadata": service.server,
        "ModelReady": service.model_ready,
        "ModelMetadata": service.model,
        "ModelInfer": service.infer,
    }
    handlers = {name: _handler(one, predictions, settings) for name, one in methods.items()}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
    port = server.add_insecure_port(str(settings.grpc))
    await server.start()
    print(f"mlms portal: gRPC on {replace(settings.grpc, port=port)}", flush=True)
    try:
        yield
    finally:
        await server.stop(_ENDING_SECONDS)


def _handler(answering: _Answering, predictions: Predictions, settings: PortalSettings) -> Any:
    """Return the handler of a method, which takes a message as the first of a stream.

    So does nobody wait for ever for a message that doesn't come, as grpc does elsewhere.
    """

    async def handle(requests: AsyncIterator[bytes], context: Any) -> bytes:
        try:
            _check_token(context, settings)
            with predictions.holding() as hold:
                reading = _only(requests, hold)
                body = await asyncio.wait_for(reading, settings.limits.stall_seconds)
                return await answering(body)
        except asyncio.TimeoutError:
            await context.abort(_CODES[408], "the request is too slow; send it again")
        except DatasetError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _detail(str(error)))
        except HTTPException as error:
            code = _CODES.get(error.status_code, grpc.StatusCode.INTERNAL)
            again = (error.headers or {}).get("Retry-After")
            trailers = (("retry-after", again),) if again else ()
            await context.abort(code, _detail(error.detail), trailers)
        raise AssertionError("abort raises")

    return grpc.stream_unary_rpc_method_handler(handle)


def _detail(text: str) -> str:
    """Return as much of an error as a client takes: 8 KiB of headers, most bytes thrice as long."""
    return text.encode(errors="replace")[:_MOST_DETAIL].decode(errors="ignore")


def _check_token(context: Any, settings: PortalSettings) -> None:
    """Raise HTTPException for a client whose token isn't for predictions."""
    if not settings.tokens:
        return
    sent = dict(context.invocation_metadata()).get("authorization", "")
    scheme, _, token = sent.partition(" ")
    purposes = settings.tokens.purposes_of(token.strip() if scheme.lower() == "bearer" else "")
    if not purposes:
        raise HTTPException(401, "the token is missing, or is none of this portal's")
    if "predict" not in purposes:
        raise HTTPException(403, "this token isn't for predictions")


async def _only(requests: AsyncIterator[bytes], hold: Callable[[int], None]) -> bytes:
    """Return the only message of a stream, to whose end a client must come to see an error.

    Its bytes are held from its arrival on, however long the end takes.
    """
    found = None
    async for message in requests:
        if found is not None:
            raise HTTPException(400, "the request has more than one message")
        hold(len(message))
        found = message
    if found is None:
        raise HTTPException(400, "the request has no message")
    return found


class _Service:
    """The methods of the service, of bytes to bytes."""

    def __init__(self, predictions: Predictions) -> None:
        self._predictions = predictions

    async def live(self, body: bytes) -> bytes:
        return _made("ServerLiveResponse", live=True)

    async def ready(self, body: bytes) -> bytes:
        return _made("ServerReadyResponse", ready=True)

    async def server(self, body: bytes) -> bytes:
        return _made("ServerMetadataResponse", **SERVER)

    async def model_ready(self, body: bytes) -> bytes:
        asked = parse("ModelReadyRequest", body)
        try:
            await described(self._predictions, asked.name, asked.version)
        except HTTPException as error:
            if error.status_code in (404, 409, 500):
                return _made("ModelReadyResponse", ready=False)
            raise
        return _made("ModelReadyResponse", ready=True)

    async def model(self, body: bytes) -> bytes:
        asked = parse("ModelMetadataRequest", body)
        found = await described(self._predictions, asked.name, asked.version)
        return _made("ModelMetadataResponse", **found)

    async def infer(self, body: bytes) -> bytes:
        asked = parse("ModelReadyRequest", body)  # a name and a version, as the request's own
        fields = {"type": "infer_message", "model_name": asked.name, "model_version": asked.version}
        arrays = {"body": np.frombuffer(body, np.uint8)}
        reply = await self._predictions.ask(asked.name, asked.version, fields, arrays)
        return reply.arrays["body"].tobytes()


def _made(message: str, **fields: Any) -> bytes:
    found: bytes = MESSAGES[message](**fields).SerializeToString()
    return found
