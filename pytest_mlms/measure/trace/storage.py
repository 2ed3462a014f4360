"""Trace files: ``save_trace`` writes an .npz file and ``load_trace`` reads it.

Each column of spans and counters is an array. All other parts of the trace are one JSON object,
stored as an array of bytes with the name ``tables``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import read_arrays, replacing
from pytest_mlms.core.serialization import from_plain, parse_json, to_plain
from pytest_mlms.measure.trace import LEVELS
from pytest_mlms.measure.trace.records import TraceMetadata, TraceRun
from pytest_mlms.measure.trace.spans import (
    COUNTER_COLUMNS,
    SPAN_COLUMNS,
    SPAN_DEFAULTS,
    Counters,
    CounterSeries,
    Spans,
    Trace,
    Track,
)

__all__ = ["load_trace", "save_trace"]


_FORMAT = 1
_UNREADABLE = (ValueError, KeyError, TypeError)


def save_trace(trace: Trace, path: Path) -> None:
    """Write the file atomically."""
    text = json.dumps(_tables_of(trace))
    arrays: dict[str, Any] = {}
    arrays["tables"] = np.frombuffer(text.encode(), "u1")
    for name in SPAN_COLUMNS:
        arrays[f"span_{name}"] = trace.spans.column(name)
    for name in COUNTER_COLUMNS:
        arrays[f"counter_{name}"] = getattr(trace.counters, name)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def load_trace(path: Path) -> Trace:
    """Read a file of ``save_trace``; raises MlmsError for anything else."""
    try:
        arrays = read_arrays(path)
        tables = parse_json(arrays["tables"].tobytes())
        found = tables["format"]
        if found != _FORMAT:
            raise MlmsError(f"{path} has format {found}; this version reads format {_FORMAT}")
        tracks = [Track(*track) for track in tables["tracks"]]
        series = [CounterSeries(*series) for series in tables["series"]]
        runs = [from_plain(TraceRun, run) for run in tables["runs"]]
        texts = dict.fromkeys(("name", "type", "shape"), tables["strings"])
        columns = {}  # those with a default may be missing in older files
        for name in SPAN_COLUMNS:
            key = f"span_{name}"
            if key in arrays or name not in SPAN_DEFAULTS:
                columns[name] = arrays[key]
        spans = Spans.of(**columns)
        _check_indices(spans, {**texts, "track": tracks, "run": runs, "level": LEVELS})
        return Trace(
            spans=spans,
            counters=_counters_of(arrays),
            strings=tuple(tables["strings"]),
            tracks=tuple(tracks),
            series=tuple(series),
            runs=tuple(runs),
            metadata=from_plain(TraceMetadata, tables["about"]),
        )
    except OSError as error:
        raise MlmsError(f"{path} can't be read: {error.strerror}") from error
    except _UNREADABLE as error:
        raise MlmsError(
            f"{path} is no trace of pytest-mlms: {_reason(error)}; name a trace.npz of a run"
        ) from error


def _tables_of(trace: Trace) -> dict[str, Any]:
    tracks = [list(track) for track in trace.tracks]
    series = [list(series) for series in trace.series]
    return {
        "format": _FORMAT,
        "strings": trace.strings,
        "tracks": tracks,
        "series": series,
        "runs": to_plain(trace.runs),
        "about": to_plain(trace.metadata),
    }


def _check_indices(spans: Spans, tables: Mapping[str, Sequence[object]]) -> None:
    """Raise ValueError where a column has an index that its table does not have."""
    for name, table in tables.items():
        column = spans.column(name)
        if len(column) and not (column.min() >= 0 and column.max() < len(table)):
            raise ValueError(f"column {name} of its spans has an index that is not there")


def _counters_of(arrays: dict[str, Array]) -> Counters:
    columns = {}
    for name in COUNTER_COLUMNS:
        columns[name] = arrays[f"counter_{name}"]
    return Counters(**columns)


def _reason(error: Exception) -> str:
    """Return the message of an error on one line."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place = ".".join(str(key) for key in first["loc"])
        return f"{place}: {first['msg']}"
    return str(error)
