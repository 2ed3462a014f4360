"""The layers of a run and their keys."""

from __future__ import annotations

from pytest_mlms.measure.trace.tables import LayerKey, layers_of_run
from tests.support.traces import TraceWriter


def test_layers_of_one_name_are_told_apart_by_their_occurrence_in_a_request() -> None:
    writer = TraceWriter()
    run = writer.run("layer")
    for request in range(2):
        run.request = request
        at = 100 * request
        run.layer("relu", at, at + 5)
        run.layer("relu", at + 10, at + 15)
    layers = layers_of_run(writer.build(), 0)
    assert layers.keys == [LayerKey("relu", "T", 0), LayerKey("relu", "T", 1)] * 2
    spans_by_key = layers.by_key()
    assert spans_by_key[LayerKey("relu", "T", 1)].tolist() == [1, 3]


def test_a_block_that_holds_layers_counts_once() -> None:
    writer = TraceWriter()
    run = writer.run("layer")
    run.layer("block", 0, 100)
    run.layer("conv", 10, 50)
    run.layer("fc", 100, 120)
    layers = layers_of_run(writer.build(), 0)
    assert [key.name for key in layers.keys] == ["block", "fc"]


def test_layers_outside_of_any_request_do_not_count() -> None:
    writer = TraceWriter()
    writer.run("layer").layer("warm-up", 0, 5, request=-1)
    assert layers_of_run(writer.build(), 0).keys == []


def test_there_are_no_layers_without_a_run() -> None:
    layers = layers_of_run(TraceWriter().build(), None)
    assert layers.keys == []
    assert len(layers.spans) == 0
