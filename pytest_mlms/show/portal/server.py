"""The server process: uvicorn on a socket of ours, with time limits, and a clean end."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from dataclasses import replace
from importlib import import_module
from types import FrameType
from typing import Any

import uvicorn
from starlette.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from pytest_mlms.core.extras import install
from pytest_mlms.show.portal.addresses import ListenAddress, PortalError
from pytest_mlms.show.portal.app import make_app
from pytest_mlms.show.portal.settings import Limits, PortalSettings

_SHUTDOWN_SECONDS = 5


def serve(settings: PortalSettings) -> None:
    """Serve the portal until SIGINT or SIGTERM; print its address once it listens.

    Raises PortalError.
    """
    listen = settings.listen.resolved()
    _check_listen(listen, "--listen", settings)
    _allow_files()
    with listen.bind() as bound:
        if settings.grpc is not None:
            grpc = settings.grpc.resolved("--grpc")
            _check_grpc(grpc, settings)
            settings = replace(settings, grpc=grpc)
        server = _Server(_config(settings))
        server.greeting = f"mlms portal: {_url(settings.listen, bound)} (Ctrl-C ends it)"
        server.run(sockets=[bound])
    print("mlms portal: ended", flush=True)


def _allow_files() -> None:
    """Take as many descriptors as the system lets us: a crowd has one for each connection."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _check_grpc(address: ListenAddress, settings: PortalSettings) -> None:
    """Refuse an address of gRPC that can't be listened on, and a portal without its extra."""
    _check_listen(address, "--grpc", settings)
    try:
        import_module("pytest_mlms.show.portal.inference_grpc")
    except ImportError as error:
        raise PortalError(f"--grpc needs {error.name}; {install('grpc')}") from None
    address.bind("--grpc").close()


def _check_listen(address: ListenAddress, option: str, settings: PortalSettings) -> None:
    """Refuse to show results to the network without a token."""
    if settings.tokens or address.is_loopback:
        return
    raise PortalError(
        f"{option} {address}: other machines can reach it, and there is no token; set "
        f"MLMS_PORTAL_TOKEN or --token-file, or listen on 127.0.0.1"
    )


def _url(listen: ListenAddress, bound: socket.socket) -> str:
    port = bound.getsockname()[1]
    return f"http://{ListenAddress(listen.host, port)}/"


def _config(settings: PortalSettings) -> uvicorn.Config:
    limits = settings.limits
    protocol = type("_LimitedProtocol", (_TimedProtocol,), {"limits": limits})
    return uvicorn.Config(
        make_app(settings),
        http=protocol,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )


class _Server(uvicorn.Server):
    greeting = ""

    async def main_loop(self) -> None:
        print(self.greeting, flush=True)  # from here on a signal ends it in order
        await super().main_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the server; uvicorn's own method would raise the signal again at the end.

        Requests and a start that are cut off are no errors.
        """
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self.force_exit = self.should_exit
        self.should_exit = True


async def _refuse_crowd(scope: Any, receive: Any, send: Any) -> None:
    """Answer a request that is one too many."""
    headers = {"Retry-After": "1", "Connection": "close"}
    detail = {"detail": "too many clients; ask again later"}
    await JSONResponse(detail, 429, headers)(scope, receive, send)


class _TimedProtocol(H11Protocol):
    """A connection that ends where its client stalls: uvicorn waits for ever.

    There is a limit for the head of a request, and one for a client that doesn't read its answer.
    ``LimitedBody`` has those of the body.
    """

    limits: Limits
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self.app = _refuse_crowd
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_head_timer()
        elif self._head_timer is None:
            self._expect_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        seconds = self.limits.stall_seconds
        self._write_timer = self.loop.call_later(seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_write_timer()
        super().resume_writing()

    def _expect_head(self) -> None:
        seconds = self.limits.header_seconds
        self._head_timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
