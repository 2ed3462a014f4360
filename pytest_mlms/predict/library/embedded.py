"""The functions that library.c calls, by cffi: models by number, values of C, errors as texts.

It runs within programs of C and Java, on their threads, in an interpreter without handlers of
signals. What a program gets is kept here until it gives it back, so that a second time, or a
pointer that was never given, is an error and not a crash.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import _cffi_backend  # noqa: F401  library.c tells where it is missing
import numpy as np
from numpy.typing import NDArray

import pytest_mlms
from pytest_mlms.core.errors import DatasetError, MlmsError
from pytest_mlms.core.text import shortened
from pytest_mlms.measure.agent.signature import element_type_of
from pytest_mlms.predict.inputs import Given, Value
from pytest_mlms.predict.model import Model, Prediction, open_model
from pytest_mlms.predict.plain import plain_prediction

_LONGEST = 2000  # characters of an error, which library.c has room for
_MOST_BYTES = 1 << 30  # of an input
_MOST_AXES = 32
_MOST_INPUTS = 1000
_PIPE = {signal.SIGPIPE}


def define(ffi: Any, lib: Any, version: str) -> None:
    """Give library.c its functions; ``version`` is that of pytest-mlms which compiled it."""
    library = _Library(ffi, version)
    functions: dict[Callable[..., Any], Any] = {
        library.open: 0,
        library.predict: ffi.NULL,
        library.free: -1,
        library.close: -1,
    }
    for function, failed in functions.items():
        name = f"python_{function.__name__}"
        ffi.def_extern(name=name, error=failed)(_telling(lib.tell, function, failed))


def _telling(
    tell: Callable[[bytes], None], function: Callable[..., Any], failed: Any
) -> Callable[..., Any]:
    """Return the function with its errors as texts, and ``failed`` in place of its result."""

    def call(*arguments: Any) -> Any:
        try:
            with _pipes_kept():
                return function(*arguments)
        except MlmsError as error:
            text = str(error)
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(last.filename).name}:{last.lineno}"
            problem = "".join(traceback.format_exception_only(error)).strip()
            text = f"{place}: {problem}; this is an error of pytest-mlms: please report it"
        tell(shortened(text, _LONGEST).encode(errors="replace"))
        return failed

    return call


@contextlib.contextmanager
def _pipes_kept() -> Iterator[None]:
    """Have a pipe to an agent that died raise, as in Python, and not end the program."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, _PIPE)
    try:
        yield
    finally:
        if not _PIPE & former:
            while signal.sigtimedwait(_PIPE, 0):
                pass
            signal.pthread_sigmask(signal.SIG_SETMASK, former)


class _Opened(NamedTuple):
    """A model, and what one thread at a time holds to use it."""

    model: Model
    lock: Lock


class _Library:
    def __init__(self, ffi: Any, version: str) -> None:
        self._ffi = ffi
        self._version = version
        self._models: dict[int, _Opened] = {}
        self._given: dict[int, list[Any]] = {}
        self._numbers = itertools.count(1)

    def open(self, manifest: Any, stack: Any, device: Any) -> int:
        if self._version != pytest_mlms.__version__:
            problem = f"libmlms.so is of pytest-mlms {self._version}, the environment has"
            advice = "run 'mlms library build' again"
            raise MlmsError(f"{problem} {pytest_mlms.__version__}; {advice}")
        path = self._path(manifest)
        if path is None:
            raise MlmsError("mlms_open: the manifest is NULL; give its path")
        model = open_model(path, stack=self._text(stack), device=self._text(device))
        number = next(self._numbers)
        self._models[number] = _Opened(model, Lock())
        return number

    def close(self, number: int) -> int:
        opened = self._opened(number)
        self._models.pop(number, None)
        with opened.lock:
            opened.model.close()
        return 0

    def predict(self, number: int, inputs: Any, count: int) -> Any:
        opened = self._opened(number)
        if count > _MOST_INPUTS or (count and not inputs):
            where = "too many" if inputs else "at NULL"
            raise MlmsError(f"mlms_predict: there are {count} inputs, {where}; give each once")
        found = [self._input(inputs[index]) for index in range(count)]
        given = _given_of(found)
        with opened.lock:
            prediction = opened.model.predict(given)
        name = ", ".join(_shown(value) for _, value in found)
        return self._answer(plain_prediction(name, opened.model, prediction, None), prediction)

    def free(self, prediction: Any) -> int:
        if self._given.pop(self._address(prediction), None) is None:
            raise MlmsError("mlms_free: this is no answer, or was freed before; free each once")
        return 0

    def _opened(self, number: int) -> _Opened:
        opened = self._models.get(number)
        if opened is None:
            raise MlmsError(f"no model {number} is open: it was closed, or none; open it again")
        return opened

    def _input(self, value: Any) -> tuple[str | None, Value]:
        kind = self._text(value.type)
        if kind in ("text", "path") and not value.data:
            raise DatasetError(f"an input is a {kind} at NULL; give one")
        if kind == "text":
            return self._text(value.name), self._text(value.data) or ""
        if kind == "path":
            return self._text(value.name), self._path(value.data) or Path()
        array = self._array("uint8" if kind == "bytes" else kind, value)
        return self._text(value.name), array.tobytes() if kind == "bytes" else array

    def _array(self, kind: str | None, value: Any) -> NDArray[Any]:
        """Return a copy of an array in C."""
        try:
            dtype = np.dtype(kind or "")
        except TypeError:
            dtype = np.dtype(object)
        if dtype.kind not in "biuf":
            known = "the type of an array, such as float32, or text, path or bytes"
            raise DatasetError(f"an input has the type {kind!r}; write {known}")
        if value.rank > _MOST_AXES or (value.rank and not value.shape):
            where = "at NULL" if not value.shape else "in place"
            problem = f"an input has {value.rank} axes, and their lengths are {where}"
            raise DatasetError(f"{problem}; give the lengths of at most {_MOST_AXES}")
        shape = [value.shape[axis] for axis in range(value.rank)]
        size = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or size > _MOST_BYTES:
            most = f"lengths from 0, and at most {_MOST_BYTES >> 20:,} MiB"
            raise DatasetError(f"an input of {dtype} has the shape {shape}; give {most}")
        if size and not value.data:
            raise DatasetError(f"an input of {dtype} {shape} is at NULL; give its elements")
        array = np.empty(shape, dtype)
        self._ffi.memmove(array, value.data, size)
        return array

    def _answer(self, plain: dict[str, Any], prediction: Prediction) -> Any:
        """Return an answer of C; it and what it points to stay until they are freed."""
        arrays = {
            name: np.asarray(array, order="C")
            for name, array in {**prediction.outputs, **prediction.arrays}.items()
            if array.dtype.kind in "biuf"
        }
        new = self._ffi.new
        values = new("mlms_value[]", len(arrays))
        answer = new("mlms_prediction *", {"count": len(arrays), "arrays": values})
        kept = [answer, values]

        def keep(made: Any) -> Any:
            kept.append(made)
            return made

        answer.json = keep(new("char[]", json.dumps(plain).encode()))
        for value, (name, array) in zip(values, arrays.items(), strict=True):
            value.name = keep(new("char[]", name.encode()))
            value.type = keep(new("char[]", element_type_of(array).encode()))
            value.rank = array.ndim
            value.shape = keep(new("int64_t[]", array.shape))
            value.data = keep(self._ffi.from_buffer(array))
        self._given[self._address(answer)] = kept
        return answer

    def _address(self, pointer: Any) -> int:
        return int(self._ffi.cast("intptr_t", pointer))

    def _path(self, text: Any) -> Path | None:
        return Path(os.fsdecode(self._bytes(text))) if text else None

    def _text(self, text: Any) -> str | None:
        """Return a string of C, which is UTF-8; None for NULL."""
        if not text:
            return None
        try:
            return self._bytes(text).decode()
        except UnicodeDecodeError as error:
            raise MlmsError(f"a text is not UTF-8 (byte {error.start}); write it so") from None

    def _bytes(self, text: Any) -> bytes:
        return bytes(self._ffi.string(self._ffi.cast("const char *", text)))


def _shown(value: Value) -> str:
    """Return what the JSON calls an input."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    return f"{len(value):,} bytes" if isinstance(value, bytes) else str(value)


def _given_of(found: list[tuple[str | None, Value]]) -> Given:
    """Return the inputs by their names; the only one may have none."""
    if len(found) == 1 and found[0][0] is None:
        return found[0][1]
    given: dict[str, Value] = {}
    for name, value in found:
        if name is None or name in given:
            problem = "an input of several has no name" if name is None else f"{name!r} comes twice"
            raise DatasetError(f"{problem}; name each once")
        given[name] = value
    return given
