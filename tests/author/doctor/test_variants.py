"""Variants of a manifest's pre-processing."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_mlms.author.doctor.changes import single_changes
from pytest_mlms.author.doctor.variants import pairs_of, step_lines, varied
from pytest_mlms.manifest.schema import Input

RGB = {"decode": {"color": "RGB"}}
IMAGENET = {"normalize": {"mean": [123.675, 116.28, 103.53], "scale": [58.395, 57.12, 57.375]}}


def image(*steps: Any, **fields: Any) -> Input:
    values = {"name": "x", "type": "image", "element_type": "float32", "layout": "NCHW"}
    return Input.model_validate({**values, **fields, "steps": list(steps)})


def lines(spec: Input, *names: str) -> list[str]:
    """Return the lines of an input after changes by name."""
    by_name = {change.name: change for change in single_changes([spec], has_classes=True)}
    variant = varied([spec], [by_name[name] for name in names])
    for made in variant.inputs:
        Input.model_validate({**made.model_dump(exclude={"steps"}), "steps": list(made.steps)})
    return [line.strip(" -") for line in step_lines(variant)]


RESIZE = {"resize": {"size": [224, 224], "method": "bicubic"}}
WHOLE = image(RGB, RESIZE, IMAGENET)


def test_numbers_are_written_with_all_their_digits() -> None:
    exact = image(RGB, {"normalize": {"mean": [123.6751234, 1e-5, 2], "scale": 255}})
    (_, _, step) = step_lines(varied([exact], []))
    assert step == "  - normalize: {mean: [123.6751234, 1e-05, 2], scale: 255}"


def test_what_is_written_is_no_variant() -> None:
    names = [change.name for change in single_changes([WHOLE], has_classes=True)]
    assert "ImageNet's mean and scale" not in names
    assert "resize: bicubic" not in names
    assert "stretch to the size" not in names
    assert {"BGR", "0..1", "-1..1", "0..255", "NHWC", "labels less 1"} <= set(names)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("BGR", "decode: {color: BGR}"),
        ("0..1", "normalize: {mean: 0, scale: 255}"),
        ("Caffe's means", "normalize: {mean: [123.68, 116.779, 103.939], scale: 1}"),
        ("resize: area of opencv", "resize: {size: [224, 224], method: area, library: opencv}"),
        ("ignore EXIF orientation", "decode: {color: RGB, orientation: stored}"),
        (
            "cover a larger size and crop",
            "resize: {size: [256, 256], method: bicubic, fit: cover}",
        ),
    ],
)
def test_a_change_is_the_line_to_write(name: str, expected: str) -> None:
    assert expected in lines(WHOLE, name)


def test_a_range_without_a_step_is_put_behind_the_picture() -> None:
    spec = image(RGB, RESIZE)
    assert lines(spec, "0..1")[-1] == "normalize: {mean: 0, scale: 255}"
    assert lines(WHOLE, "0..255") == lines(spec, "NHWC")[1:]


def test_means_are_in_the_order_of_the_colours() -> None:
    steps = lines(WHOLE, "BGR", "Caffe's means")
    assert steps[-1] == "normalize: {mean: [103.939, 116.779, 123.68], scale: 1}"


def test_dark_pixels_are_scaled_by_the_largest_of_them() -> None:
    grey = image({"decode": {"color": "L"}}, {"normalize": {"mean": 0, "scale": 255}})
    bright = {change.name for change in single_changes([grey], True)}
    changes = single_changes([grey], True, largest=16)
    assert {change.name for change in changes} - bright == {
        "0..1 of pixels up to 16",
        "-1..1 of pixels up to 16",
    }
    (change,) = (change for change in changes if change.name == "-1..1 of pixels up to 16")
    assert step_lines(varied([grey], [change]))[-1] == "  - normalize: {mean: 8, scale: 8}"


def test_pixels_that_stay_as_they_are_before_a_quantize_say_so() -> None:
    quantize = {"quantize": {"scale": 0.1, "to": "int8"}}
    spec = image({"decode": {"color": "L"}}, {"normalize": {"scale": 255}}, quantize)
    spec = spec.model_copy(update={"element_type": "int8"})
    (change,) = (one for one in single_changes([spec], False) if one.name == "0..255")
    assert "  - normalize: {mean: 0, scale: 1}" in step_lines(varied([spec], [change]))


def test_grey_pictures_have_neither_colours_nor_their_means() -> None:
    names = [change.name for change in single_changes([image({"decode": {"color": "L"}})], True)]
    assert not {"BGR", "RGB", "Caffe's means", "ImageNet's mean and scale"} & set(names)


def test_tensors_have_labels_only() -> None:
    spec = Input.model_validate({"name": "x", "type": "tensor", "element_type": "float32"})
    changes = single_changes([spec], has_classes=True)
    assert [change.name for change in changes] == ["labels less 1", "labels plus 1"]
    assert single_changes([spec], has_classes=False) == []


def test_pairs_are_colours_with_ranges_and_the_best_with_all() -> None:
    changes = single_changes([WHOLE], has_classes=True)
    assert all((one.axis, other.axis) == ("color", "scale") for one, other in pairs_of(changes, []))
    crop = next(change for change in changes if change.axis == "crop")
    pairs = list(pairs_of(changes, [crop]))
    assert len(pairs) == len({frozenset((one.name, other.name)) for one, other in pairs})
    assert all(one.axis != other.axis for one, other in pairs)
