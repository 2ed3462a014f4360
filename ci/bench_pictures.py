"""Decoding and resizing of pictures, beside torchvision and Pillow with as many workers.

torchvision runs in an interpreter of its own: that of the variable MLMS_TORCHVISION_PYTHON, or this
one where it has torchvision.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from bench_row import ROOT, Row, in_random_order
from PIL import Image

PICTURES = 1000
DISTINCT = 25
BATCH = 32
PASSES = 5
TIME_RATIO = 1.0
STEPS = [
    {"decode": {"orientation": "stored"}},
    {"resize": {"shortest": 256}},
    {"crop": {"size": [224, 224], "library": "torchvision"}},
    {"normalize": {"mean": [123.675, 116.28, 103.53], "scale": [58.395, 57.12, 57.375]}},
]


def measure_pictures() -> Iterator[Row]:
    """Measure a pass through 1,000 JPEG files of 500 x 375."""
    python = _python_of_torchvision()
    if python is None:
        reason = "set MLMS_TORCHVISION_PYTHON to an interpreter with torchvision"
        print(f"pictures: left out; {reason}", flush=True)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pictures(folder)
        with _Torchvision(python, folder) as torchvision:
            _pass(folder)
            sides = {"ours": lambda: _pass(folder), "theirs": torchvision.measure}
            passes = [in_random_order(sides) for _ in range(PASSES)]
    ratio = statistics.median(each["ours"] / each["theirs"] for each in passes)
    yield Row("1,000 JPEGs to 224 x 224: time / torchvision, 2 workers", ratio, TIME_RATIO)


def _python_of_torchvision() -> str | None:
    if "MLMS_TORCHVISION_PYTHON" in os.environ:
        return os.environ["MLMS_TORCHVISION_PYTHON"]
    return sys.executable if importlib.util.find_spec("torchvision") else None


def write_pictures(folder: Path) -> None:
    """Write pictures with detail of several sizes, and a table of them."""
    random = np.random.default_rng(0)
    rows = ["file,label"]
    for number in range(DISTINCT):
        picture = np.zeros((375, 500, 3))
        for size, weight in (((6, 8), 0.6), ((47, 63), 0.3), ((375, 500), 0.1)):
            noise = Image.fromarray(random.integers(0, 256, (*size, 3), dtype=np.uint8))
            picture += weight * np.asarray(noise.resize((500, 375), Image.Resampling.BICUBIC))
        image = Image.fromarray(picture.astype(np.uint8))
        for copy in range(PICTURES // DISTINCT):
            name = f"{number}-{copy}.jpg"
            image.save(folder / name, quality=90)
            rows.append(f"{name},0")
    (folder / "labels.csv").write_text("\n".join(rows))


def _pass(folder: Path) -> float:
    """Return the seconds of a pass through the dataset by this project."""
    from pytest_mlms.core.records import Place
    from pytest_mlms.manifest.schema import Input
    from pytest_mlms.measure.pipeline import open_dataset

    fields = {"name": "x", "type": "image", "element_type": "float32", "layout": "NCHW"}
    spec = Input.model_validate({**fields, "steps": STEPS})
    dataset = open_dataset(folder, [spec], Place(folder / "m.yaml", 1))
    start = time.perf_counter()
    for _ in dataset.batches(BATCH):
        pass
    return time.perf_counter() - start


class _Torchvision(contextlib.AbstractContextManager["_Torchvision"]):
    """A process that times passes by torchvision, one when it is asked."""

    def __init__(self, python: str, folder: Path) -> None:
        from pytest_mlms.measure.pipeline.dataset import DECODERS

        program = str(ROOT / "ci" / "torchvision_loader.py")
        self._process = subprocess.Popen(
            [python, program, str(folder), str(DECODERS), str(BATCH)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        if self._read_line() != "ready\n":
            raise SystemExit(f"{program} does not run in {python}")

    def measure(self) -> float:
        """Return the seconds of a pass."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        return float(self._read_line())

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def __exit__(self, *exception: object) -> None:
        self._process.communicate()
