"""A trace as OpenTelemetry's OTLP/JSON, by its own SDK's encoder: the extra ``otlp``.

A trace id for each item; the parents are those of find_parents, so that a kernel hangs below its
layer. An export for other tools: 13 to 42 us a span.
"""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_mlms.errors import MlmsError
from pytest_mlms.trace import LEVELS
from pytest_mlms.trace.spans import Trace
from pytest_mlms.trace.tables import parents_of

__all__ = ["write_otlp"]


def write_otlp(trace: Trace, path: Path, seed: str) -> int:
    """Write one trace, whole or not at all, its ids made from ``seed``; return the number of spans.

    Raises MlmsError without the SDK, and where the file can't be written.
    """
    try:
        from google.protobuf.json_format import MessageToDict
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    except ImportError:
        raise MlmsError(
            "the export needs OpenTelemetry's SDK; pip install 'pytest-mlms[otlp]'"
        ) from None
    spans = list(_spans(trace, seed))
    encoded = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(json.dumps(_in_hex(encoded)), encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise MlmsError(
            f"{path} can't be written: {error.strerror}; make room, or name another folder"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return len(spans)


def _in_hex(value: Any) -> Any:
    """Return the JSON with ids in hexadecimal, as OTLP wants them.

    Protobuf's own JSON has them in base64.
    """
    if isinstance(value, list):
        return [_in_hex(one) for one in value]
    if not isinstance(value, dict):
        return value
    ids = ("traceId", "spanId", "parentSpanId")
    return {key: b64decode(one).hex() if key in ids else _in_hex(one) for key, one in value.items()}


def _spans(trace: Trace, seed: str) -> Iterator[Any]:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, TraceFlags

    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:16], "big")
    offset = trace.about["wall_offset_ns"]  # OTLP's times are the wall clock's
    resource = Resource({"service.name": "pytest-mlms", **_plain(trace.about)})
    scope = InstrumentationScope("pytest-mlms")
    parents, spans = parents_of(trace).index.tolist(), trace.spans

    def context(index: int) -> Any:
        return SpanContext(number, index + 1, False, TraceFlags(TraceFlags.SAMPLED))

    for index, parent in enumerate(parents):
        yield ReadableSpan(
            name=trace.strings[spans.name[index]],
            context=context(index),
            parent=context(parent) if parent >= 0 else None,
            resource=resource,
            attributes=dict(_attributes(trace, index)),
            start_time=int(spans.start[index]) + offset,
            end_time=int(spans.end[index]) + offset,
            instrumentation_scope=scope,
        )


def _plain(about: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"mlms.{name}": value
        for name, value in about.items()
        if isinstance(value, (str, int, float))
    }


def _attributes(trace: Trace, index: int) -> Iterator[tuple[str, str | int]]:
    spans, track = trace.spans, trace.tracks[trace.spans.track[index]]
    yield "mlms.level", LEVELS[spans.level[index]]
    yield "mlms.run", str(trace.runs[spans.run[index]]["level"])
    yield "thread.name" if track.kind == "thread" else "mlms.stream", track.name
    if spans.type[index]:
        yield "mlms.type", trace.strings[spans.type[index]]
    if spans.bytes[index] >= 0:
        yield "mlms.bytes", int(spans.bytes[index])
