"""Input steps, against Pillow and numpy used by hand."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from mlms_predictors._run.pictures import decode
from onnx import helper
from onnx.reference import ReferenceEvaluator
from PIL import Image, UnidentifiedImageError

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.pipeline.inputs import decoding_of, preprocess, without_decoding
from pytest_mlms.measure.pipeline.observers import observe

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(0)
RGB = RNG.integers(0, 256, (3, 20, 30, 3), dtype=np.uint8)
BGR = RGB[..., ::-1]
GREY = RNG.integers(0, 17, (3, 8, 8), dtype=np.uint8)

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"

TO_BGR = {"color_order": {"to": "BGR"}}
TO_RGB = {"color_order": {"to": "RGB"}}
TO_NCHW = {"layout": {"to": "NCHW"}}
DECODE_BGR = {"decode": {"color": "BGR"}}


def image_input(*steps: Any, layout: str = "NHWC") -> Input:
    return make_input(steps, type="image", layout=layout)


def tensor_input(*steps: Any, element_type: str = "float32") -> Input:
    return make_input(steps, type="tensor", element_type=element_type)


def make_input(steps: Iterable[Any], **fields: Any) -> Input:
    whole = {"name": "x", "element_type": "float32", "steps": list(steps), **fields}
    return Input.model_validate(whole)


def run(images: Iterable[Array], *steps: Any, layout: str = "NHWC") -> Array:
    """Return a batch of images after the steps."""
    return preprocess(list(images), image_input(*steps, layout=layout))


def resize(height: int, width: int, **options: Any) -> dict[str, Any]:
    return {"resize": {"size": [height, width], **options}}


def crop(height: int, width: int) -> dict[str, Any]:
    return {"crop": {"size": [height, width]}}


def encode(image: Array, form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, form)
    return buffer.getvalue()


def test_encoded_images_are_decoded() -> None:
    encoded = [encode(image) for image in RGB]
    batch = preprocess(encoded, image_input("decode"))
    assert np.array_equal(batch, RGB)
    assert batch.dtype == np.float32


@pytest.mark.parametrize("steps", [["decode"], []])
def test_images_that_are_arrays_need_no_decoding(steps: list[str]) -> None:
    assert np.array_equal(run(RGB, *steps), RGB)


def test_decode_makes_grey_images() -> None:
    grey = [np.asarray(Image.fromarray(image).convert("L")) for image in RGB]
    batch = run(RGB, {"decode": {"color": "L"}})
    assert np.array_equal(batch, np.stack(grey)[..., np.newaxis])


def test_decode_reverses_the_colours_for_bgr() -> None:
    assert np.array_equal(run(RGB, DECODE_BGR), BGR)


def test_decode_gives_grey_images_three_channels() -> None:
    assert run(GREY, {"decode": {"color": "RGB"}}).shape == (3, 8, 8, 3)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (["decode", TO_BGR], BGR),
        (["decode", TO_RGB], RGB),
        ([DECODE_BGR, TO_RGB], RGB),
        (["decode", TO_BGR, TO_RGB], RGB),
        ([TO_BGR], BGR),
    ],
)
def test_the_colour_order_is_reversed_only_if_it_is_the_other(
    steps: list[Any], expected: Array
) -> None:
    assert np.array_equal(run(RGB, *steps), expected)


@pytest.mark.parametrize("method", ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"])
def test_resize_is_pillow_s_filter_of_that_name(method: str) -> None:
    resampling = Image.Resampling[method.upper()]
    resized = [Image.fromarray(image).resize((12, 7), resampling) for image in RGB]
    expected = np.stack([np.asarray(image) for image in resized])
    assert np.array_equal(run(RGB, "decode", resize(7, 12, method=method)), expected)


def test_resize_that_keeps_the_aspect_ratio_covers_the_size() -> None:
    step = resize(10, 10, keep_aspect_ratio=True)
    assert run(RGB, "decode", step).shape == (3, 10, 15, 3)
    tall = np.moveaxis(RGB, 1, 2)
    assert run(tall, "decode", step).shape == (3, 15, 10, 3)


def test_resize_to_the_size_that_an_image_has_leaves_it() -> None:
    assert np.array_equal(run(RGB, "decode", resize(20, 30)), RGB)


def test_floats_are_resized_as_floats() -> None:
    image = (RGB[0] / 255).astype(np.float32)
    batch = run([image], resize(40, 60, method="bilinear"))
    assert batch.shape == (1, 40, 60, 3)
    assert 0 < batch.max() <= 1
    assert len(np.unique(batch)) > 256


def test_crop_takes_the_centre() -> None:
    assert np.array_equal(run(RGB, "decode", crop(4, 6)), RGB[:, 8:12, 12:18])


def test_crop_of_more_than_the_image_is_an_error() -> None:
    message = r"step 2 of input 'x', crop: can't cut 40 x 6 out of 20 x 30; resize or pad first"
    with pytest.raises(DatasetError, match=message):
        run(RGB, "decode", crop(40, 6))


@pytest.mark.parametrize(
    ("steps", "layout", "expected"),
    [
        (["decode"], "NCHW", np.moveaxis(RGB, 3, 1)),
        (["decode", TO_NCHW], "NCHW", np.moveaxis(RGB, 3, 1)),
        (["decode", TO_NCHW], "NHWC", RGB),
    ],
)
def test_the_layout_is_the_input_s_whether_a_step_sets_it_or_not(
    steps: list[Any], layout: str, expected: Array
) -> None:
    assert np.array_equal(run(RGB, *steps, layout=layout), expected)


def test_normalize_has_a_mean_and_a_scale_for_each_channel_in_either_layout() -> None:
    step = {"normalize": {"mean": [10, 20, 30], "scale": [1, 2, 4]}}
    mean = np.array([10, 20, 30], np.float32)
    scale = np.array([1, 2, 4], np.float32)
    expected = (RGB.astype(np.float32) - mean) / scale
    assert np.array_equal(run(RGB, "decode", step), expected)
    channels_first = run(RGB, "decode", TO_NCHW, step, layout="NCHW")
    assert np.array_equal(channels_first, np.moveaxis(expected, 3, 1))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_pipeline_of_pictures_is_its_steps_one_by_one(layout: str) -> None:
    images = [Image.fromarray(image).resize((16, 12)).crop((3, 2, 13, 10)) for image in RGB]
    pixels = np.stack([np.asarray(image) for image in images]).astype(np.float32)
    mean = np.array([1, 2, 3], np.float32)
    expected = (pixels - mean) / np.array([4, 5, 6], np.float32)
    if layout == "NCHW":
        expected = np.moveaxis(expected, 3, 1)
    normalize = {"normalize": {"mean": [1, 2, 3], "scale": [4, 5, 6]}}
    step = resize(12, 16, method="bicubic")
    spec = image_input("decode", step, crop(8, 10), normalize, layout=layout)
    batch = preprocess([encode(image) for image in RGB], spec)
    assert np.array_equal(batch, expected)
    assert batch.flags.c_contiguous


def test_normalize_with_other_channels_than_the_image_s_is_an_error() -> None:
    message = "step 2 of input 'x', normalize: mean has 4 values for 3 channels; write one for all"
    four = {"normalize": {"mean": [1, 2, 3, 4]}}
    with pytest.raises(DatasetError, match=message):
        run(RGB, {"cast": {"to": "uint8"}}, four)
    with pytest.raises(DatasetError, match="mean has 4 values for 3 channels"):
        run(RGB, TO_NCHW, four, layout="NCHW")
    with pytest.raises(DatasetError, match="scale has 2 values for 3 channels"):
        run(MIXED, {"normalize": {"scale": [1, 2]}})


def test_tensors_have_one_mean_for_all_or_one_for_each_of_the_last_axis() -> None:
    rows = [np.zeros(3)]
    assert preprocess(rows, tensor_input({"normalize": {"mean": [1, 2, 3]}})).tolist() == [
        [-1, -2, -3]
    ]
    with pytest.raises(DatasetError, match="mean has 2 values for 3 channels"):
        preprocess(rows, tensor_input({"normalize": {"mean": [1, 2]}}))


def turned(image: Array, orientation: int) -> bytes:
    """Return an image in a file that says how it must be turned."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", exif=exif)
    return buffer.getvalue()


def test_encoded_images_are_turned_upright_by_their_exif_orientation() -> None:
    lying = turned(RGB[0], 6)
    batch = preprocess([lying], image_input("decode"))
    assert np.array_equal(batch[0], np.rot90(RGB[0], -1))
    stored = preprocess([lying], image_input({"decode": {"orientation": "stored"}}))
    assert np.array_equal(stored[0], RGB[0])


def test_a_picture_of_too_many_pixels_is_an_error() -> None:
    header = Image.new("1", (20_000, 20_000))
    buffer = io.BytesIO()
    header.save(buffer, "PNG")
    message = r"decode: Image size \(400000000 pixels\) exceeds limit .*; make the picture smaller"
    with pytest.raises(DatasetError, match=message):
        preprocess([buffer.getvalue()], image_input("decode"))


def deep_grey(form: str) -> bytes:
    """Return a picture of 4 x 16 grey values of 16 bits: 0, 1024, 2048 and so on."""
    values = (np.arange(64) * 1024).astype(np.uint16).reshape(4, 16)
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, form)
    return buffer.getvalue()


@pytest.mark.parametrize("form", ["PNG", "TIFF", "PPM"])
@pytest.mark.parametrize("color", ["L", "RGB"])
def test_grey_values_of_16_bits_keep_their_high_byte(form: str, color: str) -> None:
    batch = preprocess([deep_grey(form)], image_input({"decode": {"color": color}}))
    assert np.array_equal(batch[0, ..., 0], np.arange(64).reshape(4, 16) * 4)


def test_a_turned_picture_of_16_bits_keeps_its_high_byte() -> None:
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(deep_grey("PNG"))) as image:
        exif = image.getexif()
        exif[0x0112] = 6
        image.save(buffer, "PNG", exif=exif)
    batch = preprocess([buffer.getvalue()], image_input("decode"))
    assert np.array_equal(batch[0, ..., 0], np.rot90(np.arange(64).reshape(4, 16) * 4, -1))


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_pixels_of_32_bits_are_an_error(kind: Any) -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((4, 4), kind)).save(buffer, "TIFF")
    message = (
        "pixels of 32 bits, Pillow's mode '.', have no range of their own; convert the picture"
    )
    with pytest.raises(DatasetError, match=message):
        preprocess([buffer.getvalue()], image_input("decode"))


@pytest.mark.parametrize("form", ["EPS", "ICO", "PCX", "TGA"])
def test_formats_that_no_dataset_has_reach_no_decoder(form: str) -> None:
    with pytest.raises(DatasetError, match="are not an image of JPEG, PNG, WEBP, GIF, BMP, TIFF"):
        preprocess([encode(RGB[0], form)], image_input("decode"))


def test_a_resize_to_more_pixels_than_a_picture_has_is_an_error() -> None:
    strip = np.zeros((1, 20_000, 3), np.uint8)
    message = "1 x 20000 becomes 224 x 4480000, which is too large; set keep_aspect_ratio: false"
    with pytest.raises(DatasetError, match=message):
        run([strip], resize(224, 224, keep_aspect_ratio=True))


def test_an_image_without_pixels_is_an_error() -> None:
    with pytest.raises(DatasetError, match="step 1 of input 'x', resize: "):
        run([np.zeros((0, 4, 3), np.uint8)], resize(4, 4, keep_aspect_ratio=True))


@pytest.mark.parametrize("shape", [[3], [2, "batch"], []])
def test_elements_that_do_not_fit_the_shape_are_an_error(shape: list[Any]) -> None:
    spec = make_input([], type="tensor", shape=shape)
    with pytest.raises(DatasetError, match="input 'x' has elements of .*, which don't fit its sh"):
        preprocess([np.zeros(())] if shape == [2, "batch"] else [np.zeros(2)], spec)


def test_steps_run_in_the_order_in_which_they_are_written() -> None:
    halve = {"normalize": {"scale": 2}}
    cast = {"cast": {"to": "uint8"}}
    truncated = run(GREY, "decode", halve, cast)
    whole = run(GREY, "decode", cast, halve)
    assert not np.array_equal(truncated, whole)
    assert np.array_equal(truncated, np.trunc(whole))


MIXED = [RGB[0], RGB[1, :10], RGB[2, :, :15]]
TO_UNIT = {"normalize": {"scale": 255}}


def test_images_of_several_sizes_become_a_batch_once_they_have_one_size() -> None:
    assert run(MIXED, "decode", TO_UNIT, resize(8, 8)).shape == (3, 8, 8, 3)


def test_images_of_several_sizes_at_the_end_are_an_error() -> None:
    message = "comes out in several shapes, .*; add a resize or crop step"
    with pytest.raises(DatasetError, match=message):
        run(MIXED, "decode", TO_UNIT)


@pytest.mark.parametrize(
    ("value", "element_type"),
    [
        (200.0, "int8"),
        (-1.0, "uint8"),
        (2**32 + 5, "int32"),
        (2.0**31, "int32"),
        (2.0**63, "int64"),
        (np.nan, "int64"),
        (1e6, "float16"),
        (1e300, "float32"),
    ],
)
def test_a_number_that_an_element_type_does_not_hold_is_an_error(
    value: float, element_type: str
) -> None:
    elements = [np.array([0, value])]
    message = f"input 'x': values from .* don't fit into {element_type}; correct its steps"
    with pytest.raises(DatasetError, match=message):
        preprocess(elements, tensor_input(element_type=element_type))
    message = f"step 1 of input 'x', cast: values from .* don't fit into {element_type}"
    with pytest.raises(DatasetError, match=message):
        preprocess(elements, tensor_input({"cast": {"to": element_type}}))


@given(st.floats(-128, 127, width=32))
def test_a_number_of_the_range_loses_its_fraction_alone(number: float) -> None:
    spec = tensor_input({"cast": {"to": "int8"}}, element_type="int8")
    batch = preprocess([np.array([number, 127.9])], spec)
    assert batch.tolist() == [[int(number), 127]]


@pytest.mark.parametrize(
    ("element_type", "line"),
    [
        ("uint8", "'quantize: {scale: …, zero_point: …, to: uint8}', or with 'cast: {to: uint8}'"),
        ("int8", "'quantize: {scale: …, zero_point: …, to: int8}', or with 'cast: {to: int8}'"),
        ("int16", "'quantize: {scale: …, zero_point: …, to: int16}', or with 'cast: {to: int16}'"),
        ("int64", "'cast: {to: int64}'"),
    ],
)
def test_fractions_are_cut_by_a_step_alone(element_type: str, line: str) -> None:
    shares = [np.linspace(0, 1, 5, dtype=np.float32)]
    found = f"values from 0 to 1 have fractions, and {element_type} has none; end its steps with "
    with pytest.raises(DatasetError, match=re.escape(f"input 'x': {found}{line} to cut")):
        preprocess(shares, tensor_input(element_type=element_type))
    whole = preprocess([np.array([0.0, 1.0, 100.0])], tensor_input(element_type=element_type))
    assert whole.tolist() == [[0, 1, 100]]


@pytest.mark.parametrize("element_type", ["float16", "bool"])
def test_infinities_and_truths_are_cast_as_they_are(element_type: str) -> None:
    batch = preprocess([np.array([np.inf, -np.inf, 2])], tensor_input(element_type=element_type))
    assert np.array_equal(batch, np.array([[np.inf, -np.inf, 2]]).astype(element_type))


@pytest.mark.parametrize("step", [TO_BGR, {"cast": {"to": "int32"}}, TO_NCHW])
def test_steps_on_images_of_several_sizes_are_those_on_each_image(step: dict[str, Any]) -> None:
    batch = run(MIXED, "decode", resize(8, 8), step)
    one_by_one = [run([image], "decode", resize(8, 8), step) for image in MIXED]
    assert np.array_equal(batch, np.concatenate(one_by_one))


@pytest.mark.parametrize(
    ("element", "steps", "message"),
    [
        (b"not an image", ["decode"], "12 bytes, beginning b'not an i', are not an image"),
        (POINTER, ["decode"], "it is a Git LFS pointer, .*; run 'git lfs pull'"),
        (encode(RGB[0]), [], "begin the input's steps with 'decode'"),
        (encode(RGB[0], "JPEG")[:200], ["decode"], "step 1 of input 'x', decode"),
        (np.zeros(5, np.uint8), [], r"the dataset has \(5,\)"),
        (np.zeros(64, np.uint8), ["decode"], r"the dataset has \(64,\)"),
        (np.zeros((4, 4), np.float32), ["decode"], "of uint8, not float32; leave the step out"),
    ],
)
def test_an_element_that_is_no_image_is_an_error(
    element: Any, steps: list[str], message: str
) -> None:
    with pytest.raises(DatasetError, match=message):
        preprocess([element], image_input(*steps))


def test_tensors_are_stacked_and_normalized() -> None:
    rows = [np.arange(4.0), np.arange(4.0) + 1]
    batch = preprocess(rows, tensor_input({"normalize": {"mean": 1, "scale": 2}}))
    assert np.array_equal(batch, (np.stack(rows) - 1) / 2)


def test_tensors_have_the_element_type_of_the_input() -> None:
    batch = preprocess([np.arange(4.0)], tensor_input(element_type="int64"))
    assert batch.dtype == np.int64


def test_the_batch_is_the_axis_that_the_shape_says() -> None:
    states = [np.zeros((2, 5)), np.ones((2, 5))]
    fields = {"type": "tensor", "element_type": "float32"}
    batch = preprocess(states, make_input([], **fields, shape=[2, "batch", 5]))
    assert batch.shape == (2, 2, 5)
    assert batch[0].tolist() == [[0] * 5, [1] * 5]
    assert batch.flags.c_contiguous


def test_an_input_without_a_batch_is_the_same_for_all_elements() -> None:
    rates = np.array([16000, 16000, 8000])
    rate = make_input([], type="tensor", element_type="int64", shape=[])
    found = preprocess(list(rates[:2]), rate)
    assert found.shape == ()
    assert found == 16000
    with pytest.raises(DatasetError, match="its elements differ; use batch_sizes of 1"):
        preprocess(list(rates), rate)


def test_each_step_is_observed() -> None:
    names = []
    with observe(lambda name, start, end: names.append(name)):
        run(RGB, "decode", resize(8, 8), TO_BGR)
    assert names == ["decode", "resize", "color_order"]


SIZE = st.integers(1, 9)
SHAPES = st.tuples(st.integers(1, 3), SIZE, SIZE, st.just(3))
BATCHES = arrays(np.uint8, SHAPES)
STEP = st.sampled_from(
    [
        resize(5, 4, method="bicubic"),
        {"normalize": {"mean": [1, 2, 3], "scale": 7}},
        TO_BGR,
        {"cast": {"to": "float64"}},
    ]
)


@given(BATCHES, st.lists(STEP, max_size=4))
def test_a_batch_is_its_images_one_by_one(batch: Array, steps: list[Any]) -> None:
    together = run(batch, "decode", *steps, layout="NCHW")
    one_by_one = [run([image], "decode", *steps, layout="NCHW") for image in batch]
    assert np.array_equal(together, np.concatenate(one_by_one))
    assert together.flags.c_contiguous
    assert together.dtype == np.float32


@given(
    arrays(np.float32, 40, elements=st.floats(-300, 300, width=32)),
    st.floats(0.001, 2),
    st.sampled_from(["int8", "uint8", "int16"]),
    st.integers(0, 100),
)
def test_numbers_are_quantised_as_onnx_does(
    values: Array, scale: float, to: str, zero: int
) -> None:
    parameters = {"scale": float(np.float32(scale)), "zero_point": zero, "to": to}
    spec = tensor_input({"quantize": parameters}, element_type=to)
    (found,) = preprocess([values], spec)
    assert found.dtype == to
    node = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"])
    inputs = {"x": values, "scale": np.float32(scale), "zero": np.array(zero, to)}
    (reference,) = ReferenceEvaluator(node).run(None, inputs)
    expected = np.asarray(reference)
    exact = values.astype(np.float64) / np.float64(np.float32(scale))
    sure = np.abs(exact - np.floor(exact) - 0.5) > 1e-3  # halves by float32 are others
    assert np.array_equal(found[sure], expected[sure])
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1


def test_halves_are_quantised_to_even_and_what_is_not_finite_is_an_error() -> None:
    step = {"quantize": {"scale": 1, "to": "int8"}}
    spec = tensor_input(step, element_type="int8")
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])
    assert preprocess([halves], spec).tolist() == [[-2, -2, 0, 0, 2, 2]]
    for wrong in (np.nan, np.inf):
        with pytest.raises(DatasetError, match="quantize: it has NaN or infinity; correct"):
            preprocess([np.array([wrong])], spec)


@pytest.mark.parametrize(("to", "zero"), [("uint8", -128), ("int8", 128), ("int16", 40000)])
def test_a_zero_point_is_a_number_of_its_type(to: str, zero: int) -> None:
    step = {"quantize": {"scale": 1, "zero_point": zero, "to": to}}
    with pytest.raises(ValueError, match=f"zero_point {zero} is no {to}; write one of"):
        tensor_input(step, element_type=to)


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
    asked = decoding_of(content, spec)
    pixels = decode(asked.content, asked.mode, asked.upright, asked.steps)
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
