"""Trace files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.trace import LEVELS
from pytest_mlms.measure.trace.builder import TraceBuilder
from pytest_mlms.measure.trace.records import LayerWork, Peaks, ProbeStatus, TraceMetadata, TraceRun
from pytest_mlms.measure.trace.spans import Trace, Track
from pytest_mlms.measure.trace.storage import load_trace, save_trace
from tests.support.traces import TraceWriter

METADATA = TraceMetadata(
    manifest="net",
    case="ort-cpu-b1",
    static=(LayerWork("conv", "Conv", 10, None),),
    levels=("layer",),
    peaks=Peaks(1e9, 2e9, "by hand"),
)
PERF = ProbeStatus("perf", True, missing={"cycles": "no such counter"})


def example(count: int = 3) -> Trace:
    writer = TraceWriter(METADATA)
    run = writer.run("layer", calls=count, plain_us=5.0, probes=(PERF,), process=77)
    for number in range(count):
        run.layer("conv", number * 100, number * 100 + 50)
    run.count("power", "W", [(5, 1.5), (10, 2.5)])
    return writer.build()


@pytest.mark.parametrize("column", ["name", "type", "shape", "track", "run", "level"])
def test_an_index_that_is_not_there_is_an_error(tmp_path: Path, column: str) -> None:
    trace = example()
    trace.spans.column(column)[0] = 99
    save_trace(trace, tmp_path / "trace.npz")
    with pytest.raises(MlmsError, match=f"column {column} of its spans has an index that is not"):
        load_trace(tmp_path / "trace.npz")


def tables_of(path: Path) -> dict[str, Any]:
    with np.load(path) as file:
        tables: dict[str, Any] = json.loads(file["tables"].tobytes())
    return tables


@given(st.lists(st.text(), max_size=20), st.integers(0, len(LEVELS) - 1))
def test_a_saved_trace_is_loaded_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], level: int
) -> None:
    builder = TraceBuilder(TraceMetadata("é"))
    builder.add_run(TraceRun(LEVELS[level]))
    track = builder.track(Track(0, 1, 2, "é", "stream"))
    start = np.arange(len(names), dtype="i8") + 2**53 + 1
    name = builder.texts(names)
    builder.add(level=level, name=name, start=start, end=start + 1, track=track, run=0)
    path = tmp_path_factory.mktemp("trace") / "trace.npz"
    save_trace(builder.build(), path)
    back = load_trace(path)
    assert back.texts(back.spans.name) == names
    assert back.spans.start.tolist() == start.tolist()
    assert back.tracks == (Track(0, 1, 2, "é", "stream"),)
    assert back.metadata == builder.metadata


def test_records_are_loaded_as_records(tmp_path: Path) -> None:
    path = tmp_path / "trace.npz"
    trace = example()
    save_trace(trace, path)
    back = load_trace(path)
    assert back.runs == trace.runs
    assert back.metadata == METADATA
    assert back.series == trace.series
    assert back.counters.value.tolist() == [1.5, 2.5]


def test_the_keys_of_runs_and_metadata_are_those_of_the_documentation(tmp_path: Path) -> None:
    path = tmp_path / "trace.npz"
    save_trace(example(), path)
    tables = tables_of(path)
    assert tables["tracks"] == [[0, 100, 1, "main", "thread"]]
    (run,) = tables["runs"]
    assert list(run) == [
        "level",
        "calls",
        "plain_us",
        "traced_us",
        "overhead",
        "probes",
        "fault",
        "serialised",
        "process",
    ]
    assert run["probes"] == [
        {
            "probe": "perf",
            "available": True,
            "reason": "",
            "missing": {"cycles": "no such counter"},
            "fault": "",
        }
    ]
    assert tables["about"]["peaks"] == {"flops": 1e9, "bytes": 2e9, "how": "by hand"}
    assert tables["about"]["static"] == [
        {"name": "conv", "type": "Conv", "flops": 10, "bytes": None}
    ]


def test_a_file_of_an_earlier_version_is_loaded(tmp_path: Path) -> None:
    """Earlier versions wrote requests of this side without latencies, and no column external."""
    path = tmp_path / "trace.npz"
    save_trace(example(1), path)
    with np.load(path) as file:
        arrays = dict(file)
    tables = json.loads(arrays["tables"].tobytes())
    tables["runs"] = [{"level": "application", "calls": 5, "process": 9}]
    tables["about"] = {"manifest": "net", "case": "c", "static": [], "wall_offset_ns": 7}
    del arrays["span_external"]
    arrays["tables"] = np.frombuffer(json.dumps(tables).encode(), "u1")
    np.savez(path, **arrays)
    trace = load_trace(path)
    assert trace.runs == (TraceRun("application", calls=5, process=9),)
    assert trace.metadata.wall_offset_ns == 7
    assert trace.spans.external.tolist() == [0]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"\x93NUMPY", b"{}"])
def test_another_file_is_an_error_without_advice_to_unpickle_it(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "trace.npz"
    path.write_bytes(content)
    with pytest.raises(MlmsError, match=r"trace\.npz is no trace") as error:
        load_trace(path)
    assert "pickle" not in str(error.value)


def test_a_trace_that_is_cut_off_anywhere_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "trace.npz"
    save_trace(example(), path)
    content = path.read_bytes()
    for size in range(0, len(content), 7):
        path.write_bytes(content[:size])
        with pytest.raises(MlmsError, match=r"trace\.npz is no trace of pytest-mlms"):
            load_trace(path)


def test_tables_that_are_nested_too_deeply_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "trace.npz"
    np.savez(path, tables=np.frombuffer(b"[" * 100_000, "u1"))
    with pytest.raises(MlmsError, match="no trace of pytest-mlms: it is nested too deeply"):
        load_trace(path)


def test_a_run_of_the_wrong_form_is_an_error_that_names_the_field(tmp_path: Path) -> None:
    path = tmp_path / "trace.npz"
    save_trace(example(1), path)
    with np.load(path) as file:
        arrays = dict(file)
    tables = json.loads(arrays["tables"].tobytes())
    tables["runs"][0]["calls"] = "many"
    arrays["tables"] = np.frombuffer(json.dumps(tables).encode(), "u1")
    np.savez(path, **arrays)
    with pytest.raises(MlmsError, match="no trace of pytest-mlms: calls: "):
        load_trace(path)


def test_another_format_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "trace.npz"
    tables = np.frombuffer(b'{"format": 2}', "u1")
    np.savez(path, tables=tables)
    with pytest.raises(MlmsError, match="has format 2; this version reads format 1"):
        load_trace(path)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MlmsError, match="No such file"):
        load_trace(tmp_path / "trace.npz")


def test_a_trace_replaces_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "trace.npz"
    save_trace(example(2), path)
    save_trace(example(5), path)
    assert len(load_trace(path).spans) == 5
    assert list(tmp_path.iterdir()) == [path]
