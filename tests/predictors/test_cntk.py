"""CNTK beside the contract: nodes as it made them, and threads that it can't change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.agent.process import Refused
from tests.support.frameworks import in_its_stack, reference
from tests.support.project import DIGITS

GRAPH = DIGITS / "digits_cnn.model"


def test_layers_are_its_nodes_and_threads_stay_once_something_ran(tmp_path: Path) -> None:
    cntk = in_its_stack("cntk", tmp_path / "log")
    assert [cntk.load(GRAPH, threads=count)["threads"] for count in (2, 1)] == [2, 1]
    cntk.check()
    layers, inner = cntk.layers(), cntk.inner()
    assert [layer[0] for layer in layers] == list(inner)
    assert layers[0][1] == "Convolution"
    assert layers[0][4:] == [8 * 16 * 8 * 8 * 4, [8, 16, 8, 8]]
    np.testing.assert_allclose(inner["logits"], reference(), rtol=1e-4, atol=1e-5)
    with pytest.raises(Refused, match="CNTK has run with 1 threads here and can't change that"):
        cntk.load(GRAPH, threads=2)
    assert cntk.load(GRAPH, threads=1)["threads"] == 1
    cntk.check()
    cntk.agent.close()
