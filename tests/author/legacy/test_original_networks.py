"""A manifest of the original form for each framework, imported and run with a small real network.

Its accuracy and its outputs are those of a plain script, which knows the agents and not us.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import string
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps
from scipy.special import softmax

from tests.support.archives import write_tar
from tests.support.colour_digits import NAMES, colour_network, write_pictures
from tests.support.fileserver import serving
from tests.support.frameworks import stack_launch
from tests.support.original_networks import (
    MEAN,
    ORIGINALS,
    SCALE,
    Original,
    outputs_of,
    write_files,
)
from tests.support.project import HANG_GUARD, QUICK

ORIGINALS_FOLDER = Path(__file__).parent / "originals"

Array = NDArray[Any]


def prepared(original: Original, dataset: Path, labels: Mapping[str, str]) -> Array:
    """Return all pictures as the agent made them; it didn't know EXIF."""
    with zipfile.ZipFile(dataset) as archive:
        pictures = [Image.open(io.BytesIO(archive.read(name))) for name in labels]
    stacked: Array = np.stack([original.prepare(picture) for picture in pictures])
    return stacked


def shares(outputs: Array, names: list[str], labels: Mapping[str, str]) -> tuple[float, float]:
    """Return top-1 and top-5: texts in small letters are compared, as the agents did."""
    ranked = np.argsort(-outputs, axis=1, kind="stable")
    found = []
    for row, label in zip(ranked, labels.values(), strict=True):
        best = [names[number].lower() for number in row]
        found.append((label.lower() == best[0], label.lower() in best[:5]))
    top1, top5 = np.mean(found, axis=0)
    return float(top1), float(top5)


def files_on_server(files: Mapping[str, Path], names: str) -> dict[str, bytes]:
    content = {f"/{path.name}": path.read_bytes() for path in files.values()}
    return {**content, "/names.txt": names.encode()}


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def manifest_text(framework: str, url: str, files: Mapping[str, Path], names: str) -> str:
    values = {"url": url, "names_md5": md5(names.encode())}
    for role, path in files.items():
        values[role] = path.name
        values[f"{role}_md5"] = md5(path.read_bytes())
    text = (ORIGINALS_FOLDER / f"{framework}.yml").read_text()
    return string.Template(text).substitute(values)


def scores_of(results: Path) -> Array:
    """Return the scores of all classes that the accuracy item left."""
    (path,) = (path for path in results.rglob("*.npz") if path.stem in ("probabilities", "scores"))
    file = np.load(path)
    return np.asarray(file["probability" if path.stem == "probabilities" else "score"])


def run_in(folder: Path, *arguments: str) -> str:
    """Run a module of Python in a folder; return what it said."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env={**os.environ, "MLMS_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, str]]:
    """The dataset of pictures, and the names of their classes by the files."""
    path = tmp_path_factory.mktemp("pictures") / "colours.zip"
    return path, write_pictures(path)


def with_other(picture: Image.Image, **changed: Any) -> Array:
    """Return RGB and CHW as the agents had it, but for one mistake."""
    mean, scale = changed.get("mean", MEAN), changed.get("scale", SCALE)
    if "upright" in changed:
        picture = ImageOps.exif_transpose(picture)
    resized = picture.resize((16, 8), changed.get("filter", Image.Resampling.BILINEAR))
    pixels = np.asarray((np.asarray(resized, np.float32) - mean) / scale)
    return pixels[:, :, :: changed.get("step", 1)].transpose(2, 0, 1)


@pytest.mark.parametrize(
    "mistake",
    [
        {"step": -1},
        {"mean": MEAN[::-1]},
        {"scale": SCALE[::-1]},
        {"upright": True},
        {"filter": Image.Resampling.NEAREST},
        {"filter": Image.Resampling.BOX},
    ],
)
def test_a_mistake_of_the_pictures_changes_the_accuracy(
    colours: tuple[Path, Mapping[str, str]], mistake: dict[str, Any]
) -> None:
    dataset, labels = colours
    original = ORIGINALS["pytorch"]
    session = onnxruntime.InferenceSession(colour_network(original.network).SerializeToString())
    found = []
    for changed in ({}, mistake):
        wrong = replace(original, prepare=functools.partial(with_other, **changed))
        (outputs,) = session.run(None, {"image": prepared(wrong, dataset, labels)})
        found.append(shares(outputs, list(NAMES), labels)[0])
    assert found[0] > 0.9
    assert found[1] < found[0]


@pytest.mark.slow
@pytest.mark.parametrize("framework", ORIGINALS)
def test_an_imported_manifest_computes_what_a_script_does(tmp_path: Path, framework: str) -> None:
    original = ORIGINALS[framework]
    launch = stack_launch(original.runs_in)
    files = write_files(original, launch, tmp_path)
    labels = write_pictures(tmp_path / "colours.zip")
    expected = outputs_of(
        original, launch, files, prepared(original, tmp_path / "colours.zip", labels)
    )
    names = original.network.names
    stack: dict[str, Any] = {"framework": original.runs_in, "interpreter": launch.command[0]}
    if "LD_LIBRARY_PATH" in launch.env:
        stack["env"] = {"LD_LIBRARY_PATH": launch.env["LD_LIBRARY_PATH"]}
    with serving() as server:
        server.files.update(files_on_server(files, names))
        graph = files["graph"]
        write_tar(tmp_path / "model.tgz", {graph.name: graph.read_bytes()})
        server.files["/model.tgz"] = (tmp_path / "model.tgz").read_bytes()
        text = manifest_text(framework, server.url(""), files, names)
        (tmp_path / "original.yml").write_text(text)
        run_in(
            tmp_path, "pytest_mlms", "import", "original.yml", "--dataset", "colours=colours.zip"
        )
        run_in(tmp_path, "pytest_mlms", "lint", "imported")
        (tmp_path / "imported" / "stacks.yaml").write_text(json.dumps({"made": stack}))
        run_in(
            tmp_path,
            *("pytest", "--mlms-manifests=imported", "--mlms-stack=made", "-k", "accuracy"),
            *QUICK,
        )
    results = tmp_path / "mlms-results" / "latest"
    lines = map(json.loads, (results / "results.jsonl").read_text().splitlines())
    (item,) = [line for line in lines if line["type"] == "item"]
    top1, top5 = shares(expected, names.splitlines(), labels)
    assert item["estimates"]["top1"]["value"] == top1
    assert item["estimates"]["top5"]["value"] == top5
    if original.has_softmax:
        expected = softmax(expected, axis=1)
    np.testing.assert_allclose(scores_of(results), expected, rtol=1e-4, atol=1e-4)
