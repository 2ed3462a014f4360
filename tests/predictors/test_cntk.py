"""CNTK beside the contract: its nodes as layers, and threads that stay once something ran."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_mlms.agent.process import Refused
from tests.support.frameworks import (
    FIRST_BYTES,
    FIRST_SHAPE,
    Framework,
    assert_close,
    in_its_stack,
    reference,
)
from tests.support.project import DIGITS

GRAPH = DIGITS / "digits_cnn.model"


@pytest.fixture
def cntk(tmp_path: Path) -> Iterator[Framework]:
    """A fresh agent each: CNTK keeps its threads once something ran."""
    framework = in_its_stack("cntk", tmp_path / "log")
    yield framework
    framework.agent.close()


def test_layers_and_inner_outputs_are_its_nodes(cntk: Framework) -> None:
    cntk.load(GRAPH)
    cntk.check()
    layers = cntk.layers()
    inner = cntk.inner()
    assert [layer.name for layer in layers] == list(inner)
    first = layers[0]
    assert first.type == "Convolution"
    assert (first.bytes, first.shape) == (FIRST_BYTES, FIRST_SHAPE)
    assert_close(inner["logits"], reference())


def test_threads_can_change_until_something_ran(cntk: Framework) -> None:
    for threads in (2, 1):
        assert cntk.load(GRAPH, threads=threads)["threads"] == threads
    cntk.check()
    with pytest.raises(Refused, match="CNTK has run with 1 threads here and can't change that"):
        cntk.load(GRAPH, threads=2)
    assert cntk.load(GRAPH, threads=1)["threads"] == 1
    cntk.check()
