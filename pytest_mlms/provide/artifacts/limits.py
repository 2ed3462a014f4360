"""Limits of a download. Options have their defaults from here, so it imports nothing heavy."""

from __future__ import annotations

from typing import NamedTuple


class DownloadLimits(NamedTuple):
    """The most bytes of a file, the most seconds for it, and the most bytes that it unpacks to."""

    size: float = 20 * 2**30
    seconds: float = 3600.0
    unpacked: float = 64 * 2**30
