"""Agents of single frameworks for tests: where one runs, the digits network in it, and its replies."""

from __future__ import annotations

import importlib.util
import itertools
import os
import runpy
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from mlms_predictors import Layer, Operation, Profile, Structure, Tensor
from numpy.typing import NDArray

from pytest_mlms.core.errors import StackError, Unavailable
from pytest_mlms.core.records import Launch, Stack
from pytest_mlms.measure.agent.process import Agent, Refused, start_agent
from pytest_mlms.measure.structure.cost import ModelCost, cost_of
from pytest_mlms.provide.artifacts.fetch import default_cache
from pytest_mlms.provide.stacks.environments import existing
from pytest_mlms.provide.stacks.launch import base_interpreter, prepare
from pytest_mlms.provide.stacks.schema import load_stacks
from tests.support.project import DIGITS, ROOT, launch

Array = NDArray[Any]


def digits(count: int) -> Array:
    """Return images of the held-out digits, N x 1 x 8 x 8, from 0 to 1."""
    images = np.load(DIGITS / "digits_test.npz")["image"]
    scaled = images[:count, None] / 16
    return np.asarray(scaled, np.float32)


IMAGES = digits(8)
WRONG_IMAGES = {
    "size": IMAGES[:, :, :4],
    "rank": IMAGES[:, 0],
    "dtype": IMAGES.astype(np.float64),
}
"""Arrays that a model of the digits must refuse."""
MODULES = {
    "opencv": "cv2",
    "pytorch": "torch",
    "tensorrt-rtx": "tensorrt_rtx",
    "tflite": "ai_edge_litert",
}
"""The import name of a framework, where it differs from the framework's name."""

LAYERS = 10
"""Layers of the digits network, before any are fused."""
FIRST_SHAPE = (8, 16, 8, 8)
"""The shape of the first convolution's output for IMAGES, channels first."""
FIRST_BYTES = 8 * 16 * 8 * 8 * 4
INPUT = Tensor("image", "float32", (None, 1, 8, 8))
OUTPUT = Tensor("logits", "float32", (None, 10))

AGENT_TIMEOUT = 600
"""Seconds that a reply may take; a busy machine imports some frameworks in minutes."""


def launch_of(name: str, threads: int | None = None) -> Launch | None:
    """Return how to start an agent of a framework, None where it is nowhere.

    It runs in its own stack if that has been made, or else here. Its stack is the environment NAME
    in the folder MLMS_TEST_STACKS, or what ``bash ci/stacks NAME`` made.
    """
    stack = _made_stack(name)
    if stack is None:
        if not importlib.util.find_spec(MODULES.get(name, name)):
            return None
        stack = Stack("here", name, interpreter="current")
    try:
        return prepare(stack, default_cache(), threads=threads)
    except Unavailable:  # such as a library of the system that is not installed any more
        return None


def _made_stack(name: str) -> Stack | None:
    """Return a framework's stack where it is made."""
    declared = load_stacks(ROOT / "manifests" / "stacks.yaml").get(name)
    folder = os.environ.get("MLMS_TEST_STACKS")
    if folder:
        python = Path(folder, name, "bin", "python")
        if python.exists():
            stack = declared or Stack(name, name)
            return replace(stack, requirements=(), python=None, interpreter=str(python))
    if declared is None:
        return None
    try:
        made = existing(declared, base_interpreter(declared), default_cache())
    except (Unavailable, StackError):
        return None
    return declared if made is not None else None


def stack_launch(name: str, threads: int | None = None) -> Launch:
    """Return how to start an agent of a framework, or skip where it is nowhere."""
    found = launch_of(name, threads)
    if found is None:
        advice = f"bash ci/stacks {name} makes it"
        pytest.skip(f"{name} is neither here nor in a stack that is made; {advice}")
    return found


def in_its_stack(name: str, log: Path, threads: int = 1) -> Framework:
    """Start an agent of a framework, or skip where it is nowhere."""
    return Framework(stack_launch(name, threads), name, log)


def python_of(name: str) -> str:
    """Return an interpreter that has a framework, or skip where it is nowhere."""
    return stack_launch(name).command[0]


def convert(python: str, script: str, folder: Path) -> Path:
    """Run a script of manifests/digits; return ``folder``.

    It writes the network in all formats of a framework into the folder.
    """
    read_weights = runpy.run_path(str(DIGITS / "weights.py"))["read_weights"]
    weights = folder / "weights.npz"
    np.savez(weights, **read_weights())
    command = [python, "-B", str(DIGITS / script), str(weights), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


class Framework:
    """An agent with one predictor, and what the tests ask of it."""

    def __init__(self, python: str | Launch, predictor: str, log: Path) -> None:
        started = launch(python) if isinstance(python, str) else python
        path = ROOT / "predictors" / f"{predictor}.py"
        self.agent: Agent = start_agent(started, path, log, AGENT_TIMEOUT)
        self.hello = self.agent.request("hello").facts
        self.agent.learn_pid(self.hello["process"])

    def load(
        self,
        graph: Path,
        weights: Path | None = None,
        device: str = "cpu",
        threads: int | None = 1,
        allow_code: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        """Load a model and return the facts of the reply."""
        files = {"graph": graph}
        if weights is not None:
            files["weights"] = weights
        return self.load_files(files, device, threads, options, allow_code)

    def load_files(
        self,
        files: Mapping[str, Path],
        device: str = "cpu",
        threads: int | None = 1,
        options: Mapping[str, Any] | None = None,
        allow_code: bool = False,
    ) -> dict[str, Any]:
        """Load a model of files by role, and return the facts of the reply."""
        fields = {
            "files": {role: str(path) for role, path in files.items()},
            "device": device,
            "threads": threads,
            "options": dict(options or {}),
            "allow_code": allow_code,
        }
        return self.agent.request("load", fields).facts

    def predict(self, images: Array = IMAGES) -> Array:
        return self.agent.request("predict", arrays=[("image", images)]).arrays["logits"]

    def check(self) -> None:
        """Hold the outputs against ONNX Runtime's, with two sizes of a batch.

        Arrays that don't fit must be refused.
        """
        for images in (IMAGES, IMAGES[:1]):
            assert_close(self.predict(images), reference(images))
        for wrong in WRONG_IMAGES.values():
            with pytest.raises(Refused, match="the model takes"):
                self.predict(wrong)

    def profiles(self, count: int = 2, images: Array = IMAGES) -> list[Profile]:
        """Return the profiles of ``count`` calls."""
        reply = self.agent.request("profile", {"count": count}, [("image", images)])
        return [_profile(*profile) for profile in reply.facts["profiles"]]

    def layers(self) -> list[Layer]:
        """Return the layers of the second of two calls, checked to be inside it and in order."""
        profiles = self.profiles()
        check_profiles(profiles)
        return profiles[-1].layers

    def inner(self) -> dict[str, Array]:
        """Return what each layer gave."""
        return self.agent.request("inner", arrays=[("image", IMAGES)]).arrays


def _profile(start: float, end: float, layers: list[list[Any]]) -> Profile:
    found = []
    for fields in layers:
        layer = Layer(*fields)
        if layer.shape is not None:
            layer = layer._replace(shape=tuple(layer.shape))
        found.append(layer)
    return Profile(start, end, found)


def check_profiles(profiles: list[Profile]) -> None:
    """Check that calls follow each other, and that layers are in their call, in order and named."""
    for before, after in itertools.pairwise(profiles):
        assert before.end <= after.start
    for profile in profiles:
        assert profile.layers
        for layer in profile.layers:
            assert profile.start <= layer.start <= layer.end <= profile.end, (profile, layer)
        starts = [layer.start for layer in profile.layers]
        assert starts == sorted(starts)
        names = {layer.name for layer in profile.layers}
        assert len(names) == len(profile.layers), "names are distinct"


def layer_seconds(profile: Profile) -> float:
    """Return the sum of the times of all layers."""
    return sum(layer.end - layer.start for layer in profile.layers)


def signature(facts: Mapping[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
    """Return inputs and outputs out of the facts of a load."""
    return _tensors(facts["inputs"]), _tensors(facts["outputs"])


def _tensors(rows: list[list[Any]]) -> list[Tensor]:
    return [Tensor(name, dtype, tuple(shape)) for name, dtype, shape in rows]


def assert_close(actual: Any, expected: Any, message: str = "") -> None:
    """Check that two frameworks agree, as far as float32 does."""
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5, err_msg=message)


def cost(agent: Agent, **shapes: tuple[int, ...]) -> ModelCost:
    """Return what the loaded model costs for inputs of these shapes, as its framework counts."""
    facts = agent.request("structure", {"shapes": shapes}).facts
    structure = Structure(
        layers=[Operation(*layer) for layer in facts["layers"]],
        tensors=_tensors(facts["tensors"]),
        inputs=facts["inputs"],
        outputs=facts["outputs"],
        counter=facts["counter"],
        buffers=facts["buffers"],
    )
    return cost_of(structure)


def reference(images: Array = IMAGES) -> Array:
    """Return the logits that ONNX Runtime computes."""
    graph = str(DIGITS / "digits_cnn.onnx")
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"image": images})[0])
