"""Metadata of traces."""

from __future__ import annotations

from pytest_mlms.core.serialization import from_plain, to_plain
from pytest_mlms.measure.trace.records import LayerWork, Peaks, TraceMetadata


def test_facts_that_are_not_known_are_left_out_of_json() -> None:
    plain = to_plain(TraceMetadata("net"))
    assert "peaks" not in plain
    assert "peaks_unavailable" not in plain
    assert "structure_unavailable" not in plain


def test_metadata_is_read_back_from_json() -> None:
    metadata = TraceMetadata(
        manifest="net",
        static=(LayerWork("conv", "Conv", None, 8),),
        levels=("layer", "kernel"),
        peaks=Peaks(1e9, 2e9, "by hand"),
        structure_unavailable="no structure",
    )
    assert from_plain(TraceMetadata, to_plain(metadata)) == metadata
