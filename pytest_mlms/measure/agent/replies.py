"""Replies of agents, checked before anything uses them: an agent may send whatever it likes.

Everything raises ProtocolError, which says in a line what was expected and what was found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from mlms_predictors import Tensor
from mlms_predictors._run import protocol
from mlms_predictors._run.protocol import TIME, ProtocolError
from mlms_predictors._run.replies import ServedReply, TraceReply
from mlms_predictors._run.trace_reply import COLUMNS
from numpy.typing import NDArray


@dataclass(frozen=True)
class Energy:
    """Energy of the device during a run.

    ``joules`` has the energy by each counter, empty where there is none: ``missing`` is the reason.
    ``idle_watts`` is the power by counter before the run, empty where it was not measured.
    ``period`` are the seconds in which a GPU's counter advances, None where that is not known.
    """

    joules: Mapping[str, float]
    idle_watts: Mapping[str, float]
    missing: str
    period: float | None = None

    @property
    def total(self) -> float | None:
        """Joules of all counters; None where they are missing."""
        return sum(self.joules.values()) if self.joules else None

    def per_input(self, inputs: int) -> float | None:
        """Return the joules for each of ``inputs``; None where they are missing."""
        return None if self.total is None else self.total / inputs

    @property
    def idle(self) -> float | None:
        """Watts of all counters before the run; None where they were not measured."""
        return sum(self.idle_watts.values()) if self.idle_watts else None


UNTOLD = Energy({}, {}, "it was not measured")
"""No energy."""


Array = NDArray[Any]
Record = TypeVar("Record")

TEXTS = "string"
"""The type of tensors of texts."""
_SHOWN = 200  # characters of what was found
_PAIRS = {"start": "end", "wait": "at", "cpu": "at"}
"""Times that are equally many."""
_INDICES = {
    "level": "levels",
    "name": "strings",
    "type": "strings",
    "shape": "strings",
    "track": "tracks",
}
"""Columns of a trace that have places in a list of its reply."""
_SPAN = "span_"


def check_answers(kind: str, number: int, facts: Mapping[str, Any]) -> None:
    """Raise ProtocolError where a frame is not the reply to request ``number`` of this type.

    A greeting in another version of the protocol is let through, for its version to be told.
    """
    if kind == "hello" and facts["type"] != "error" and facts.get("protocol") != protocol.VERSION:
        return
    if facts.get("number") != number or facts["type"] not in (kind, "error"):
        found = shortened(f"'{facts['type']}' of request {facts.get('number')!r}")
        raise ProtocolError(f"expected the reply to request {number}, found {found}")
    if facts["type"] == "error":
        for field in ("error", "message"):
            if not isinstance(facts.get(field), str):
                raise ProtocolError(f"an error has no text as its {field!r}")


def read_record(kind: type[Record], facts: Mapping[str, Any], longest: int | None = None) -> Record:
    """Return the fields of a reply as a record; others than the record's are ignored.

    ``longest`` is the limit of each text in characters.
    """
    from pydantic import ValidationError

    names: tuple[str, ...] = getattr(kind, "_fields")  # noqa: B009
    fields = {name: facts[name] for name in names if name in facts}
    hashable: Any = kind
    try:
        record: Record = _adapter(hashable, longest).validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ProtocolError(
            shortened(f"{place}: {first['msg']}, found {first['input']!r}")
        ) from None
    return record


def unique(named: Iterable[tuple[str, Array]]) -> dict[str, Array]:
    """Return arrays by name."""
    arrays: dict[str, Array] = {}
    for name, array in named:
        if name in arrays:
            raise ProtocolError(f"two arrays have the name {shortened(repr(name))}")
        arrays[name] = array
    return arrays


def take_times(arrays: dict[str, Array], names: Collection[str]) -> dict[str, Array]:
    """Move the arrays of times out of ``arrays``; each has finite numbers, at least one."""
    times = {}
    for name in names:
        if TIME + name not in arrays:
            raise ProtocolError(f"there are no times {name!r}")
        array = arrays.pop(TIME + name)
        if not _is_row(array, np.float64) or not array.size:
            found = f"{array.dtype} {list(array.shape)}"
            raise ProtocolError(f"times {name!r} are {found}, not a row of float64")
        if not np.isfinite(array).all():
            raise ProtocolError(f"times {name!r} have a value that is not finite")
        times[name] = array
    for name, other in _PAIRS.items():
        if len(times[name]) != len(times[other]):
            raise ProtocolError(f"times {name!r} and {other!r} are not equally many")
    return times


def check_outputs(outputs: Iterable[Tensor], arrays: Mapping[str, Array]) -> None:
    """Raise ProtocolError where an output that is an array is missing."""
    for tensor in outputs:
        if tensor.name not in arrays and is_array(tensor):
            raise ProtocolError(
                f"there is no output {tensor.name!r}; found {shortened(str(sorted(arrays)))}"
            )


def check_served(record: ServedReply) -> None:
    """Raise ProtocolError where the numbers of calls under load don't fit each other."""
    if not len(record.samples) == len(record.usual) == len(record.picks):
        raise ProtocolError("'samples', 'usual' and 'picks' are not equally many")
    parts = [*zip(record.differing, record.held, strict=False), (record.others, record.calls)]
    if len(record.held) != len(record.differing) or any(
        not 0 <= few <= count for few, count in parts
    ):
        raise ProtocolError("calls that differ are more than those that are held")
    if any(each < 1 for each in record.picks):
        raise ProtocolError("a call was picked less than once")
    numbers = range(len(record.held))
    if any(not samples or set(samples) - set(numbers) for samples in record.samples):
        raise ProtocolError("a call has a sample of which no call is held")


def check_trace(record: TraceReply, arrays: Mapping[str, Array]) -> None:
    """Raise ProtocolError where the columns of a trace don't fit each other or its lists."""
    names = [_SPAN + name for name in COLUMNS]
    unknown = [name for name in arrays if name.startswith(_SPAN) and name not in names]
    if unknown:
        raise ProtocolError(f"there is no column {shortened(unknown[0])!r}")
    columns = {name: _row(arrays, name, np.int64) for name in names}
    _check_equal_length(columns)
    for name, field in _INDICES.items():
        places = columns[_SPAN + name]
        count = len(getattr(record, field))
        if places.size and not (places.min() >= 0 and places.max() < count):
            raise ProtocolError(f"column {name!r} has places that its {count} {field} don't have")
    _row(arrays, "plain", np.int64)
    for index in range(len(record.series)):
        times = _row(arrays, f"time_{index}", np.int64)
        values = _row(arrays, f"value_{index}", np.float64)
        _check_equal_length({"times": times, "values": values})


def _row(arrays: Mapping[str, Array], name: str, dtype: type) -> Array:
    array = arrays.get(name)
    if array is None or not _is_row(array, dtype):
        raise ProtocolError(f"there is no row {name!r} of {np.dtype(dtype)}")
    return array


def _is_row(array: Array, dtype: type) -> bool:
    return array.ndim == 1 and bool(array.dtype == dtype)


def _check_equal_length(rows: Mapping[str, Array]) -> None:
    lengths = {len(row) for row in rows.values()}
    if len(lengths) > 1:
        names = ", ".join(rows)
        raise ProtocolError(f"the rows {names} are not equally long")


def is_array(tensor: Tensor) -> bool:
    """Return whether a tensor is of numbers or texts; a framework may not tell."""
    if tensor.dtype in ("", TEXTS):
        return True
    try:
        return np.dtype(tensor.dtype).kind in "biufc"
    except (TypeError, ValueError):
        return False


def shortened(text: str) -> str:
    """Return a text without the end of a long one."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


@lru_cache(maxsize=32)
def _adapter(kind: Any, longest: int | None) -> Any:
    from pydantic import ConfigDict, TypeAdapter

    config = ConfigDict(allow_inf_nan=False, str_max_length=longest)
    return TypeAdapter(kind, config=config)
