"""Trace file formats, one module each.

To add a format, write a module with the names of ``Exporter`` and list it in ``EXPORTERS``. It is
then a choice of ``mlms export``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from pytest_mlms.measure.trace.exporters import otlp, perfetto
from pytest_mlms.measure.trace.spans import Trace


class Exporter(Protocol):
    """A module that writes traces in one format.

    ``SUFFIX`` is the end of the names of its files. ``DESCRIPTION`` is shown in the help.
    """

    SUFFIX: str
    DESCRIPTION: str

    def export(self, trace: Trace, path: Path, name: str) -> int:
        """Write the file atomically, and return the number of its spans.

        ``name`` identifies the trace among those of a run. Raises MlmsError where a package that
        the format needs is missing, and OSError where the file can't be written.
        """


EXPORTERS: Mapping[str, Exporter] = {
    "otlp": otlp,
    "perfetto": perfetto,
}
"""Name of each format, and its module."""
