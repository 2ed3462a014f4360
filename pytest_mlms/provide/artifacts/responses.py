"""Answers of HTTP whose parts have no negative size, which Python would read until memory ends."""

from __future__ import annotations

import http.client


class PlainResponse(http.client.HTTPResponse):
    """An answer that is broken where a chunk of it has a negative size."""

    def _safe_read(self, amt: int) -> bytes:
        if amt < 0:
            raise http.client.IncompleteRead(b"")
        read: bytes = super()._safe_read(amt)  # type: ignore[misc]
        return read
