"""The steps of embedded Python, against our own texts of its forms, run with the real libraries.

``MLMS_TORCHVISION_PYTHON`` names an interpreter with torchvision, OpenCV and Pillow.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from pytest_mlms.author.legacy.python_forms import recognise_preprocess
from pytest_mlms.measure.pipeline.inputs import preprocess
from tests.support.embedded_python import PREPROCESS
from tests.support.legacy_manifests import input_of
from tests.support.project import HANG_GUARD

PYTHON = os.environ.get("MLMS_TORCHVISION_PYTHON", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON, reason="MLMS_TORCHVISION_PYTHON names no interpreter with torchvision and cv2"
    ),
]

FROM_DATASETS = ("tokens", "volume")
FLOATS_RESIZED = ("coco_resnet", "coco_resnet_means")
CUT_OFF = ("coco_mobilenet", "deeplab")
"""Forms that resize floats and cut off their fractions, so that a rounding may change a level."""

SIZES = ((90, 131), (77, 64), (50, 50))

RUN = """\
import importlib.util, json, sys, types
import numpy
package = types.ModuleType("torchvision")  # without the operators that need torch's own build
package.__path__ = list(importlib.util.find_spec("torchvision").submodule_search_locations)
sys.modules["torchvision"] = package
found = {}
for name, text in json.load(open(sys.argv[1])).items():
    for number, path in enumerate(sys.argv[3:]):
        names = {"dataset": [path]}
        exec(text, names)
        found["%s/%d" % (name, number)] = numpy.asarray(names["preprocess"]({}, "0"))
numpy.savez(sys.argv[2], **found)
"""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Pictures with edges and noise, as PNG and as JPEG."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(5)
    paths = []
    for number, (height, width) in enumerate(SIZES):
        coarse = rng.integers(0, 256, (height // 9, width // 9, 3), np.uint8)
        picture = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        noise = Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8))
        picture = Image.blend(picture.filter(ImageFilter.EDGE_ENHANCE), noise, 0.2)
        paths.append(folder / f"{number}.{'jpg' if number == 1 else 'png'}")
        picture.save(paths[-1])
    return paths


@pytest.fixture(scope="module")
def computed(
    pictures: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, NDArray[Any]]:
    """Run all texts on all pictures; return the arrays by NAME/NUMBER."""
    folder = tmp_path_factory.mktemp("computed")
    texts = {name: text for name, text in PREPROCESS.items() if name not in FROM_DATASETS}
    (folder / "texts.json").write_text(json.dumps(texts))
    (folder / "run.py").write_text(RUN)
    arguments = [folder / "run.py", folder / "texts.json", folder / "found.npz", *pictures]
    done = subprocess.run(
        [PYTHON, *map(str, arguments)], capture_output=True, text=True, timeout=HANG_GUARD
    )
    assert done.returncode == 0, done.stderr
    return dict(np.load(folder / "found.npz"))


@pytest.mark.parametrize("name", sorted(set(PREPROCESS) - set(FROM_DATASETS)))
def test_the_steps_give_the_arrays_of_the_code(
    name: str, pictures: list[Path], computed: dict[str, NDArray[Any]]
) -> None:
    form = recognise_preprocess(PREPROCESS[name])
    assert form is not None
    for number, path in enumerate(pictures):
        (found,) = preprocess([path.read_bytes()], input_of(form))
        expected = computed[f"{name}/{number}"]
        assert found.shape == expected.shape
        difference = np.abs(found.astype(np.float64) - expected)
        if name in CUT_OFF:
            assert found.dtype == expected.dtype
            assert difference.max() <= 1
            assert np.mean(difference > 0) < 0.01
        else:
            tolerance = 1e-4 if name in FLOATS_RESIZED else 1e-6
            assert difference.max() <= tolerance * np.ptp(expected)
