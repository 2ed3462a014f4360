"""The span model: columns of numpy arrays, so that a million spans are cheap, and one file that
keeps them.

Times are whole nanoseconds of the host's monotonic clock, the same in every process. Names, types
and shapes are indices into ``strings``; 0 is the empty string and means that there is none.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.errors import MlmsError
from pytest_mlms.trace import LEVELS

__all__ = [
    "Builder",
    "CounterSeries",
    "Counters",
    "Spans",
    "Trace",
    "Track",
    "load_trace",
    "save_trace",
]

Array = NDArray[Any]

FORMAT = 1

_COLUMNS = {
    "level": "u1",
    "name": "i4",
    "type": "i4",
    "shape": "i4",
    "start": "i8",
    "end": "i8",
    "track": "i4",
    "bytes": "i8",
    "correlation": "i8",
    "request": "i4",
    "run": "i4",
    "external": "i8",
}
_EMPTY = {"type": 0, "shape": 0, "bytes": -1, "correlation": 0, "request": -1, "external": 0}


class Track(NamedTuple):
    """What a span lies on: a thread of a process, or a stream of a device.

    ``kind`` is ``thread`` or ``stream``.
    """

    run: int
    process: int
    thread: int
    name: str
    kind: str


class CounterSeries(NamedTuple):
    """A counter: its name, its unit, the run that it was read in, and whether it only goes up, or
    is a state.
    """

    name: str
    unit: str
    run: int
    rising: bool = False


@dataclass(frozen=True, eq=False)
class Spans:
    """One element a span in every column; ``level`` is an index into LEVELS.

    ``bytes`` is -1 where unknown; ``correlation`` links a launch to what it started (0: nothing);
    ``request`` counts the traced calls of a run (-1: outside of any); ``run`` is an index into
    ``Trace.runs``; ``external`` links a layer and the library calls that CUPTI saw inside of it (0:
    nothing).
    """

    level: Array
    name: Array
    type: Array
    shape: Array
    start: Array
    end: Array
    track: Array
    bytes: Array
    correlation: Array
    request: Array
    run: Array
    external: Array

    @classmethod
    def of(cls, **columns: Any) -> Spans:
        """Return spans of these columns.

        Those with a usual value may be left out, and a scalar holds for all.
        """
        count = len(columns["start"])
        arrays = {}
        for name, kind in _COLUMNS.items():
            value = columns.pop(name) if name in columns else _EMPTY[name]
            arrays[name] = np.broadcast_to(np.asarray(value, dtype=kind), (count,)).copy()
        if columns:
            raise TypeError(f"spans have no column {sorted(columns)}")
        return cls(**arrays)

    @classmethod
    def join(cls, parts: Sequence[Spans]) -> Spans:
        """Return all spans of ``parts``, in their order."""
        if not parts:
            return cls.of(**{name: [] for name in _COLUMNS})
        return cls(
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
        )

    def __len__(self) -> int:
        return len(self.start)

    def take(self, which: Array) -> Spans:
        """Return the spans at these indices, or where this mask is true."""
        return Spans(**{column.name: getattr(self, column.name)[which] for column in fields(self)})

    def at(self, level: str) -> Array:
        """Return a mask of the spans of a level."""
        return np.asarray(self.level == LEVELS.index(level))

    @property
    def duration(self) -> Array:
        """Nanoseconds from start to end."""
        return np.asarray(self.end - self.start)


@dataclass(frozen=True, eq=False)
class Counters:
    """Readings: which series, when (ns), how much (the series' unit)."""

    series: Array
    time: Array
    value: Array

    @classmethod
    def join(cls, parts: Sequence[Counters]) -> Counters:
        """Return all readings of ``parts``."""
        kinds = {"series": "i4", "time": "i8", "value": "f8"}
        return cls(
            **{
                n: np.concatenate([np.zeros(0, k), *(getattr(p, n) for p in parts)]).astype(k)
                for n, k in kinds.items()
            }
        )

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True, eq=False)
class Trace:
    """All that is known of an item.

    ``runs`` and ``about`` are plain values, which docs/tracing.md describes.
    """

    spans: Spans
    counters: Counters
    strings: tuple[str, ...]
    tracks: tuple[Track, ...]
    series: tuple[CounterSeries, ...]
    runs: tuple[dict[str, Any], ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    def with_spans(self, spans: Spans) -> Trace:
        """Return the same with other spans."""
        return replace(self, spans=spans)

    @property
    def devices(self) -> Array:
        """A mask over tracks: those of a device's streams."""
        return np.array([track.kind == "stream" for track in self.tracks], bool)

    def texts(self, column: Array) -> list[str]:
        """Return the strings that a column points to."""
        return [self.strings[index] for index in column.tolist()]

    def run_at(self, level: str) -> int | None:
        """Return the run in which ``level`` was the deepest that was on, or None."""
        found = [
            index
            for index, run in enumerate(self.runs)
            if run["level"] == level and not run.get("void")
        ]
        return found[-1] if found else None


class Builder:
    """Collects parts of a trace, with strings and tracks stored once."""

    def __init__(self, about: Mapping[str, Any] | None = None) -> None:
        self.about = dict(about or {})
        self.runs: list[dict[str, Any]] = []
        self._strings: dict[str, int] = {"": 0}
        self._tracks: dict[Track, int] = {}
        self._series: dict[CounterSeries, int] = {}
        self._spans: list[Spans] = []
        self._counters: list[Counters] = []

    def text(self, text: str | None) -> int:
        """Return the index of a string."""
        return self._strings.setdefault(text or "", len(self._strings))

    def texts(self, texts: Iterable[str | None]) -> Array:
        """Return the index of each string."""
        return np.fromiter(map(self.text, texts), "i4")

    def track(self, track: Track) -> int:
        """Return the index of a track."""
        return self._tracks.setdefault(track, len(self._tracks))

    def add(self, **columns: Any) -> None:
        """Add spans; the columns are those of Spans."""
        self._spans.append(Spans.of(**columns))

    def count(self, series: CounterSeries, time: Array, value: Array) -> None:
        """Add readings of a counter."""
        index = self._series.setdefault(series, len(self._series))
        self._counters.append(Counters(np.full(len(time), index, "i4"), time, value))

    def build(self) -> Trace:
        """Return what was collected so far."""
        return Trace(
            Spans.join(self._spans),
            Counters.join(self._counters),
            tuple(self._strings),
            tuple(self._tracks),
            tuple(self._series),
            tuple(map(dict, self.runs)),
            dict(self.about),
        )


def save_trace(trace: Trace, path: Path) -> None:
    """Write an .npz file, whole or not at all."""
    tables = {
        "format": FORMAT,
        "strings": trace.strings,
        "tracks": trace.tracks,
        "series": trace.series,
    }
    text = json.dumps({**tables, "runs": trace.runs, "about": trace.about})
    arrays = {f"span_{name}": getattr(trace.spans, name) for name in _COLUMNS}
    arrays |= {
        f"counter_{name.name}": getattr(trace.counters, name.name) for name in fields(Counters)
    }
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            np.savez(file, tables=np.frombuffer(text.encode(), "u1"), **arrays)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load_trace(path: Path) -> Trace:
    """Read what save_trace wrote; raises MlmsError for a file that is none."""
    try:
        data = io.BytesIO(path.read_bytes())
        if not zipfile.is_zipfile(data):  # else numpy speaks of pickles that one may load unsafely
            raise zipfile.BadZipFile("it is no archive")
        with np.load(data, allow_pickle=False) as file:
            tables = json.loads(file["tables"].tobytes())
            if tables["format"] != FORMAT:
                raise MlmsError(
                    f"{path} has format {tables['format']}; this version reads format {FORMAT}"
                )
            return Trace(
                Spans.of(
                    **{
                        name: file[f"span_{name}"]
                        for name in _COLUMNS
                        if f"span_{name}" in file or name not in _EMPTY
                    }
                ),
                Counters(**{name.name: file[f"counter_{name.name}"] for name in fields(Counters)}),
                tuple(tables["strings"]),
                tuple(Track(*track) for track in tables["tracks"]),
                tuple(CounterSeries(*series) for series in tables["series"]),
                tuple(tables["runs"]),
                tables["about"],
            )
    except OSError as error:
        raise MlmsError(f"{path} can't be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise MlmsError(
            f"{path} is no trace of pytest-mlms: {error}; name a trace.npz of a run"
        ) from error
