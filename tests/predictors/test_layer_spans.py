"""The layers of a call together are the call, and have the model's names: what each framework's
profiler tells.

Of a CNN on 32 x 32 images, and of AlexNet where MLMS_TEST_ALEXNET is set: it is 240 MB in each
format. A framework runs in its stack where that is made (``bash ci/stacks NAME``); what is nowhere,
and what runs on a GPU alone where there is none, is skipped.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import networks
from tests.support.frameworks import Framework, in_its_stack, launch_of
from tests.support.networks import ALEXNET, CNN32, Network
from tests.support.project import ROOT

CHOSEN = os.environ.get("MLMS_TEST_FRAMEWORKS", "").split()
PROFILED = [
    path.stem
    for path in sorted((ROOT / "predictors").glob("[a-z]*.py"))
    if "\ndef layers(" in path.read_text() and (not CHOSEN or path.stem in CHOSEN)
]
OWN_NAMES = {
    "jax": "XLA names what it compiles by itself",
    "tensorflow": "its graph names operators by their type",
    "tflite": "XNNPACK names operators by their kernels",
}

STEPWISE = ("caffe", "caffe2", "mxnet", "pytorch")
"""Frameworks whose layers run one by one, with counters between them."""

CALLS = 4
LEAST, MOST = 0.90, 1.05

pytestmark = pytest.mark.slow


class Subject:
    """An agent of a framework with one of the networks in it."""

    def __init__(self, framework: Framework, network: Network) -> None:
        self.framework, self.network = framework, network
        self.images = network.images

    def profiles(self) -> list[Any]:
        sent = [("image", self.images)]
        found: list[Any] = self.framework.agent.request("profile", {"count": CALLS}, sent).facts[
            "profiles"
        ]
        return found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("networks")
    wanted = (CNN32, ALEXNET) if os.environ.get("MLMS_TEST_ALEXNET") else (CNN32,)
    return {network.name: networks.write(network, folder) for network in wanted}


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
    network, folder = request.param, tmp_path_factory.mktemp(name)
    if network is ALEXNET and not os.environ.get("MLMS_TEST_ALEXNET"):
        pytest.skip("AlexNet is 240 MB in each format; set MLMS_TEST_ALEXNET=1")
    framework = in_its_stack(name, folder / "log")
    try:
        if "cpu" not in framework.hello["devices"]:
            pytest.skip(f"{name} has no layers to show without a GPU")
        maker = networks.CONVERTED_IN.get(name, name)
        launch = launch_of(maker)
        if launch is None:
            pytest.skip(
                f"{maker} makes the files of {name}, and no stack of it is made; bash ci/stacks {maker} makes it"
            )
        framework.load(
            **networks.convert(files[network.name], name, launch, folder),
            **network.options.get(name, {}),
        )
        yield Subject(framework, network)
    finally:
        framework.agent.close()
        shutil.rmtree(folder)


def test_the_layers_take_together_what_the_call_takes(
    subject: Subject, name: str, record_property: Any
) -> None:
    """Of the quickest call, as a busy machine stops others between two layers.

    More calls where none was quick.
    """
    best, share, deadline = float("inf"), 0.0, time.monotonic() + 600
    while not LEAST <= share <= MOST and time.monotonic() < deadline:
        for start, end, layers in subject.profiles():
            if end - start < best:
                best, share = (
                    end - start,
                    sum(layer[3] - layer[2] for layer in layers) / (end - start),
                )
    told = f"{name}, {subject.network.name}: {share:.1%} of {best * 1e3:.2f} ms"
    record_property("share", told)
    print(told)
    assert LEAST <= share <= MOST, told


def test_the_layers_have_the_names_of_the_model(subject: Subject, name: str) -> None:
    if name in OWN_NAMES:
        pytest.skip(OWN_NAMES[name])
    _, _, layers = subject.profiles()[-1]
    for number in range(
        1, subject.network.convolutions + 1
    ):  # ONNX Runtime calls what it fused after its last part
        assert any(
            f"{kind}{number}" in layer[0] for layer in layers for kind in ("conv", "relu")
        ), layers
    assert any("logits" in layer[0] for layer in layers), layers


def test_counters_are_read_around_each_layer_where_they_run_one_by_one(
    subject: Subject, name: str
) -> None:
    fields = {"level": "layer+hardware", "probes": ["io"], "count": 2, "plain": 1, "options": {}}
    facts, arrays = subject.framework.agent.request("trace", fields, [("image", subject.images)])
    words = {word["probe"]: word for word in facts["probes"]}
    assert words["layers"]["stepwise"] == (name in STEPWISE)
    if name in STEPWISE and words["io"]["available"]:
        layers = arrays["span_level"] == facts["levels"].index("layer")
        start, end, times = (
            arrays["span_start"][layers],
            arrays["span_end"][layers],
            np.sort(arrays["time_0"]),
        )
        before, after = np.searchsorted(times, start, "right"), np.searchsorted(times, end, "left")
        assert (before == after).all(), "no reading is inside of a layer"
        assert before.min() > 0
        assert after.max() < len(times)
        assert (np.diff(before) > 0).all(), "there is one between each two"
