"""View of a model's structure."""

from __future__ import annotations

from pytest_mlms.show.pages.structure import structure_of
from tests.support.result_lines import line_of, traced
from tests.support.views import view_of


def test_the_structure_is_that_of_the_trace_for_its_batch() -> None:
    found = structure_of(view_of(traced(batch_size=8)))
    assert found is not None
    assert (found.framework, found.version, found.batch_size) == ("onnxruntime", "1.0.0", 8)
    assert dict(found.facts) == {
        "layers": "3",
        "parameters": "25.5 M",
        "multiply-accumulates": "4.09 G",
        "weights": "97.5 MiB",
        "outputs of all layers": "39.1 MiB",
        "most activations at once": "-",
    }


def test_items_without_a_trace_or_its_structure_have_none() -> None:
    assert structure_of(view_of(line_of())) is None
    without = traced()
    del without["trace"]["cost"]
    assert structure_of(view_of(without)) is None
