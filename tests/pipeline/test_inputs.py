"""Input steps, against Pillow and numpy used by hand."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from pytest_mlms.errors import DatasetError
from pytest_mlms.manifest.schema import Input
from pytest_mlms.pipeline.inputs import preprocess

RNG = np.random.default_rng(0)
RGB = RNG.integers(0, 256, (3, 20, 30, 3), dtype=np.uint8)
GREY = RNG.integers(0, 17, (3, 8, 8), dtype=np.uint8)


def spec(
    *steps: Any, layout: str = "NHWC", element_type: str = "float32", kind: str = "image"
) -> Input:
    fields = {"name": "x", "type": kind, "element_type": element_type, "steps": list(steps)}
    return Input.model_validate({**fields, "layout": layout} if kind == "image" else fields)


def encoded(image: np.ndarray, form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, form)
    return buffer.getvalue()


def test_encoded_images_and_arrays_decode_alike() -> None:
    wanted = RGB.astype(np.float32)
    assert (preprocess([encoded(image) for image in RGB], spec("decode")) == wanted).all()
    assert (preprocess(list(RGB), spec("decode")) == wanted).all()
    assert (preprocess(list(RGB), spec()) == wanted).all()


def test_decode_converts_the_colours() -> None:
    grey = np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in RGB])[..., None]
    assert (preprocess(list(RGB), spec({"decode": {"color": "L"}})) == grey).all()
    assert (preprocess(list(RGB), spec({"decode": {"color": "BGR"}})) == RGB[..., ::-1]).all()
    assert preprocess(list(GREY), spec({"decode": {"color": "RGB"}})).shape == (3, 8, 8, 3)


def test_colour_order_turns_round_only_what_is_in_the_other() -> None:
    to_bgr, to_rgb = {"color_order": {"to": "BGR"}}, {"color_order": {"to": "RGB"}}
    assert (preprocess(list(RGB), spec("decode", to_bgr)) == RGB[..., ::-1]).all()
    assert (preprocess(list(RGB), spec("decode", to_rgb)) == RGB).all()
    assert (preprocess(list(RGB), spec({"decode": {"color": "BGR"}}, to_rgb)) == RGB).all()
    assert (preprocess(list(RGB), spec("decode", to_bgr, to_rgb)) == RGB).all()


@pytest.mark.parametrize("method", ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"])
def test_resize_is_pillows_filter_of_that_name(method: str) -> None:
    filter_ = Image.Resampling[method.upper()]
    wanted = np.stack(
        [np.asarray(Image.fromarray(image).resize((12, 7), filter_)) for image in RGB]
    )
    made = preprocess(list(RGB), spec("decode", {"resize": {"size": [7, 12], "method": method}}))
    assert (made == wanted).all()


def test_resize_that_keeps_the_aspect_ratio_covers_the_size() -> None:
    step = {"resize": {"size": [10, 10], "keep_aspect_ratio": True}}
    assert preprocess(list(RGB), spec("decode", step)).shape == (3, 10, 15, 3)
    tall = np.moveaxis(RGB, 1, 2)
    assert preprocess(list(tall), spec("decode", step, {"crop": {"size": [10, 10]}})).shape == (
        3,
        10,
        10,
        3,
    )


def test_floats_are_resized_as_floats() -> None:
    image = (RGB[0] / 255).astype(np.float32)
    made = preprocess([image], spec({"resize": {"size": [40, 60], "method": "bilinear"}}))
    assert made.shape == (1, 40, 60, 3)
    assert 0 < made.max() <= 1
    assert len(np.unique(made)) > 256


def test_crop_takes_the_centre_and_refuses_to_invent() -> None:
    made = preprocess(list(RGB), spec("decode", {"crop": {"size": [4, 6]}}))
    assert (made == RGB[:, 8:12, 12:18]).all()
    with pytest.raises(
        DatasetError,
        match=r"step 2 of input 'x', crop: can't cut 40 x 6 out of 20 x 30; resize first",
    ):
        preprocess(list(RGB), spec("decode", {"crop": {"size": [40, 6]}}))


def test_layout_is_the_inputs_whether_a_step_says_so_or_not() -> None:
    wanted = np.moveaxis(RGB, 3, 1)
    assert (preprocess(list(RGB), spec("decode", layout="NCHW")) == wanted).all()
    assert (
        preprocess(list(RGB), spec("decode", {"layout": {"to": "NCHW"}}, layout="NCHW")) == wanted
    ).all()
    assert (
        preprocess(list(RGB), spec("decode", {"layout": {"to": "NCHW"}}, layout="NHWC")) == RGB
    ).all()


def test_normalize_is_per_channel_in_either_layout() -> None:
    step = {"normalize": {"mean": [10, 20, 30], "scale": [1, 2, 4]}}
    wanted = (RGB.astype(np.float32) - np.float32([10, 20, 30])) / np.float32([1, 2, 4])
    assert np.array_equal(preprocess(list(RGB), spec("decode", step)), wanted)
    late = preprocess(list(RGB), spec("decode", {"layout": {"to": "NCHW"}}, step, layout="NCHW"))
    assert np.array_equal(late, np.moveaxis(wanted, 3, 1))


def test_normalize_with_other_channels_than_the_image_says_so() -> None:
    with pytest.raises(DatasetError, match="step 2 of input 'x', normalize"):
        preprocess(list(RGB), spec("decode", {"normalize": {"mean": [1, 2]}}))


def test_the_order_of_the_steps_matters() -> None:
    halve, cast = {"normalize": {"scale": 2}}, {"cast": {"to": "uint8"}}
    first = preprocess(list(GREY), spec("decode", halve, cast))
    second = preprocess(list(GREY), spec("decode", cast, halve))
    assert not np.array_equal(first, second)
    assert np.array_equal(first, np.trunc(second))


def test_images_of_several_sizes_become_a_batch_once_they_are_alike() -> None:
    mixed = [RGB[0], RGB[1, :10], RGB[2, :, :15]]
    scale = {"normalize": {"scale": 255}}
    made = preprocess(mixed, spec("decode", scale, {"resize": {"size": [8, 8]}}))
    assert made.shape == (3, 8, 8, 3)
    with pytest.raises(
        DatasetError, match="comes out in several shapes, .*; add a resize or crop step"
    ):
        preprocess(mixed, spec("decode", scale))


@pytest.mark.parametrize(
    ("elements", "steps", "says"),
    [
        ([b"not an image"], ["decode"], "12 bytes, beginning b'not an i', are not an image"),
        ([encoded(RGB[0])], [], "begin the input's steps with 'decode'"),
        ([np.zeros(5, np.uint8)], [], "the dataset has \\(5,\\)"),
        ([np.zeros(64, np.uint8)], ["decode"], "the dataset has \\(64,\\)"),
        (
            [np.zeros((4, 4), np.float32)],
            ["decode"],
            "has elements of uint8, not float32; leave the step out",
        ),
        ([encoded(RGB[0], "JPEG")[:200]], ["decode"], "step 1 of input 'x', decode"),
    ],
)
def test_what_is_no_image_says_so(elements: list[Any], steps: list[Any], says: str) -> None:
    with pytest.raises(DatasetError, match=says):
        preprocess(elements, spec(*steps))


def test_tensors_are_stacked_normalised_and_cast() -> None:
    rows = [np.arange(4.0), np.arange(4.0) + 1]
    made = preprocess(rows, spec({"normalize": {"mean": 1, "scale": 2}}, kind="tensor"))
    assert np.array_equal(made, (np.stack(rows) - 1) / 2)
    assert preprocess(rows, spec(kind="tensor", element_type="int64")).dtype == np.int64


@given(
    arrays(
        np.uint8, st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), st.just(3))
    ),
    st.data(),
)
def test_a_batch_is_its_images_one_by_one(batch: np.ndarray, data: st.DataObject) -> None:
    steps = data.draw(
        st.lists(
            st.sampled_from(
                [
                    {"resize": {"size": [5, 4], "method": "bicubic"}},
                    {"normalize": {"mean": [1, 2, 3], "scale": 7}},
                    {"color_order": {"to": "BGR"}},
                    {"cast": {"to": "float64"}},
                ]
            ),
            max_size=4,
        )
    )
    made = preprocess(list(batch), spec("decode", *steps, layout="NCHW"))
    one_by_one = np.concatenate(
        [preprocess([image], spec("decode", *steps, layout="NCHW")) for image in batch]
    )
    assert np.array_equal(made, one_by_one)
    assert made.flags.c_contiguous
    assert made.dtype == np.float32
