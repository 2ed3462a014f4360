"""Bodies of requests: limits of their size and of the time that they take."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message, Receive

from pytest_mlms.core.units import format_quantity
from pytest_mlms.show.portal.settings import Limits

_DIGITS = 20  # of a length; Python reads no number of thousands


def announced_length(request: Request) -> int:
    """Return the bytes that a request says its body has; 0 where it doesn't say."""
    length = request.headers.get("content-length", "0")
    return int(length[:_DIGITS]) if length.isdecimal() else 0


@dataclass
class LimitedBody:
    """The body of a request, of at most ``most`` bytes; its ``receive`` raises HTTPException."""

    receive_message: Receive
    most: int
    limits: Limits
    taken: int = 0
    began: float = field(default_factory=time.monotonic)
    is_whole: bool = False

    async def receive(self) -> Message:
        """Return the next message of the server; of a client that is gone http.disconnect."""
        if self.is_whole:  # what comes is that the client goes away
            return await self.receive_message()
        try:
            message = await asyncio.wait_for(self.receive_message(), self._seconds_left())
        except asyncio.TimeoutError:
            raise HTTPException(408, "the request is too slow; send it again") from None
        self.taken += len(message.get("body", b""))
        self.is_whole = not message.get("more_body", False)
        if self.taken > self.most:
            most = format_quantity(self.most, "B")
            raise HTTPException(413, f"the request is larger than {most}")
        return message

    def _seconds_left(self) -> float:
        """Return the time that the next part may take: no stall, and no trickle."""
        stall = self.limits.stall_seconds
        deadline = self.began + stall + self.taken / self.limits.bytes_per_second
        return max(0.0, min(stall, deadline - time.monotonic()))
