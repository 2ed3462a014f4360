"""Packages of twelve releases with a planted change, for ci/bisect_study.py.

The release in place 3 is version 1.3.0, or 1.3.1 in a history in which it has the planted change.
So histories share their wheels and environments, and a folder with one wheel for each place is what
pip sees of a history.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # of the tests' support
from tests.support.confirmations import write_numpy
from tests.support.project import copy_digits
from tests.support.wheels import write_wheel

__all__ = ["PLANTS", "RELEASES", "Build", "Expected", "History", "Plant", "write_project"]

RELEASES = 12
LAYERS = 150
SLOWER = 162  # 8 % more

_MODULE = """
import os
import numpy

LAYERS = {layers}
FAULT = {fault!r}
WEIGHTS, _ = numpy.linalg.qr(numpy.random.RandomState(1).standard_normal((64, 64)))
WEIGHTS = WEIGHTS.astype("float32")

class Network:
    def __init__(self):
        self.calls = 0

    def run(self, images):
        self.calls += 1
        if FAULT == "crash" and self.calls == 30:
            os._exit(7)
        hidden = images.reshape(len(images), 64)
        for number in range(LAYERS):
            hidden = numpy.abs(hidden @ WEIGHTS)
            if number == {last}:
                logits = hidden[:, :10]
        return 2 * logits if FAULT == "wrong" else logits
"""
"""A network whose further layers cost time and change nothing."""

_PREDICTOR = """\
import {package}
from mlms_predictors import Loaded, Tensor

def versions():
    return {{"{package}": {package}.VERSION}}

def devices():
    return ["cpu"]

def load(request):
    image = Tensor("image", "float32", (None, 1, 8, 8))
    logits = Tensor("logits", "float32", (None, 10))
    return Loaded({package}.Network(), "cpu", request.threads, [image], [logits])

def predict(loaded, arrays):
    return [loaded.model.run(arrays["image"])]
"""

_EDITS = {
    "batch_sizes: [1, 8, 64]": "batch_sizes: [8]",
    "[single_stream, offline]": "[single_stream]",
}


@dataclass(frozen=True)
class Build:
    """The code of a release: how many layers its network computes, and its fault."""

    layers: int = LAYERS
    fault: str = ""

    @property
    def code(self) -> str:
        """The module of the package."""
        return _MODULE.format(layers=self.layers, fault=self.fault, last=LAYERS - 1)


@dataclass(frozen=True)
class Expected:
    """The right answer: the kind of ``mlms bisect``, and the release that is to be accused."""

    kind: str
    release: str = ""


@dataclass(frozen=True)
class History:
    """The releases of a package by version, the oldest first, and the right answer."""

    releases: dict[str, Build]
    expected: Expected

    @property
    def ends(self) -> tuple[str, str]:
        """The first version, and the last one."""
        versions = list(self.releases)
        return versions[0], versions[-1]


Draw = Callable[[random.Random], History]


@dataclass(frozen=True)
class Plant:
    """A package with a kind of change, and what draws a history of it."""

    package: str
    description: str
    draw: Draw


def _history(changed: Build, begin: int, end: int) -> dict[str, Build]:
    """Return the releases of which those from place ``begin`` to before ``end`` are changed."""
    releases = {}
    for place in range(RELEASES):
        is_changed = begin <= place < end
        build = changed if is_changed else Build()
        releases[f"1.{place}.{int(is_changed)}"] = build
    return releases


def _step(changed: Build) -> Draw:
    """Return what draws a change in any release but the first, which stays."""

    def draw(generator: random.Random) -> History:
        place = generator.randrange(1, RELEASES)
        releases = _history(changed, place, RELEASES)
        return History(releases, Expected("found", f"1.{place}.1"))

    return draw


def _draw_drift(generator: random.Random) -> History:
    """Return a history of which each release has a layer more than the one before it."""
    releases = {f"1.{place}.0": Build(LAYERS + place) for place in range(RELEASES)}
    return History(releases, Expected("gradual"))


def _draw_undone(generator: random.Random) -> History:
    """Return a history with a slow-down that the last release does not have any more."""
    begin = generator.randrange(1, RELEASES - 1)
    end = generator.randrange(begin + 1, RELEASES)
    return History(_history(Build(SLOWER), begin, end), Expected("same"))


PLANTS = {
    "slower": Plant("slower", "slower by 8 %", _step(Build(SLOWER))),
    "wrong": Plant("wrongly", "wrong outputs", _step(Build(fault="wrong"))),
    "crash": Plant("crashing", "a crash", _step(Build(fault="crash"))),
    "drift": Plant("drifting", "a drift of 0.7 % a release", _draw_drift),
    "undone": Plant("undone", "slower by 8 %, undone again", _draw_undone),
}


def write_project(folder: Path, plant: Plant, history: History, shared: Path) -> None:
    """Write a manifest that measures a package, and the wheels that pip sees.

    ``shared`` keeps wheels and predictors for other histories.
    """
    folder.mkdir(parents=True)
    manifest = copy_digits(folder / "manifests")
    text = manifest.read_text().replace("onnxruntime >=1.17", plant.package)
    for old, new in _EDITS.items():
        text = text.replace(old, new)
    text, _, _ = text.partition("\nthresholds:")
    manifest.write_text(f"{text}\n")
    predictors = shared / "predictors"
    predictors.mkdir(parents=True, exist_ok=True)
    predictor = predictors / f"{plant.package}.py"
    predictor.write_text(_PREDICTOR.format(package=plant.package))
    offered = folder / "wheels"
    offered.mkdir()
    for version, build in history.releases.items():
        write_wheel(offered, plant.package, version, code=build.code)
    numpy = "numpy-99.0-py3-none-any.whl"
    if not (shared / "wheels" / numpy).exists():
        (shared / "wheels").mkdir()
        write_numpy(shared / "wheels")
    (offered / numpy).symlink_to(shared / "wheels" / numpy)
