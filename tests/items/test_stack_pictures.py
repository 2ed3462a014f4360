"""Upgrades whose pictures are decoded by the Pillow of each stack."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.project import DIGITS, Project, sha256

PICTURES = 12

# A Pillow that decodes as another release of libjpeg might, and a stack without Pillow.
BRIGHTER = """
from PIL import Image
convert = Image.Image.convert
Image.Image.convert = lambda image, mode: convert(image, mode).point(lambda value: value + 9)
"""
MISSING = "import sys\nsys.modules['PIL'] = None\n"


@pytest.fixture
def pictures(project: Project) -> Project:
    """A project whose model has pictures of digits, and stacks whose Pillows differ."""
    project.edit("onnxruntime >=1.17", "labour")
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.edit("[single_stream, offline]", "[single_stream]")
    project.edit("  seed: 7", "  seed: 7\n  preprocess: stack")
    project.edit("digits_test.npz", "pictures.zip")
    write_pictures(project.folder / "pictures.zip")
    digest = sha256((project.folder / "pictures.zip").read_bytes())
    project.edit("5c435567fb584755ade0f56a988ddba3619defceae674ec315304277becbfa8f", digest)
    project.set_thresholds()
    stacks = ["old: {framework: labour, interpreter: current}"]
    for name, code in (("far", BRIGHTER), ("none", MISSING)):
        folder = project.path / name
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(code)
        env = f"{{PYTHONPATH: {folder}}}"
        stacks.append(f"{name}: {{framework: labour, interpreter: current, env: {env}}}")
    (project.folder / "stacks.yaml").write_text("\n".join(stacks))
    return project


def write_pictures(path: Path) -> None:
    digits = np.load(DIGITS / "digits_test.npz")
    rows = io.StringIO()
    table = csv.writer(rows)
    table.writerow(["image", "label"])
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(PICTURES):
            pixels = digits["image"][number].reshape(8, 8).astype(np.uint8)
            stream = io.BytesIO()
            Image.fromarray(np.stack([pixels] * 3, axis=-1)).save(stream, "PNG")
            archive.writestr(f"{number}.png", stream.getvalue())
            table.writerow([f"{number}.png", int(digits["label"][number])])
        archive.writestr("labels.csv", rows.getvalue())


def test_pictures_are_compared_as_each_stack_decodes_them(pictures: Project) -> None:
    stacks = [f"--mlms-stack={name}" for name in ("far", "none")]
    result = pictures.run(*stacks, "--mlms-against=old", "-k", "upgrade")
    found = {item["stack"]["name"]: item for item in pictures.items()}
    far = found["far"]["comparisons"][0]
    assert (far["quantity"], far["verdict"], far["ratio"]) == ("agreement", "REGRESSED", 9)
    text = (
        "inputs differ in 100 % of the values of 12 pictures, by up to 9 of 255 levels (allowed 1)"
    )
    assert text in far["told"]
    assert "outputs are equal on 12 of 12 inputs" in far["told"]
    assert found["none"]["verdict"] == "ERROR"
    result.stdout.fnmatch_lines(
        [
            "*digits.yaml:40: *: pictures are decoded by each stack's own Pillow, which none can't import*"
        ]
    )
