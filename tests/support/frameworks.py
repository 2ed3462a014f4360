"""What the tests of single frameworks share.

An interpreter that has it, an agent in it, the network in its formats.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from mlms_predictors import Operation, Structure, Tensor

from pytest_mlms.agent.process import Agent, Refused, start_agent
from pytest_mlms.artifacts.fetch import default_cache
from pytest_mlms.errors import StackError, Unavailable
from pytest_mlms.records import Launch, Stack
from pytest_mlms.stacks.environments import existing
from pytest_mlms.stacks.launch import base_interpreter, prepare
from pytest_mlms.stacks.schema import load_stacks
from pytest_mlms.structure.cost import ModelCost, cost_of
from tests.support.project import DIGITS, ROOT, launch

IMAGES = (np.load(DIGITS / "digits_test.npz")["image"][:8, None] / 16).astype(np.float32)
MODULES = {"opencv": "cv2", "pytorch": "torch", "tflite": "ai_edge_litert"}
"""What a framework is imported as, where that isn't its name."""

LAYERS = 10  # of the digits network, before any are fused


def launch_of(name: str, threads: int | None = None) -> Launch | None:
    """Return how to start an agent of a framework: in its own stack if that has been made, else
    here, else None.

    Its stack is the environment NAME in the folder MLMS_TEST_STACKS, or what ``bash ci/stacks
    NAME`` made.
    """
    stack = load_stacks(ROOT / "manifests" / "stacks.yaml").get(name)
    python = Path(os.environ.get("MLMS_TEST_STACKS") or "/nonexistent", name, "bin", "python")
    if python.exists():
        stack = replace(
            stack or Stack(name, name), requirements=(), python=None, interpreter=str(python)
        )
    elif not (stack and _is_made(stack)):
        if not importlib.util.find_spec(MODULES.get(name, name)):
            return None
        stack = Stack("here", name, interpreter="current")
    return prepare(stack, default_cache(), threads=threads)


def _is_made(stack: Stack) -> bool:
    try:
        return existing(stack, base_interpreter(stack), default_cache()) is not None
    except (Unavailable, StackError):
        return False


def in_its_stack(name: str, log: Path, threads: int = 1) -> Framework:
    """Start an agent of a framework, or skip where it is nowhere."""
    found = launch_of(name, threads)
    if found is None:
        pytest.skip(
            f"{name} is neither here nor in a stack that is made; bash ci/stacks {name} makes it"
        )
    return Framework(found, name, log)


def python_of(name: str, module: str) -> str:
    """Return an interpreter that has a framework.

    That of its stack if it has been made, else this one.
    """
    found = launch_of(name)
    if found and (found.command[0] != sys.executable or importlib.util.find_spec(module)):
        return found.command[0]
    pytest.skip(
        f"{module} is neither here nor in a stack that is made; bash ci/stacks {name} makes it"
    )


def convert(python: str, script: str, folder: Path) -> Path:
    """Run a script of manifests/digits, which writes the network in all formats of a framework into
    ``folder``.
    """
    weights = runpy.run_path(str(DIGITS / "weights.py"))["read_weights"]()
    np.savez(folder / "weights.npz", **weights)
    command = [python, "-B", str(DIGITS / script), str(folder / "weights.npz"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


class Framework:
    """An agent with one predictor, and what the tests ask of it."""

    def __init__(self, python: str | Launch, predictor: str, log: Path) -> None:
        started = launch(python) if isinstance(python, str) else python
        self.agent: Agent = start_agent(started, ROOT / "predictors" / f"{predictor}.py", log, 300)
        self.hello = self.agent.request("hello").facts

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
        files = {"graph": str(graph), **({"weights": str(weights)} if weights else {})}
        fields = {
            "files": files,
            "device": device,
            "threads": threads,
            "options": options,
            "allow_code": allow_code,
        }
        return self.agent.request("load", fields).facts

    def predict(self, images: np.ndarray = IMAGES) -> np.ndarray:
        return self.agent.request("predict", arrays=[("image", images)]).arrays["logits"]

    def check(self) -> None:
        """Hold the outputs against ONNX Runtime's, with two sizes of a batch, and refuse what
        doesn't fit.
        """
        for images in (IMAGES, IMAGES[:1]):
            np.testing.assert_allclose(
                self.predict(images), reference(images), rtol=1e-4, atol=1e-5
            )
        for wrong in (IMAGES[:, :, :4], IMAGES[:, 0], IMAGES.astype(np.float64)):
            with pytest.raises(Refused, match="the model takes"):
                self.predict(wrong)

    def layers(self) -> list[list[Any]]:
        """Return the layers of the second of two calls, which lie inside it and in order."""
        profiles = self.agent.request("profile", {"count": 2}, [("image", IMAGES)]).facts[
            "profiles"
        ]
        assert len(profiles) == 2
        assert profiles[0][1] <= profiles[1][0]
        for start, end, layers in profiles:
            assert layers
            assert all(start <= layer[2] <= layer[3] <= end for layer in layers), (
                start,
                end,
                layers,
            )
            assert [layer[2] for layer in layers] == sorted(layer[2] for layer in layers)
            assert len({layer[0] for layer in layers}) == len(layers), "names are distinct"
        return profiles[1][2]

    def inner(self) -> dict[str, np.ndarray]:
        """Return what each layer gave."""
        return self.agent.request("inner", arrays=[("image", IMAGES)]).arrays


def cost(agent: Agent, **shapes: tuple[int, ...]) -> ModelCost:
    """Return what the loaded model costs for inputs of these shapes, as its framework counts."""
    facts = agent.request("structure", {"shapes": shapes}).facts
    layers, tensors = (
        [Operation(*one) for one in facts["layers"]],
        [Tensor(*one) for one in facts["tensors"]],
    )
    return cost_of(Structure(layers, tensors, facts["inputs"], facts["outputs"], facts["counter"]))


def reference(images: np.ndarray = IMAGES) -> np.ndarray:
    session = onnxruntime.InferenceSession(
        str(DIGITS / "digits_cnn.onnx"), providers=["CPUExecutionProvider"]
    )
    return np.asarray(session.run(None, {"image": images})[0])
