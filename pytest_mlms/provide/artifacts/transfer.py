"""A file on its way into the cache: what there is of it, and its limits."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_mlms.core.records import Artifact, DownloadLimits
from pytest_mlms.core.units import format_quantity

ReportProgress = Callable[[str, int, int], None]
"""Called with the file's name, the bytes so far, and all bytes (0 if the server doesn't say)."""


class DownloadError(Exception):
    """A download that failed; the text says why, and what to do."""


@dataclass(frozen=True)
class Transfer:
    """A file that is being fetched for an artifact.

    ``partial`` has what there is of it. ``end`` is on time.monotonic().
    """

    artifact: Artifact
    partial: Path
    cache: Path
    name: str
    progress: ReportProgress
    limits: DownloadLimits
    end: float

    @property
    def source(self) -> str:
        """The address of the file."""
        return self.artifact.source

    def warn(self, text: str) -> None:
        """Warn at the manifest's line."""
        place = self.artifact.place
        warnings.warn_explicit(text, UserWarning, str(place.path), place.line)

    def note(self, done: int, total: int = 0) -> None:
        """Report the progress; raises DownloadError beyond the limits."""
        self.check_size(max(done, total))
        if time.monotonic() > self.end:
            problem = "the time for the download is over"
            advice = "run again to go on with what is there, or allow more by --mlms-download-time"
            raise DownloadError(f"{problem}; {advice}")
        self.progress(self.name, done, total)

    def check_size(self, size: int) -> None:
        """Raise DownloadError for a file of more bytes than the limit."""
        if size > self.limits.size:
            self.partial.unlink(missing_ok=True)
            limit = format_quantity(self.limits.size, "B")
            raise DownloadError(f"it has more than {limit}; --mlms-download-size allows more")


Retrieve = Callable[[Transfer], None]
"""Writes the whole file to ``partial``; raises DownloadError, and OSError for the disk."""
