"""The pipes to and from an agent, the log of its framework, and replies, checked before use.

An agent may send whatever it likes, or nothing: there are deadlines.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import shutil
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from mlms_predictors import Tensor
from mlms_predictors._run import protocol
from mlms_predictors._run.protocol import TIME, ProtocolError
from mlms_predictors._run.replies import (
    DeviceBytes,
    LoadRunReply,
    RunReply,
    ServedReply,
    TraceReply,
)
from mlms_predictors._run.trace_reply import COLUMNS
from numpy.typing import NDArray

from pytest_mlms.core.errors import AgentError, MlmsError


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
_PAIRS = {"start": "end", "device": "start", "wait": "at", "cpu": "at"}
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
_MAY_FALL = frozenset({"grown"})
_TICK = 0.01  # seconds by which the kernel may count a wait otherwise than the clock
_IN_USE = ".in-use"  # in the folder of a log that its process removes


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

    ``longest`` is the limit of each text in characters. Amounts below 0 are refused, as they would
    meet any limit.
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
    for name in names:
        _check_not_below_0(name, getattr(record, name))
    return record


def _check_not_below_0(name: str, value: Any) -> None:
    if isinstance(value, DeviceBytes):
        for counter, count in value.counters.items():
            _check_not_below_0(counter, count)
    elif isinstance(value, tuple):
        for part in value:
            _check_not_below_0(name, part)
    if isinstance(value, (int, float)) and value < 0 and name not in _MAY_FALL:
        raise ProtocolError(f"{shortened(repr(name))} is {value:g}")


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
        if name in times and len(times[name]) != len(times[other]):
            raise ProtocolError(f"times {name!r} and {other!r} are not equally many")
    if (np.diff(np.stack([times["start"], times["end"]], axis=1).ravel()) < 0).any():
        raise ProtocolError("a call ends before it starts, or starts before the last one ended")
    if "device" in times and (times["device"] < 0).any():
        raise ProtocolError("a call took less than no time on the device")
    return times


def read_energy(record: RunReply | LoadRunReply) -> Energy:
    """Return the energy of a run; it is missing where its counters can't be right.

    That may happen to any one run, as after a suspension, and is no reason to end an item.
    """
    joules, idle_watts, missing = record.joules, record.idle_watts, ""
    for name, value in [*joules.items(), *idle_watts.items()]:
        if value < 0:
            missing = f"the counter {shortened(name)} went backwards"
    if joules and not any(joules.values()):
        missing = f"the counter {shortened(', '.join(joules))} stands still"
    if missing:
        return Energy({}, {}, missing, record.energy_period)
    return Energy(joules, idle_watts, record.energy_missing, record.energy_period)


def check_waited(seconds: float, waited: float) -> None:
    """Raise ProtocolError where a wait for a core is longer than what it was a part of."""
    if waited > seconds + _TICK:
        raise ProtocolError(f"it waited for a core for {waited:g} s of {seconds:g} s")


def take_tokens(
    arrays: dict[str, Array], calls: Mapping[str, Array], generates: bool
) -> dict[str, Array]:
    """Move the times of tokens of ``calls`` out of ``arrays``, one token at least of each.

    There are none of a model that generates nothing.
    """
    if not generates:
        return {}
    found = {name: arrays.pop(TIME + name, None) for name in ("tokens", "token", "token_wait")}
    rows = {name: row for name, row in found.items() if row is not None}
    if len(rows) < len(found) or not all(_is_row(row, np.float64) for row in rows.values()):
        raise ProtocolError("tokens have no rows of float64 of their numbers, times and waits")
    counts, times, waits = rows.values()
    is_whole = len(counts) == len(calls["start"]) and bool((counts >= 1).all())
    if not is_whole or (counts % 1).any() or not len(times) == len(waits) == counts.sum():
        raise ProtocolError(f"the times of tokens are not those of {len(calls['start'])} calls")
    starts, ends = (np.repeat(calls[name], counts.astype(int)) for name in ("start", "end"))
    is_within = (times >= starts) & (times <= ends) & (waits >= 0)
    if not is_within.all() or (np.diff(times) < 0).any():
        raise ProtocolError("a token has a time outside of its call, or before the last token")
    if (waits > times - starts + _TICK).any():
        raise ProtocolError("a call waited for a core for longer than until its token")
    return rows


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


_PIPE_BYTES = 1 << 20
_READ_BYTES = 1 << 16
_POLL_SECONDS = 0.5  # between two looks at whether the process still runs


class Channel:
    """Reads and writes frames without waiting past ``deadline``, in seconds of time.monotonic().

    Raises TimeoutError at the deadline, and EOFError where the process has ended. A reply's arrays
    may have ``most_bytes``, any number where it is None.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], requests: IO[bytes], replies: IO[bytes]
    ) -> None:
        self.deadline = 0.0
        self.most_bytes: int | None = None
        self._filled = 0
        self._process = process
        self._requests = requests
        self._replies = replies
        self._unread = bytearray()
        for pipe in (requests, replies):
            os.set_blocking(pipe.fileno(), False)
            with contextlib.suppress(OSError, AttributeError):  # larger pipes exist on Linux only
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    @property
    def closed(self) -> bool:
        """True if the pipes are closed."""
        return self._requests.closed

    def close(self) -> None:
        """Close both pipes."""
        self._requests.close()
        self._replies.close()

    def check_deadline(self) -> None:
        """Raise TimeoutError after the deadline, also where there is always more to read."""
        if time.monotonic() >= self.deadline:
            raise TimeoutError

    def write(self, buffers: Iterable[Any]) -> None:
        """Send the buffers of a frame."""
        self._filled = 0
        for buffer in buffers:
            view = memoryview(buffer)
            while view:
                sent = self._send(view)
                view = view[sent:]

    def readline(self, limit: int) -> bytes:
        """Return the next line, or ``limit`` bytes and more of a line that is longer."""
        end = self._unread.find(b"\n")
        while end < 0 and len(self._unread) < limit:
            searched = len(self._unread)
            data = bytearray(_READ_BYTES)
            count = self._receive(memoryview(data))
            if count == 0:
                raise EOFError
            self._unread += data[:count]
            end = self._unread.find(b"\n", searched)
        length = len(self._unread) if end < 0 else end + 1
        return self._take(length)

    def readinto(self, view: memoryview) -> int:
        """Fill a part of ``view`` and return its length in bytes; 0 where the channel ends.

        Raises ProtocolError for arrays that have more than ``most_bytes``.
        """
        if self.most_bytes is not None and self._filled + len(view) > self.most_bytes:
            raise ProtocolError(f"its arrays have more than {self.most_bytes:,} bytes")
        if self._unread:
            count = min(len(view), len(self._unread))
            view[:count] = self._take(count)
        else:
            count = self._receive(view)
        self._filled += count
        return count

    def _take(self, count: int) -> bytes:
        taken = bytes(self._unread[:count])
        del self._unread[:count]
        return taken

    def _send(self, view: memoryview) -> int:
        while True:
            try:
                return os.write(self._requests.fileno(), view)
            except BlockingIOError:
                self._wait(self._requests, selectors.EVENT_WRITE)

    def _receive(self, view: memoryview) -> int:
        while True:
            try:
                return os.readv(self._replies.fileno(), [view])
            except BlockingIOError:
                self._wait(self._replies, selectors.EVENT_READ)

    def _wait(self, pipe: IO[bytes], event: int) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, event)
            while not selector.select(self._next_wait()):
                has_ended = self._process.poll() is not None
                # A child of a dead process may still hold the pipe open.
                if has_ended and not selector.select(0):
                    raise EOFError
                self.check_deadline()

    def _next_wait(self) -> float:
        left = self.deadline - time.monotonic()
        return max(0.0, min(left, _POLL_SECONDS))


_HEAD = 1 << 20  # bytes
_TAIL = 1 << 18
_READ = 1 << 16


class LogFile:
    """Drains a pipe in a thread, so that the process never waits for it.

    The beginning is written to ``path`` as it comes. The end is held in memory until close().
    """

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self.path = path
        self._stream = stream
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._dropped_bytes = 0
        self._error = ""
        self._thread = threading.Thread(target=self._drain, daemon=True)

    @classmethod
    def drain(cls, stream: IO[bytes], path: Path) -> LogFile:
        """Begin to drain ``stream`` into ``path``."""
        log = cls(stream, path)
        log._thread.start()
        return log

    def tail(self, lines: int = 15) -> list[str]:
        """Return the last lines so far."""
        self._thread.join(0.2)  # the pipe may still have the last lines of a process that died
        data = bytes(self._head[-_TAIL:]) + b"".join(self._tail)
        last = data.decode(errors="replace").splitlines()[-lines:]
        if self._error:
            last.append(f"(the log is not complete: {self._error})")
        return last

    def close(self) -> None:
        """Write the end of the output.

        The process has ended, but a child that it left behind may still hold the pipe.
        """
        self._thread.join(5.0)
        if not self._stream.closed and not self._thread.is_alive():
            self._stream.close()
        if not self._tail_bytes:
            return
        if self._dropped_bytes:
            note = f"\n… {self._dropped_bytes:,} bytes left out …\n"
            self._append(note.encode())
        self._append(b"".join(self._tail))
        self._tail_bytes = 0

    def _drain(self) -> None:
        while True:
            data = os.read(self._stream.fileno(), _READ)
            if not data:
                return
            room = max(0, _HEAD - len(self._head))
            head = data[:room]
            tail = data[room:]
            if head:
                self._head += head
                self._append(head)
            if tail:
                self._tail.append(tail)
                self._tail_bytes += len(tail)
                while self._tail_bytes - len(self._tail[0]) >= _TAIL:
                    dropped = len(self._tail.popleft())
                    self._tail_bytes -= dropped
                    self._dropped_bytes += dropped

    def _append(self, data: bytes) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(data)
        except OSError as error:  # a full disk must not stop the process
            self._error = str(error)


@contextlib.contextmanager
def temporary_log(prefix: str) -> Iterator[Path]:
    """Yield the path of an agent's log in a folder whose name begins with ``prefix``.

    The folder is kept where an AgentError ends the context, or another error that names the log.
    Such folders of processes that ended without ending theirs are removed.
    """
    _remove_abandoned(prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    is_kept = False
    with _in_use(folder):
        try:
            yield folder / "agent.log"
        except MlmsError as error:
            is_kept = isinstance(error, AgentError) or str(folder) in str(error)
            raise
        finally:
            if not is_kept:
                shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _in_use(folder: Path) -> Iterator[None]:
    """Mark a folder as one that this process removes: with a lock that ends with the process.

    The file that says so is there only while the lock is held.
    """
    mark = folder / _IN_USE
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # of a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mark.touch()
        yield
    finally:
        mark.unlink(missing_ok=True)
        os.close(descriptor)


def _remove_abandoned(prefix: str) -> None:
    """Remove this user's folders that are in use by processes that are no more."""
    for mark in Path(tempfile.gettempdir()).glob(f"{prefix}*/{_IN_USE}"):
        with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
            descriptor = os.open(mark.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            opened.callback(os.close, descriptor)
            if os.fstat(descriptor).st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(mark.parent, ignore_errors=True)
