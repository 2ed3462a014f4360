"""Limits of a download."""

from __future__ import annotations

from typing import NamedTuple

from pytest_mlms.core.settings import DOWNLOAD_SIZE, DOWNLOAD_TIME, UNPACK_LIMIT


class DownloadLimits(NamedTuple):
    """The most bytes of a file, the most seconds for it, and the most bytes that it unpacks to."""

    size: float = DOWNLOAD_SIZE
    seconds: float = DOWNLOAD_TIME
    unpacked: float = UNPACK_LIMIT
