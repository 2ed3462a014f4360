"""Pictures that agents decode, and the steps that are left for pytest's own interpreter."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from mlms_predictors._run.pictures import decode
from PIL import Image, UnidentifiedImageError

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.pipeline import preprocess
from pytest_mlms.measure.pipeline.stack_pictures import decoding_of, without_decoding

RESIZE = {"resize": {"size": [12, 10], "method": "bicubic"}}
COVER = {"resize": {"size": [16, 16], "keep_aspect_ratio": True}}
CROP = {"crop": {"size": [8, 8]}}
BY_OPENCV = {"resize": {"size": [6, 6], "library": "opencv"}}
NORMALIZE = {"normalize": {"mean": [1, 2, 3], "scale": 2}}


def input_of(*steps: Any) -> Input:
    image = {"name": "x", "type": "image", "element_type": "float32", "layout": "NCHW"}
    return Input.model_validate({**image, "steps": list(steps)})


def encoded(form: str, mode: str = "RGB", orientation: int = 1) -> bytes:
    """Return a picture of 24 x 17 random pixels."""
    kind, channels = (
        (np.uint16, ()) if mode == "I;16" else (np.uint8, (3,) if mode == "RGB" else ())
    )
    pixels = np.random.default_rng(3).integers(0, np.iinfo(kind).max, (17, 24, *channels), kind)
    image = Image.fromarray(pixels)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stream = io.BytesIO()
    image.save(stream, form, exif=exif)
    return stream.getvalue()


@pytest.mark.parametrize(
    "steps",
    [
        ["decode"],
        ["decode", RESIZE, NORMALIZE],
        [{"decode": {"color": "BGR"}}, COVER, CROP, NORMALIZE],
        [{"decode": {"color": "L"}}, CROP, RESIZE],
        [{"decode": {"orientation": "stored"}}, COVER, BY_OPENCV],
    ],
)
@pytest.mark.parametrize("content", [encoded("JPEG", orientation=6), encoded("PNG", "I;16")])
def test_an_agent_with_the_same_pillow_makes_the_same_inputs(
    steps: list[Any], content: bytes
) -> None:
    spec = input_of(*steps)
    pixels = decode(*decoding_of(content, spec))
    assert np.array_equal(preprocess([pixels], without_decoding(spec)), preprocess([content], spec))


def test_what_pillow_does_is_left_to_stacks_and_the_rest_is_not() -> None:
    spec = input_of("decode", RESIZE, CROP, BY_OPENCV, RESIZE, NORMALIZE)
    left = [step.name for step in without_decoding(spec).steps]
    assert left == ["decode", "resize", "resize", "normalize"]
    assert [step[0] for step in decoding_of(encoded("PNG"), spec).steps] == ["resize", "crop"]


def test_an_agent_reads_no_format_whose_reader_runs_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Image.init()
    monkeypatch.setattr(Image, "ID", list(Image.ID))
    with pytest.raises(UnidentifiedImageError):
        decode(encoded("EPS"), "RGB", False, [])


def test_an_array_is_no_picture_that_a_stack_decodes() -> None:
    with pytest.raises(DatasetError, match="it is an array, which no stack decodes"):
        decoding_of(np.zeros((8, 8), np.uint8), input_of("decode"))
