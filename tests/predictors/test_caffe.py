"""Caffe beside the contract: what would end its process is refused before it gets it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_mlms.agent.process import Refused
from tests.support.frameworks import LAYERS, Framework, in_its_stack
from tests.support.project import DIGITS

GRAPH, WEIGHTS = DIGITS / "digits_cnn.prototxt", DIGITS / "digits_cnn.caffemodel"


@pytest.fixture(scope="module")
def caffe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framework]:
    framework = in_its_stack("caffe", tmp_path_factory.mktemp("agent") / "log")
    yield framework
    framework.agent.close()


def test_layers_and_inner_outputs_are_the_prototxts(caffe: Framework) -> None:
    caffe.load(GRAPH, WEIGHTS)
    caffe.check()
    layers, inner = caffe.layers(), caffe.inner()
    assert [layer[0] for layer in layers] == list(inner)
    assert len(layers) == LAYERS
    assert layers[0][:2] == ["conv2d_0", "Convolution"]
    assert layers[0][4:] == [8 * 16 * 8 * 8 * 4, [8, 16, 8, 8]]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "num_output: 32",
            "num_output: 31",
            r"layer 'conv2d_2' takes \[4464, 31\] weights, and .* has \[4608, 32\]",
        ),
        ('name: "conv2d_5"', 'name: "other"', "layer 'other' takes .* weights, and .* has none"),
    ],
)
def test_weights_that_do_not_fit_are_refused_and_the_agent_lives_on(
    caffe: Framework, tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in GRAPH.read_text()
    (tmp_path / "net.prototxt").write_text(GRAPH.read_text().replace(old, new))
    with pytest.raises(Refused, match=said):
        caffe.load(tmp_path / "net.prototxt", WEIGHTS)
    caffe.load(GRAPH, WEIGHTS)
    caffe.check()


def test_threads_are_those_of_the_matrix_products(caffe: Framework) -> None:
    assert [caffe.load(GRAPH, WEIGHTS, threads=count)["threads"] for count in (1, 2, 1)] == [
        1,
        2,
        1,
    ]
