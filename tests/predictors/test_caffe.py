"""Caffe beside the contract: files on which it would end its process are refused before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_mlms.measure.agent.process import Refused
from tests.support.frameworks import FIRST_BYTES, FIRST_SHAPE, LAYERS, Framework, in_its_stack
from tests.support.project import DIGITS

GRAPH = DIGITS / "digits_cnn.prototxt"
WEIGHTS = DIGITS / "digits_cnn.caffemodel"


@pytest.fixture(scope="module")
def caffe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framework]:
    framework = in_its_stack("caffe", tmp_path_factory.mktemp("agent") / "log")
    yield framework
    framework.agent.close()


def test_layers_and_inner_outputs_are_the_prototxts(caffe: Framework) -> None:
    caffe.load(GRAPH, WEIGHTS)
    caffe.check()
    layers = caffe.layers()
    assert [layer.name for layer in layers] == list(caffe.inner())
    assert len(layers) == LAYERS
    first = layers[0]
    assert (first.name, first.type) == ("conv2d_0", "Convolution")
    assert (first.bytes, first.shape) == (FIRST_BYTES, FIRST_SHAPE)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
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
    caffe: Framework, tmp_path: Path, old: str, new: str, reason: str
) -> None:
    text = GRAPH.read_text()
    assert old in text
    changed = tmp_path / "net.prototxt"
    changed.write_text(text.replace(old, new))
    with pytest.raises(Refused, match=reason):
        caffe.load(changed, WEIGHTS)
    caffe.load(GRAPH, WEIGHTS)
    caffe.check()


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        ('type: "Python" python_param {module: "os" layer: "system"}', "is code; allow it with"),
        (
            'type: "HDF5Output" hdf5_output_param {file_name: "out.h5"}',
            "files that no digest covers",
        ),
        ('type: "Data" data_param {source: "db"}', "files that no digest covers"),
    ],
)
def test_layers_that_are_code_or_have_other_files_are_refused(
    caffe: Framework, tmp_path: Path, layer: str, reason: str
) -> None:
    changed = tmp_path / "net.prototxt"
    changed.write_text(f'{GRAPH.read_text()}\nlayer {{name: "evil" {layer}}}\n')
    with pytest.raises(Refused, match=f"layer 'evil' .*{reason}"):
        caffe.load(changed, WEIGHTS)


def test_old_layers_with_other_files_are_refused(caffe: Framework, tmp_path: Path) -> None:
    changed = tmp_path / "net.prototxt"
    changed.write_text('layers {name: "evil" type: IMAGE_DATA image_data_param {source: "db"}}\n')
    with pytest.raises(Refused, match="files that no digest covers"):
        caffe.load(changed, WEIGHTS)


def test_the_threads_of_matrix_products_change_with_each_load(caffe: Framework) -> None:
    for threads in (1, 2, 1):
        assert caffe.load(GRAPH, WEIGHTS, threads=threads)["threads"] == threads
