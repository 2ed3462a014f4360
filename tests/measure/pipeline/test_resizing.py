"""Steps that change the size of images, against the libraries that they are named after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.manifest.steps import InputStep
from pytest_mlms.measure.pipeline.geometry import Size, geometry_of, resized_size
from pytest_mlms.measure.pipeline.pictures import IMAGE_STEPS, resize_image
from tests.support.image_goldens import (
    CROPPED,
    LETTERBOX,
    LONGEST,
    METHODS,
    RATIOS,
    RESIZED,
    SIDE,
    images,
    odd_sizes,
)

Array = np.ndarray[Any, Any]

GOLDENS = Path(__file__).with_name("goldens")
FLAGS = {"nearest": 0, "bilinear": 1, "area": 3}
"""OpenCV's numbers of its methods."""


@pytest.fixture(scope="module")
def torchvision() -> dict[str, Array]:
    return dict(np.load(GOLDENS / "torchvision.npz"))


@pytest.fixture(scope="module")
def tensorflow() -> dict[str, Array]:
    return dict(np.load(GOLDENS / "tensorflow.npz"))


@pytest.fixture(scope="module")
def opencv() -> dict[str, Array]:
    return dict(np.load(GOLDENS / "opencv.npz"))


def make(name: str, **parameters: Any) -> Any:
    return InputStep.model_validate({name: parameters}).parameters


def apply(image: Array, name: str, **parameters: Any) -> Array:
    return np.asarray(IMAGE_STEPS[name](image, make(name, **parameters)))


def sizes(random: np.random.Generator, multiples: bool) -> tuple[Size, Size]:
    """Return the size of an image and a new one, which divides it where ``multiples`` is set."""
    height, width, new_height, new_width = random.integers(1, 90, 4).tolist()
    if multiples:
        factors = random.integers(1, 5, 2).tolist()
        height = new_height * factors[0]
        width = new_width * factors[1]
    return Size(height, width), Size(new_height, new_width)


@pytest.mark.parametrize("method", METHODS)
def test_images_are_resized_as_opencv_does(opencv: dict[str, Array], method: str) -> None:
    for number, image in enumerate(images()):
        for height, width in RESIZED:
            expected = opencv[f"{number} {method} {height} {width}"]
            found = resize_image(image, Size(height, width), "opencv", method)
            assert np.array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("channels", [1, 3])
def test_bytes_are_resized_as_opencv_does_to_the_last_bit(method: str, channels: int) -> None:
    cv2 = pytest.importorskip("cv2")
    random = np.random.default_rng(5)
    for number in range(150):
        old, new = sizes(random, number % 3 == 0)
        image = random.integers(0, 256, (*old, channels), dtype=np.uint8)
        expected = cv2.resize(image, (new.width, new.height), interpolation=FLAGS[method])
        found = resize_image(image, new, "opencv", method)
        assert np.array_equal(found, expected.reshape(found.shape)), (old, new)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_floats_are_resized_as_opencv_does_within_their_rounding(method: str) -> None:
    cv2 = pytest.importorskip("cv2")
    random = np.random.default_rng(5)
    for number in range(60):
        old, new = sizes(random, number % 3 == 0)
        image = random.random((*old, 3), dtype=np.float32)
        expected = cv2.resize(image, (new.width, new.height), interpolation=FLAGS[method])
        found = resize_image(image, new, "opencv", method)
        assert np.abs(found - expected).max() <= 1e-5, (old, new)


@pytest.mark.parametrize("library", ["tensorflow", "tensorflow1"])
@pytest.mark.parametrize("method", METHODS)
def test_images_are_resized_as_tensorflow_does(
    tensorflow: dict[str, Array], library: str, method: str
) -> None:
    for number, image in enumerate(images()):
        for height, width in RESIZED:
            expected = tensorflow[f"{library} {number} {method} {height} {width}"]
            found = resize_image(image[..., :1], Size(height, width), library, method)
            assert found.dtype == expected.dtype
            assert np.abs(found.astype(float) - expected).max() <= BOUNDS[method]


BOUNDS = {"nearest": 0, "bilinear": 0, "area": 1e-3}


@pytest.mark.parametrize(
    ("library", "method"),
    [("pillow", "bilinear"), ("pillow", "nearest"), ("opencv", "bilinear"), ("opencv", "area")],
)
@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int16, np.int32])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_whole_numbers_stay_whole_numbers_of_their_type(
    library: str, method: str, kind: Any, channels: int
) -> None:
    edge = np.zeros((6, 8, channels), kind)
    edge[:, 4:] = np.iinfo(kind).max if kind != np.int32 else 1 << 20
    found = resize_image(edge, Size(3, 4), library, method)
    assert found.dtype == kind
    assert found.min() >= 0
    assert found[0, 0, 0] == 0
    assert found[0, -1, 0] == edge.max()


def test_a_ratio_is_cropped_as_tensorflow_does(tensorflow: dict[str, Array]) -> None:
    for number, image in enumerate(images()):
        for ratio in RATIOS:
            found = apply(image, "crop", ratio=ratio)
            assert found.shape[:2] == tuple(tensorflow[f"crop {number} {ratio}"])
            assert found[0, 0, 0] == tensorflow[f"corner {number} {ratio}"]


def test_sides_are_rounded_as_torchvision_does(torchvision: dict[str, Array]) -> None:
    shortest = make("resize", shortest=SIDE)
    both = make("resize", shortest=SIDE, longest=LONGEST)
    for (height, width), expected in zip(odd_sizes(), torchvision["sizes"], strict=True):
        size = Size(int(height), int(width))
        found = [*resized_size(size, shortest), *resized_size(size, both)]
        assert found == expected.tolist(), size


def test_corners_are_rounded_as_torchvision_does(torchvision: dict[str, Array]) -> None:
    crop = InputStep.model_validate({"crop": {"size": [19, 20], "library": "torchvision"}})
    for (height, width), expected in zip(odd_sizes(), torchvision["corners"], strict=True):
        geometry = geometry_of([crop], int(height), int(width))
        assert [-offset for offset in geometry.offset] == expected[::-1].tolist()


def test_resize_and_crop_are_torchvision_s(torchvision: dict[str, Array]) -> None:
    for number, image in enumerate(images()):
        resized = apply(image, "resize", shortest=SIDE)
        found = apply(resized, "crop", size=CROPPED, library="torchvision")
        assert np.array_equal(found, torchvision[f"pixels {number}"])


def test_the_longest_side_alone_is_that_size() -> None:
    step = make("resize", longest=50)
    assert resized_size(Size(100, 33), step) == (50, 16)
    assert resized_size(Size(33, 100), step) == (16, 50)
    assert resized_size(Size(1, 1000), step) == (1, 50)


@pytest.mark.parametrize(
    ("fit", "expected"), [("stretch", (20, 30)), ("cover", (20, 40)), ("contain", (15, 30))]
)
def test_an_image_is_fitted_into_a_size(fit: str, expected: tuple[int, int]) -> None:
    step = make("resize", size=(20, 30), fit=fit)
    assert resized_size(Size(100, 200), step) == expected


def test_a_letterbox_is_that_of_ultralytics(opencv: dict[str, Array]) -> None:
    size = (LETTERBOX, LETTERBOX)
    for number, image in enumerate(images()):
        inside = apply(image, "resize", size=size, fit="contain", library="opencv")
        found = apply(inside, "pad", size=size, value=114)
        assert np.array_equal(found, opencv[f"letterbox {number}"])


def test_images_are_padded_to_a_multiple_or_by_a_border() -> None:
    image = images()[0]
    assert apply(image, "pad", multiple=32).shape == (64, 64, 3)
    at_corner = apply(image, "pad", multiple=32, align="top_left", value=[1, 2, 3])
    assert np.array_equal(at_corner[:37, :53], image)
    assert at_corner[63, 63].tolist() == [1, 2, 3]
    for mode in ("edge", "reflect"):
        expected = np.pad(image, ((7, 7), (7, 7), (0, 0)), mode)
        assert np.array_equal(apply(image, "pad", border=7, mode=mode), expected)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"size": (30, 30)}, "37 x 53 is larger than 30 x 30; resize with 'fit: contain' first"),
        ({"border": 1, "value": [1, 2]}, "value has 2 values for 3 channels; write one for all"),
        ({"border": 1, "value": 0.5}, r"value \[0.5\] is none of uint8; write whole numbers"),
        ({"border": 1, "value": 300}, r"value \[300.0\] is none of uint8; write whole numbers"),
    ],
)
def test_a_border_that_does_not_fit_is_an_error(parameters: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        apply(images()[0], "pad", **parameters)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"resize": {}}, "resize takes a size, or a side"),
        ({"resize": {"size": [4, 4], "shortest": 3}}, "resize takes a size, or a side"),
        ({"resize": {"shortest": 3, "fit": "cover"}}, "a side keeps the aspect ratio"),
        ({"resize": {"size": [4, 4], "method": "area"}}, "pillow has no method 'area' here; write"),
        ({"resize": {"size": [4, 4], "library": "opencv", "method": "box"}}, "opencv has no meth"),
        ({"crop": {"size": [4, 4], "ratio": 0.5}}, "crop takes a size or a ratio"),
        ({"crop": {"ratio": 0.5, "library": "torchvision"}}, "a ratio is that of tf.image.central"),
        ({"pad": {}}, "pad takes one of size, multiple and border"),
    ],
)
def test_parameters_that_do_not_go_together_are_an_error(step: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InputStep.model_validate(step)
