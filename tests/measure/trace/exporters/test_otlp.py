"""OTLP/JSON files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.trace.exporters import otlp
from tests.support.traced_models import US, traced_model

ENCODER = "opentelemetry.exporter.otlp.proto.common.trace_encoder"
TRACED_AT = 5_000_000_000


def exported(tmp_path: Path, name: str = "item") -> dict[str, Any]:
    """Return the resource spans of a trace whose wall clock was 5 s ahead of its monotonic one."""
    pytest.importorskip(ENCODER)
    path = tmp_path / "trace.otlp.json"
    trace = traced_model(1, 100, wall_offset_ns=TRACED_AT)
    assert otlp.export(trace, path, name) == len(trace.spans)
    (resource,) = json.loads(path.read_text())["resourceSpans"]
    found: dict[str, Any] = resource
    return found


def spans_of(resource: dict[str, Any]) -> list[dict[str, Any]]:
    (scope,) = resource["scopeSpans"]
    spans: list[dict[str, Any]] = scope["spans"]
    return spans


def attributes_of(owner: dict[str, Any]) -> dict[str, Any]:
    attributes = {}
    for attribute in owner["attributes"]:
        (value,) = attribute["value"].values()
        attributes[attribute["key"]] = value
    return attributes


def test_kernels_lie_below_their_launches_and_layers(tmp_path: Path) -> None:
    spans = spans_of(exported(tmp_path))
    by_id = {span["spanId"]: span for span in spans}
    (gemm,) = [span for span in spans if span["name"] == "gemm"]
    launch = by_id[gemm["parentSpanId"]]
    layer = by_id[launch["parentSpanId"]]
    assert launch["name"] == "launch"
    assert layer["name"] == "conv1"


def test_ids_are_hexadecimal_and_kinds_are_numbers(tmp_path: Path) -> None:
    for span in spans_of(exported(tmp_path)):
        assert len(span["spanId"]) == 16
        assert int(span["spanId"], 16)
        assert len(span["traceId"]) == 32
        assert isinstance(span["kind"], int)


def test_times_are_those_of_the_wall_clock_when_it_was_traced(tmp_path: Path) -> None:
    spans = spans_of(exported(tmp_path))
    assert min(int(span["startTimeUnixNano"]) for span in spans) == TRACED_AT
    (gemm,) = [span for span in spans if span["name"] == "gemm"]
    assert int(gemm["endTimeUnixNano"]) - int(gemm["startTimeUnixNano"]) == 30 * US


def test_attributes_are_those_of_the_case_and_of_the_span(tmp_path: Path) -> None:
    resource = exported(tmp_path)
    of_case = attributes_of(resource["resource"])
    assert of_case["mlms.manifest"] == "net"
    assert of_case["mlms.case"] == "ort-cpu-b1"
    (copy,) = [span for span in spans_of(resource) if span["name"] == "memcpy"]
    of_copy = attributes_of(copy)
    assert of_copy["mlms.level"] == "kernel"
    assert of_copy["mlms.stream"] == "stream 7"
    assert of_copy["mlms.bytes"] == "512"


def test_the_id_of_a_trace_is_made_of_its_name(tmp_path: Path) -> None:
    first = spans_of(exported(tmp_path, "one item"))[0]["traceId"]
    again = spans_of(exported(tmp_path, "one item"))[0]["traceId"]
    other = spans_of(exported(tmp_path, "another item"))[0]["traceId"]
    assert first == again
    assert first != other


def test_without_the_sdk_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, ENCODER, None)
    with pytest.raises(MlmsError, match=r"pip install 'opentelemetry-exporter-otlp-proto-common>="):
        otlp.export(traced_model(1, 100), tmp_path / "trace.json", "item")


def test_a_trace_of_another_run_has_another_id(tmp_path: Path) -> None:
    pytest.importorskip(ENCODER)
    ids = set()
    for time in (TRACED_AT, TRACED_AT + 1):
        otlp.export(traced_model(1, 100, wall_offset_ns=time), tmp_path / "t.json", "item")
        (resource,) = json.loads((tmp_path / "t.json").read_text())["resourceSpans"]
        ids |= {span["traceId"] for span in spans_of(resource)}
    assert len(ids) == 2
