"""Goldens of image steps: what torchvision, TensorFlow and OpenCV make of seeded images.

Run in an environment of its own with one of them:

    pip install torch==2.13.0 torchvision==0.28.0 pillow
    python tests/support/image_goldens.py torchvision tests/measure/pipeline/goldens/torchvision.npz
    pip install tensorflow-cpu==2.21.0
    python tests/support/image_goldens.py tensorflow tests/measure/pipeline/goldens/tensorflow.npz
    pip install opencv-python-headless==5.0.0
    python tests/support/image_goldens.py opencv tests/measure/pipeline/goldens/opencv.npz

tests/measure/pipeline/test_resizing.py compares the steps with these files. It takes the images and the
cases from here, so this file imports neither the plugin nor, until it is run, the libraries.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import sys
from typing import Any

import numpy as np

SHAPES = [(37, 53), (64, 48), (30, 91), (24, 24)]
RESIZED = [(16, 24), (45, 40), (12, 12)]
RATIOS = [0.875, 0.5, 0.3, 1.0]
SIDE = 32
LONGEST = 40
LETTERBOX = 64
CROPPED = (23, 20)
METHODS = ["nearest", "bilinear", "area"]


def images() -> list[Any]:
    """Return an RGB image of each of the shapes."""
    random = np.random.default_rng(16)
    return [random.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in SHAPES]


def odd_sizes() -> Any:
    """Return 200 sizes of images from which 20 x 20 can be cut, heights and widths."""
    return np.random.default_rng(17).integers(20, 250, (200, 2))


def coordinates(height: int, width: int) -> Any:
    """Return an image whose pixels say where they are: row, column, 0."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows, columns, 0 * rows], axis=2).astype(np.uint8)


def torchvision_goldens() -> dict[str, Any]:
    """Return sizes of resizes, corners of crops, and pixels of both, by torchvision."""
    torch: Any = importlib.import_module("torch")
    from PIL import Image

    # A wheel for another build of torch lacks operators, which transforms of pictures don't use.
    operators = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        with contextlib.suppress(RuntimeError):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    transforms: Any = importlib.import_module("torchvision.transforms")

    resize = transforms.Resize(SIDE)
    sizes = []
    corners = []
    for height, width in odd_sizes().tolist():
        image = Image.fromarray(coordinates(height, width))
        found = []
        for transform in (resize, transforms.Resize(SIDE, max_size=LONGEST)):
            found += transform(image).size[::-1]
        sizes.append(found)
        corner = np.asarray(transforms.CenterCrop((19, 20))(image))[0, 0, :2]
        corners.append(corner)
    goldens = {"sizes": np.array(sizes), "corners": np.array(corners)}
    for number, array in enumerate(images()):
        resized = resize(Image.fromarray(array))
        goldens[f"pixels {number}"] = np.asarray(transforms.CenterCrop(CROPPED)(resized))
    return goldens


def tensorflow_goldens() -> dict[str, Any]:
    """Return resized and cropped pixels by TensorFlow, and those of its first version."""
    tf: Any = importlib.import_module("tensorflow")
    goldens = {}
    for number, image in enumerate(images()):
        array = image[..., :1]
        for height, width in RESIZED:
            size = (height, width)
            for method in METHODS:
                name = f"{number} {method} {height} {width}"
                new = tf.image.resize(array, size, method=method)
                old = tf.compat.v1.image.resize(array, size, method=_first(tf, method))
                goldens[f"tensorflow {name}"] = np.asarray(new)
                goldens[f"tensorflow1 {name}"] = np.asarray(old)
        for ratio in RATIOS:
            cut = np.asarray(tf.image.central_crop(array, ratio))
            goldens[f"crop {number} {ratio}"] = np.array(cut.shape[:2])
            goldens[f"corner {number} {ratio}"] = cut[0, 0, 0]
    return goldens


def _first(tf: Any, method: str) -> Any:
    """Return what the first version calls a method."""
    names = {"nearest": "NEAREST_NEIGHBOR", "bilinear": "BILINEAR", "area": "AREA"}
    return getattr(tf.compat.v1.image.ResizeMethod, names[method])


def opencv_goldens() -> dict[str, Any]:
    """Return resized pixels by OpenCV, and a letterbox as Ultralytics makes it."""
    cv2: Any = importlib.import_module("cv2")
    flags = (cv2.INTER_NEAREST, cv2.INTER_LINEAR, cv2.INTER_AREA)
    goldens = {}
    for number, image in enumerate(images()):
        for height, width in RESIZED:
            for method, flag in zip(METHODS, flags, strict=True):
                name = f"{number} {method} {height} {width}"
                goldens[name] = cv2.resize(image, (width, height), interpolation=flag)
        goldens[f"letterbox {number}"] = _letterbox(cv2, image)
    return goldens


def _letterbox(cv2: Any, image: Any) -> Any:
    """Return what LetterBox of ultralytics/data/augment.py makes of an image."""
    height, width = image.shape[:2]
    ratio = min(LETTERBOX / height, LETTERBOX / width)
    new_height = round(height * ratio)
    new_width = round(width * ratio)
    half_height = (LETTERBOX - new_height) / 2
    half_width = (LETTERBOX - new_width) / 2
    return cv2.copyMakeBorder(
        cv2.resize(image, (new_width, new_height), interpolation=cv2.INTER_LINEAR),
        round(half_height - 0.1),
        round(half_height + 0.1),
        round(half_width - 0.1),
        round(half_width + 0.1),
        cv2.BORDER_CONSTANT,
        value=(114, 114, 114),
    )


LIBRARIES = {
    "torchvision": (torchvision_goldens, "torchvision"),
    "tensorflow": (tensorflow_goldens, "tensorflow-cpu"),
    "opencv": (opencv_goldens, "opencv-python-headless"),
}


def main() -> None:
    """Write the goldens of a library, with the versions that made them."""
    library, path = sys.argv[1:]
    compute, package = LIBRARIES[library]
    goldens = compute()
    versions = []
    for name in (package, "pillow", "numpy"):
        versions.append(f"{name} {importlib.metadata.version(name)}")
    np.savez_compressed(path, versions=np.array(versions), **goldens)


if __name__ == "__main__":
    main()
