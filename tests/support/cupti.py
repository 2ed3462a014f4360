"""A stub of NVIDIA's libcupti below the real cupti-python: tests launch kernels without a GPU.

``@without_gpu`` runs a test in a process of its own, as the libraries stay loaded, and gives it the
``Cupti`` of that process.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

__all__ = ["Cupti", "compile_cupti", "without_gpu"]

_INSIDE = "from {0.__module__} import {0.__name__} as test; from tests.support import cupti; cupti.inside(test)"
_FOLDER = "MLMS_STUB_CUPTI"


def without_gpu(test: Callable[[Cupti], None]) -> Callable[[Path], None]:
    """Make a test of one that takes a ``Cupti``."""

    def test_in_a_process(driver_libraries: Path) -> None:
        compile_cupti(driver_libraries)
        folder = str(driver_libraries)
        env = {**os.environ, _FOLDER: folder, "LD_LIBRARY_PATH": folder}
        command = [sys.executable, "-c", _INSIDE.format(test)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr

    functools.update_wrapper(test_in_a_process, test)
    vars(test_in_a_process)["inside"] = vars(test_in_a_process).pop("__wrapped__")
    return test_in_a_process


def compile_cupti(folder: Path) -> Path:
    """Return the library, compiled once into a folder; skip where cupti-python isn't installed."""
    pytest.importorskip("cupti", reason="cupti-python isn't installed")
    library = folder / "libcupti.so.13"
    if not library.exists():
        source = Path(__file__).with_name("driver") / "cupti.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def inside(test: Any) -> None:
    """Run a test in this process."""
    folder = Path(os.environ[_FOLDER])
    stub = ctypes.CDLL(str(folder / "libcupti.so.13"), ctypes.RTLD_GLOBAL)
    test.inside(Cupti(stub))


class Cupti:
    """The stub, and the real package above it."""

    def __init__(self, stub: Any) -> None:
        from cupti import cupti

        self.stub = stub
        self.package = cupti
        self._kept: list[Any] = []
        stub.stub_top.restype = ctypes.c_uint64

    def launch(self, name: str, correlation: int = 9, graph: int = 0) -> None:
        """Launch a kernel, as a framework does: a call of the runtime, and what the GPU runs."""
        self._note_numbers(correlation)
        thread = threading.get_ident() & 0xFFFFFFFF
        self._add(5, "api", cbid=211, thread_id=thread, correlation_id=correlation)
        text = ctypes.create_string_buffer(name.encode())
        self._kept.append(text)
        where = {"stream_id": 7, "correlation_id": correlation, "graph_id": graph}
        self._add(10, "kernel", name=ctypes.addressof(text), **where)

    def copy(self, size: int, correlation: int = 10) -> None:
        """Copy bytes to the device."""
        self._note_numbers(correlation)
        where = {"stream_id": 7, "correlation_id": correlation}
        self._add(1, "memcpy", copy_kind=1, bytes=size, **where)

    def take_over(self) -> None:
        """Do what Kineto does when it starts: take the callbacks, and leave nothing enabled."""
        function = ctypes.CFUNCTYPE(None)(lambda: None)
        self._kept.append(function)
        self.stub.cuptiActivityRegisterCallbacks(function, function)
        for kind in range(64):
            self.stub.cuptiActivityDisable(kind)

    def _note_numbers(self, correlation: int) -> None:
        for kind in (3, 4, 5):
            number = self.stub.stub_top(kind)
            if number:
                facts = {"external_kind": kind, "external_id": number}
                self._add(39, "external_correlation", correlation_id=correlation, **facts)

    def _add(self, kind: int, record: str, **fields: int) -> None:
        """Add a record of the package's own newest layout."""
        pattern = re.compile(rf"activity_{record}(\d*)_dtype")
        layouts = {
            int(found[1] or 0): name
            for name in vars(self.package)
            if (found := pattern.fullmatch(name))
        }
        layout = layouts[max(layouts)]
        data = np.zeros(1, getattr(self.package, layout))
        data["kind"] = kind
        if "start" in data.dtype.names:
            fields["start"] = time.time_ns()
            fields["end"] = fields["start"] + 500
        for name, value in fields.items():
            data[name] = value
        address = data.ctypes.data_as(ctypes.c_void_p)
        self.stub.stub_add(kind, address, ctypes.c_size_t(data.itemsize))
