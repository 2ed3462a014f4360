"""Spans are columns, and one file keeps them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.errors import MlmsError
from pytest_mlms.trace import LEVELS
from pytest_mlms.trace.builder import TraceBuilder
from pytest_mlms.trace.metadata import TraceMetadata
from pytest_mlms.trace.runs import TraceRun
from pytest_mlms.trace.spans import (
    CounterSeries,
    Spans,
    Trace,
    Track,
)
from pytest_mlms.trace.storage import load_trace, save_trace


def example(count: int = 3) -> Trace:
    builder = TraceBuilder(TraceMetadata("digits"))
    builder.add_run(TraceRun("layer"))
    track = builder.track(Track(0, 10, 11, "main", "thread"))
    start = 10**15 + np.arange(count) * 100
    builder.add(
        level=2,
        name=builder.texts(["conv"] * count),
        start=start,
        end=start + 50,
        track=track,
        run=0,
        bytes=128,
    )
    builder.count(CounterSeries("power", "W", 0), start, np.arange(count) * 1.5)
    return builder.build()


def test_a_text_or_a_track_is_stored_once() -> None:
    trace = example()
    assert trace.strings == ("", "conv")
    assert trace.texts(trace.spans.name) == ["conv"] * 3
    assert len(trace.tracks) == 1


def test_columns_that_are_left_out_say_so() -> None:
    spans = example().spans
    assert spans.correlation.tolist() == [0, 0, 0]
    assert spans.request.tolist() == [-1, -1, -1]
    assert spans.bytes.tolist() == [128, 128, 128]


def test_an_unknown_column_is_an_error() -> None:
    with pytest.raises(TypeError, match="colour"):
        Spans.of(level=1, name=0, start=[1], end=[2], track=0, run=0, colour=3)


def test_spans_can_be_joined_and_taken_apart() -> None:
    spans = example().spans
    twice = Spans.join([spans, spans])
    assert len(twice) == 6
    assert twice.take(np.array([5])).start.tolist() == [spans.start[2]]
    assert len(Spans.join([])) == 0
    assert twice.at("layer").all()
    assert not twice.at("kernel").any()


@given(st.lists(st.text(), max_size=20), st.integers(0, len(LEVELS) - 1))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], level: int
) -> None:
    builder = TraceBuilder(TraceMetadata(batch_size=len(names)))
    builder.add_run(TraceRun(LEVELS[level]))
    track = builder.track(Track(0, 1, 2, "é", "stream"))
    start = np.arange(len(names), dtype="i8") + 2**53 + 1
    builder.add(
        level=level, name=builder.texts(names), start=start, end=start + 1, track=track, run=0
    )
    path = tmp_path_factory.mktemp("trace") / "trace.npz"
    save_trace(builder.build(), path)
    back = load_trace(path)
    assert back.texts(back.spans.name) == names
    assert back.spans.start.tolist() == start.tolist()
    assert (back.tracks, back.runs, back.metadata) == (
        (Track(0, 1, 2, "é", "stream"),),
        builder.build().runs,
        builder.metadata,
    )


def test_the_run_of_a_level_is_the_last_that_counts() -> None:
    builder = TraceBuilder()
    builder.runs += [
        TraceRun("layer"),
        TraceRun("kernel"),
        TraceRun("kernel", void="the next one counts"),
    ]
    trace = builder.build()
    assert (trace.run_at("kernel"), trace.run_at("hardware")) == (1, None)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"\x93NUMPY", b"{}"])
def test_a_file_that_is_no_trace_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace.npz"
    path.write_bytes(content)
    with pytest.raises(MlmsError, match=r"trace\.npz is no trace") as told:
        load_trace(path)
    assert "pickle" not in str(told.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(MlmsError, match="No such file"):
        load_trace(tmp_path / "trace.npz")


def test_a_trace_that_was_cut_off_while_writing_leaves_the_last_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "trace.npz"
    save_trace(example(2), path)
    (tmp_path / ".trace.npz.tmp").write_bytes(b"half of the next one")
    assert len(load_trace(path).spans) == 2
    save_trace(example(5), path)
    assert len(load_trace(path).spans) == 5
