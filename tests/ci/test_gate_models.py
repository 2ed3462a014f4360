"""Models of the study of the upgrade gate."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.decide.upgrade.rounds import Array
from tests.support.project import DIGITS, ROOT

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
sys.path.insert(0, str(ROOT / "ci"))

from gate_models import Network, load_digits, with_extra_work, with_plain_names  # noqa: E402

BATCH = {"x": np.random.default_rng(1).random((4, 1, 8, 8), np.float32)}


def run(file: Path) -> Array:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["y"], BATCH)[0])


@pytest.fixture
def network(tmp_path: Path) -> Network:
    model = with_plain_names(load_digits(DIGITS))
    return Network("digits", model, BATCH, tmp_path)


def test_extra_work_does_not_change_the_output(network: Network) -> None:
    assert (run(network.file(0)) == run(network.file(5000))).all()


def test_extra_work_is_made_of_layers_that_begin_at_the_input(network: Network) -> None:
    more = with_extra_work(network.graph, 5000)
    added = more.graph.node[len(network.graph.graph.node) :]
    assert [node.op_type for node in added][:2] == ["Reshape", "Gather"]
    assert added[0].input[0] == "x"
    assert added[-1].output[0] == "y"
    sizes = {tensor.name: list(tensor.dims) for tensor in more.graph.initializer}
    assert sizes["extra_ramp"] == [5000]


def test_no_extra_work_is_the_model_itself(network: Network) -> None:
    assert with_extra_work(network.graph, 0) == network.graph


def test_the_file_of_a_variant_is_made_once(network: Network) -> None:
    file = network.file(10)
    file.write_bytes(b"kept")
    assert network.file(10).read_bytes() == b"kept"
