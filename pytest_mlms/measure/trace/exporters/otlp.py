"""OTLP/JSON files for OpenTelemetry, written by its own SDK's encoder.

Needs the extra ``otlp``. The trace of an item has a trace ID of its own. Spans are children of
their parents by ``find_parents``, so that a kernel lies below its layer. Takes 13 to 42 µs per
span.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.extras import install
from pytest_mlms.core.files import write_atomically
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.measure.trace import LEVELS
from pytest_mlms.measure.trace.correlate import parents_of
from pytest_mlms.measure.trace.records import TraceMetadata
from pytest_mlms.measure.trace.spans import Trace

SUFFIX = ".otlp.json"
DESCRIPTION = "OTLP/JSON of OpenTelemetry"

_IDS = ("traceId", "spanId", "parentSpanId")


def export(trace: Trace, path: Path, name: str) -> int:
    """Write the file atomically, with IDs made from ``name``; return the number of spans.

    Raises MlmsError without the SDK, and OSError where the file can't be written.
    """
    try:
        from google.protobuf.json_format import MessageToDict
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    except ImportError:
        raise MlmsError(f"the export needs OpenTelemetry's SDK; {install('otlp')}") from None
    spans = list(_spans(trace, name))
    encoded = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
    text = json.dumps(_with_hexadecimal_ids(encoded))
    write_atomically(path, text)
    return len(spans)


def _with_hexadecimal_ids(value: Any) -> Any:
    """Return the JSON with IDs in hexadecimal, as OTLP requires; protobuf writes them in base64."""
    if isinstance(value, list):
        return [_with_hexadecimal_ids(element) for element in value]
    if not isinstance(value, dict):
        return value
    converted = {}
    for key, element in value.items():
        if key in _IDS:
            converted[key] = b64decode(element).hex()
        else:
            converted[key] = _with_hexadecimal_ids(element)
    return converted


@dataclass(frozen=True)
class _SpanIds:
    """Makes the IDs of one trace."""

    trace_id: int

    @classmethod
    def of(cls, name: str) -> _SpanIds:
        digest = hashlib.sha256(name.encode()).digest()
        return cls(int.from_bytes(digest[:16], "big"))

    def context(self, index: int) -> Any:
        from opentelemetry.trace import SpanContext, TraceFlags

        flags = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(self.trace_id, index + 1, False, flags)

    def parent_context(self, index: int) -> Any:
        if index < 0:
            return None
        return self.context(index)


def _spans(trace: Trace, name: str) -> Iterator[Any]:
    """Yield the spans as the SDK has them, with times of the wall clock."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    ids = _SpanIds.of(f"{name} {trace.metadata.wall_offset_ns}")  # of no other run's trace
    resource = Resource(_resource_attributes(trace.metadata))
    scope = InstrumentationScope("pytest-mlms")
    names = trace.texts(trace.spans.name)
    offset = trace.metadata.wall_offset_ns
    starts = (trace.spans.start + offset).tolist()
    ends = (trace.spans.end + offset).tolist()
    for index, parent in enumerate(parents_of(trace).index.tolist()):
        yield ReadableSpan(
            name=names[index],
            context=ids.context(index),
            parent=ids.parent_context(parent),
            resource=resource,
            attributes=_span_attributes(trace, index),
            start_time=starts[index],
            end_time=ends[index],
            instrumentation_scope=scope,
        )


def _resource_attributes(metadata: TraceMetadata) -> dict[str, Any]:
    attributes: dict[str, Any] = {"service.name": "pytest-mlms"}
    for name, value in to_plain(metadata).items():
        if isinstance(value, (str, int, float)):
            attributes[f"mlms.{name}"] = value
    return attributes


def _span_attributes(trace: Trace, index: int) -> dict[str, str | int]:
    spans = trace.spans
    track = trace.tracks[spans.track[index]]
    run = trace.runs[spans.run[index]]
    attributes: dict[str, str | int] = {
        "mlms.level": LEVELS[spans.level[index]],
        "mlms.run": run.level,
    }
    if track.kind == "thread":
        attributes["thread.name"] = track.name
    else:
        attributes["mlms.stream"] = track.name
    if spans.type[index]:
        attributes["mlms.type"] = trace.strings[spans.type[index]]
    if spans.bytes[index] >= 0:
        attributes["mlms.bytes"] = int(spans.bytes[index])
    return attributes
