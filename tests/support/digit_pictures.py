"""Real digits as a person has them: a folder of pictures for each class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from tests.support.project import DIGITS


def write_pictures(folder: Path, count: int, names: str = "0123456789") -> None:
    """Write the first digits of the test set as PNG files, in a folder for each class's name."""
    with np.load(DIGITS / "digits_test.npz") as file:
        images, labels = file["image"][:count], file["label"][:count]
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        place = folder / names[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.astype(np.uint8)).save(place / f"{number:03}.png")
