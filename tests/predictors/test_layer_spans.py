"""The layers of a call add up to the call, and have the model's names, in every framework.

The model is a CNN on 32 x 32 images, and AlexNet where MLMS_TEST_ALEXNET is set: it is 240 MB in
each format. A framework runs in its stack where that is made (``bash ci/stacks NAME``). A framework
that is nowhere is skipped, and one that runs on a GPU alone where there is none.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from mlms_predictors import Profile

from tests.support import networks
from tests.support.frameworks import Framework, in_its_stack, layer_seconds, stack_launch
from tests.support.networks import ALEXNET, CNN32, Network
from tests.support.project import ROOT

CHOSEN = os.environ.get("MLMS_TEST_FRAMEWORKS", "").split()
PREDICTORS = sorted((ROOT / "predictors").glob("[a-z]*.py"))
PROFILED = CHOSEN or [path.stem for path in PREDICTORS]
WITH_ALEXNET = bool(os.environ.get("MLMS_TEST_ALEXNET"))
OWN_NAMES = {
    "jax": "XLA names what it compiles by itself",
    "tensorflow": "its graph names operators by their type",
    "tflite": "XNNPACK names operators by their kernels",
}

STEPWISE = ("caffe", "caffe2", "mxnet", "pytorch")
"""Frameworks whose layers run one by one, with counters between them."""

CALLS = 4
SMALLEST_SHARE = 0.90
LARGEST_SHARE = 1.05
SECONDS = 600
"""How long a busy machine may take until one call is undisturbed."""

pytestmark = pytest.mark.slow


class Subject(NamedTuple):
    """An agent of a framework with one of the networks in it."""

    framework: Framework
    network: Network

    def profiles(self) -> list[Profile]:
        return self.framework.profiles(CALLS, self.network.images)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The networks as ONNX files, by name."""
    folder = tmp_path_factory.mktemp("networks")
    written = [CNN32]
    if WITH_ALEXNET:
        written.append(ALEXNET)
    return {network.name: networks.write(network, folder) for network in written}


@pytest.fixture(scope="module", params=PROFILED)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=[CNN32, ALEXNET], ids=lambda network: network.name)
def subject(
    request: pytest.FixtureRequest,
    name: str,
    files: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Subject]:
    network: Network = request.param
    if network is ALEXNET and not WITH_ALEXNET:
        pytest.skip("AlexNet is 240 MB in each format; set MLMS_TEST_ALEXNET=1")
    folder = tmp_path_factory.mktemp(name)
    framework = in_its_stack(name, folder / "log")
    try:
        if "cpu" not in framework.hello["devices"]:
            pytest.skip(f"{name} has no layers to show without a GPU")
        converter = stack_launch(networks.CONVERTED_IN.get(name, name))
        made = networks.convert(files[network.name], name, converter, folder)
        framework.load_files(made, options=network.options.get(name))
        yield Subject(framework, network)
    finally:
        framework.agent.close()
        shutil.rmtree(folder)


def test_the_layers_together_take_the_time_of_the_call(
    subject: Subject, name: str, record_property: Callable[[str, object], None]
) -> None:
    """The quickest call is checked, as a busy machine stops others between two layers.

    More calls are made where none was quick.
    """
    quickest = float("inf")
    share = 0.0
    deadline = time.monotonic() + SECONDS
    while not SMALLEST_SHARE <= share <= LARGEST_SHARE and time.monotonic() < deadline:
        for profile in subject.profiles():
            seconds = profile.end - profile.start
            if seconds < quickest:
                quickest = seconds
                share = layer_seconds(profile) / seconds
    milliseconds = quickest * 1e3
    message = f"{name}, {subject.network.name}: {share:.1%} of {milliseconds:.2f} ms"
    record_property("share", message)
    print(message)
    assert SMALLEST_SHARE <= share <= LARGEST_SHARE, message


def test_the_layers_have_the_names_of_the_model(subject: Subject, name: str) -> None:
    """ONNX Runtime calls a layer that it fused by its last part."""
    if name in OWN_NAMES:
        pytest.skip(OWN_NAMES[name])
    names = [layer.name for layer in subject.profiles()[-1].layers]
    for number in range(1, subject.network.convolutions + 1):
        expected = (f"conv{number}", f"relu{number}")
        assert any(part in name for name in names for part in expected), names
    assert any("logits" in name for name in names), names


def test_counters_are_read_around_each_layer_where_layers_run_one_by_one(
    subject: Subject, name: str
) -> None:
    fields = {"level": "layer+hardware", "probes": ["io"], "count": 2, "plain": 1, "options": {}}
    images = [("image", subject.network.images)]
    facts, arrays = subject.framework.agent.request("trace", fields, images)
    status = {probe["probe"]: probe for probe in facts["probes"]}
    assert status["layers"]["stepwise"] == (name in STEPWISE)
    if name not in STEPWISE or not status["io"]["available"]:
        return
    is_layer = arrays["span_level"] == facts["levels"].index("layer")
    readings = np.sort(arrays["time_0"])
    before_start = np.searchsorted(readings, arrays["span_start"][is_layer], "right")
    before_end = np.searchsorted(readings, arrays["span_end"][is_layer], "left")
    assert (before_start == before_end).all(), "no reading is inside of a layer"
    assert before_start.min() > 0
    assert before_end.max() < len(readings)
    assert (np.diff(before_start) > 0).all(), "there is one between each two"
