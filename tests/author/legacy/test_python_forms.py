"""Recognition of the Python in legacy manifests."""

from __future__ import annotations

import io
import keyword
import os
import re
import tokenize
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_mlms.author.legacy.code_forms import OUTPUT_FORMS, code_form
from pytest_mlms.author.legacy.preprocess_forms import PICTURE_FORMS, TENSOR_FORMS
from pytest_mlms.author.legacy.python_forms import (
    Postprocess,
    Preprocess,
    recognise_postprocess,
    recognise_preprocess,
)
from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.pipeline import preprocess
from tests.support.embedded_python import POSTPROCESS, PREPROCESS
from tests.support.legacy_manifests import input_of

CORPUS = os.environ.get("MLMS_LEGACY_CORPUS")

SHOULD_BE_RGB = {"mean": [30.0, 20.0, 10.0]}
SHOULD_BE_BGR = {"mean": [10.0, 20.0, 30.0]}
SHARES = {"mean": [127.5, 63.75, 31.875], "scale": [51.0, 25.5, 102.0]}
STORED = {"decode": {"orientation": "stored"}}
DECODE: Mapping[str, Any] = {"decode": {}}
BGR = {"decode": {"color": "BGR"}}
AREA = {"resize": {"shortest": 32, "library": "opencv", "method": "area"}}
LINEAR = {"resize": {"shortest": 32, "library": "opencv", "method": "bilinear"}}
CROP = {"crop": {"size": [28, 28]}}
TORCH_CROP = [{"resize": {"shortest": 40}}, {"crop": {"size": [32, 32], "library": "torchvision"}}]
OPENCV = {"resize": {"size": [24, 36], "library": "opencv"}}
FLOATS = {"cast": {"to": "float32"}}
CUT = {"cast": {"to": "uint8"}}

STEPS: Mapping[str, tuple[str, Sequence[Any]]] = {
    "torchvision": ("NCHW float32", [STORED, *TORCH_CROP, {"normalize": SHARES}]),
    "torchvision_shares": (
        "NCHW float32",
        [STORED, *TORCH_CROP, {"normalize": {"mean": [12, 11, 10], "scale": [20, 30, 40]}}],
    ),
    "torchvision_stretch": (
        "NCHW float32",
        [STORED, {"resize": {"size": [24, 36]}}, {"normalize": SHARES}],
    ),
    "torchvision_as_is": ("NCHW float32", [STORED, {"normalize": SHARES}]),
    "torchvision_to_tensor": ("NCHW float32", [STORED, {"normalize": {"scale": [255]}}]),
    "mlperf_scale": (
        "NHWC float32",
        [DECODE, AREA, CROP, {"normalize": {**SHOULD_BE_RGB, "scale": [50]}}],
    ),
    "mlperf": ("NHWC float32", [DECODE, AREA, CROP, {"normalize": SHOULD_BE_RGB}]),
    "mlperf_vgg": ("NHWC float32", [DECODE, AREA, CROP, {"normalize": SHOULD_BE_RGB}]),
    "mlperf_vgg_channels_first": (
        "NCHW float32",
        [DECODE, AREA, CROP, {"normalize": SHOULD_BE_RGB}],
    ),
    "mlperf_without_means": ("NCHW float32", [DECODE, AREA, CROP]),
    "mlperf_bgr": ("NHWC float32", [BGR, AREA, CROP, {"normalize": SHOULD_BE_BGR}]),
    "mlperf_mobilenet": (
        "NCHW float32",
        [DECODE, LINEAR, CROP, {"normalize": {"mean": [127.5], "scale": [127.5]}}],
    ),
    "cifar": (
        "NCHW float32",
        [DECODE, {"resize": {"size": [16, 32], "library": "opencv"}}, {"normalize": SHARES}],
    ),
    "cifar_unreachable": (
        "NCHW float32",
        [DECODE, {"resize": {"size": [16, 32], "library": "opencv"}}, {"normalize": SHARES}],
    ),
    "coco_mobilenet": ("NHWC uint8", [DECODE, FLOATS, OPENCV, CUT]),
    "coco_resnet": ("NCHW float32", [DECODE, FLOATS, OPENCV, {"normalize": SHARES}]),
    "coco_resnet_means": ("NHWC float32", [DECODE, FLOATS, OPENCV, {"normalize": SHOULD_BE_RGB}]),
    "deeplab": ("NHWC uint8", [BGR, FLOATS, OPENCV, CUT]),
    "as_is": ("NHWC uint8", [DECODE]),
    "as_is_remembering": ("NHWC uint8", [DECODE]),
    "shares": ("NHWC float32", [DECODE, {"normalize": {"scale": [255]}}]),
    "bgr": ("NCHW float32", [BGR, {"normalize": SHOULD_BE_BGR}]),
}
"""Name of a text -> layout and element type, and steps."""

YX = {"boxes": {"format": "yxyx", "units": "relative"}}
XY = {"boxes": {"format": "xyxy", "units": "relative"}}
HALF = {"min_score": {"score": 0.5}}
DROP = {"drop_background": {"index": 0}}
BEST = {"top_k": {"k": 1}}
PAINTED = [YX, {"min_score": {"score": 0.6}}]
CLASSES = "image-classification"
OBJECTS = "object-detection"
MASKED = "instance-segmentation"
PIXELS = "semantic-segmentation"

OUTPUTS: Mapping[str, tuple[str, Mapping[str, tuple[int, Sequence[Any]]]]] = {
    "softmax": (CLASSES, {"classification": (1, [{"softmax": {}}])}),
    "as_is": (CLASSES, {"classification": (1, [])}),
    "best": (CLASSES, {"classification": (1, [BEST])}),
    "without_background": (CLASSES, {"classification": (1, [DROP])}),
    "best_without_background": (CLASSES, {"classification": (1, [DROP, BEST])}),
    "objects": (OBJECTS, {"boxes": (2, [YX]), "scores": (1, []), "classes": (0, [])}),
    "objects_x_first": (OBJECTS, {"boxes": (0, [XY]), "scores": (2, []), "classes": (1, [])}),
    "pixels": (
        OBJECTS,
        {
            "boxes": (
                2,
                [{"boxes": {"format": "xyxy", "units": "pixels"}}, {"min_score": {"score": 0}}],
            ),
            "scores": (1, []),
            "classes": (0, []),
        },
    ),
    "detections_until": (
        OBJECTS,
        {"boxes": (0, [XY, HALF]), "scores": (2, []), "classes": (1, [])},
    ),
    "detections": (OBJECTS, {"boxes": (1, [YX]), "scores": (2, []), "classes": (3, [])}),
    "detections_from": (OBJECTS, {"boxes": (1, [YX, HALF]), "scores": (2, []), "classes": (3, [])}),
    "scored": (OBJECTS, {"boxes": (1, [XY]), "scores": (0, [{"best_class": {}}])}),
    "classes_of_pixels": (PIXELS, {"mask": (1, [{"argmax": {"axis": 1}}])}),
    "resized_classes": (PIXELS, {"mask": (0, [{"mask": {"resize": "nearest"}}])}),
    "painted": (
        MASKED,
        {
            "boxes": (2, PAINTED),
            "scores": (1, []),
            "classes": (0, []),
            "masks": (3, [{"masks": {"frame": "box", "threshold": 0.4}}]),
        },
    ),
    "masks": (
        MASKED,
        {
            "boxes": (2, [YX]),
            "scores": (1, []),
            "classes": (0, []),
            "masks": (3, [{"masks": {"frame": "box"}}]),
        },
    ),
    "printed": (MASKED, {}),
    "picture": ("image-enhancement", {"image": (1, [{"image": {"layout": "NCHW", "scale": 255}}])}),
    "spans": ("question-answering", {"span_start": (0, []), "span_end": (1, [])}),
    "volume": (PIXELS, {"tensor": (1, [])}),
}
"""Name of a text -> the task, and outputs by type: their places and steps."""


def preprocess_of(text: str) -> Preprocess:
    found = recognise_preprocess(text)
    assert found is not None
    return found


def postprocess_of(text: str) -> Postprocess:
    found = recognise_postprocess(text)
    assert found is not None
    return found


def test_there_is_a_text_of_each_form() -> None:
    forms = {preprocess_of(text).form for text in PREPROCESS.values()}
    assert forms == {*PICTURE_FORMS, *TENSOR_FORMS}
    assert {postprocess_of(text).form for text in POSTPROCESS.values()} == set(OUTPUT_FORMS)


@pytest.mark.parametrize("name", STEPS)
def test_each_form_of_preprocess_has_its_steps(name: str) -> None:
    found = preprocess_of(PREPROCESS[name])
    kind, steps = STEPS[name]
    assert (found.layout, *found.element_types) == tuple(kind.split())
    assert list(found.steps) == steps
    assert input_of(found).layout == found.layout


def test_tensors_come_from_the_dataset() -> None:
    tokens = preprocess_of(PREPROCESS["tokens"])
    assert (tokens.type, tokens.element_types) == ("tensor", ("int64", "int64", "int64"))
    assert preprocess_of(PREPROCESS["volume"]).element_types == ("float32",)
    assert input_of(tokens).steps == []


@pytest.mark.parametrize("name", OUTPUTS)
def test_each_form_of_postprocess_has_its_outputs(name: str) -> None:
    found = postprocess_of(POSTPROCESS[name])
    task, outputs = OUTPUTS[name]
    assert found.task == task
    assert {each.type: (each.place, list(each.steps)) for each in found.outputs} == outputs
    for each in found.outputs:
        fields = {"name": "y", "type": each.type, "steps": list(each.steps)}
        assert Output.model_validate(fields).type == each.type


def test_boxes_in_pixels_have_the_size_of_the_input() -> None:
    assert postprocess_of(POSTPROCESS["pixels"]).frame == (24, 36)
    assert postprocess_of(POSTPROCESS["objects"]).frame is None


def test_the_background_of_scores_is_told() -> None:
    assert postprocess_of(POSTPROCESS["scored"]).background == 3
    assert postprocess_of(POSTPROCESS["detections"]).background is None


@pytest.mark.parametrize(
    ("recognise", "text", "words"),
    [
        (recognise_preprocess, PREPROCESS["deeplab"], "blue and red twice"),
        (recognise_postprocess, POSTPROCESS["printed"], "returns nothing"),
        (
            recognise_preprocess,
            PREPROCESS["mlperf"].replace("[30, 20, 10]", "[10.50, 20, 30]"),
            "the means 10.5, 20, 30 look like those of BGR, and the picture is RGB",
        ),
        (
            recognise_preprocess,
            PREPROCESS["bgr"].replace("[10, 20, 30]", "[30, 20, 10]"),
            "look like those of RGB, and the picture is BGR",
        ),
    ],
)
def test_a_defect_is_a_warning(recognise: Any, text: str, words: str) -> None:
    (warning,) = recognise(text).warnings
    assert words in warning


def test_other_texts_have_no_warnings() -> None:
    warned = [name for name, text in PREPROCESS.items() if preprocess_of(text).warnings]
    assert warned == ["deeplab"]


def test_the_steps_compute_what_the_code_does() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (50, 71, 3), np.uint8)
    picture = Image.fromarray(pixels)
    resized = picture.resize((56, 40), Image.Resampling.BILINEAR)
    cropped = np.asarray(resized.crop((12, 4, 44, 36)), np.float32) / 255
    expected = (cropped - [0.5, 0.25, 0.125]) / [0.2, 0.1, 0.4]
    (found,) = preprocess([encoded(picture)], input_of(preprocess_of(PREPROCESS["torchvision"])))
    assert np.allclose(found, expected.transpose(2, 0, 1), atol=1e-5)


def test_bytes_of_a_picture_as_it_is_are_those_of_the_file() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    png = encoded(Image.fromarray(pixels))
    (found,) = preprocess([png], input_of(preprocess_of(PREPROCESS["as_is"])))
    assert (found == pixels).all()
    (found,) = preprocess([png], input_of(preprocess_of(PREPROCESS["bgr"])))
    reversed_pixels = pixels[..., ::-1].astype(np.float32)
    assert (found == (reversed_pixels - [10, 20, 30]).transpose(2, 0, 1)).all()


def test_floats_that_are_resized_lose_their_fractions() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 18, 3), np.uint8)
    png = encoded(Image.fromarray(pixels))
    form = preprocess_of(PREPROCESS["coco_mobilenet"])
    (found,) = preprocess([png], input_of(form))
    uncut = {"element_type": "float32", "steps": input_of(form).steps[:-1]}
    (exact,) = preprocess([png], input_of(form).model_copy(update=uncut))
    assert (found == np.floor(exact)).all()
    assert (found != np.round(exact)).any()


def encoded(picture: Image.Image) -> bytes:
    content = io.BytesIO()
    picture.save(content, "PNG")
    return content.getvalue()


NUMBERS = st.decimals(0, 999, allow_nan=False, allow_infinity=False, places=3)
POSITIVE = st.decimals("0.001", 999, allow_nan=False, allow_infinity=False, places=3)


@given(st.lists(NUMBERS, min_size=3, max_size=3), POSITIVE, st.integers(1, 2000))
def test_numbers_become_those_of_the_steps(means: list[Any], scale: Any, size: int) -> None:
    text = PREPROCESS["mlperf_scale"].replace(
        "[30, 20, 10]", f"[{means[0]}, {means[1]}, {means[2]}]"
    )
    text = text.replace("scale = 50", f"scale = {scale}").replace(
        "[28, 28, 3]", f"[{size}, {size}, 3]"
    )
    found = preprocess_of(text)
    assert found.steps[1]["resize"]["shortest"] == int(100.0 * size / 87.5)
    assert found.steps[2]["crop"]["size"] == [size, size]
    normalize = found.steps[3]["normalize"]
    assert normalize["mean"] == [float(mean) for mean in means]
    assert normalize.get("scale", [1.0]) == [float(scale)]
    assert found.form == preprocess_of(PREPROCESS["mlperf_scale"]).form


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("mlperf", "[28, 28, 3]", "[28, 30, 3]"),
        ("mlperf", "[28, 28, 3]", "[28, 28, 4]"),
        ("mlperf", "[28, 28, 3]", "[0, 0, 3]"),
        ("mlperf", "[28, 28, 3]", "[28.5, 28.5, 3]"),
        ("mlperf", "[28, 28, 3]", "[99999, 99999, 3]"),
        ("mlperf", "[2, 0, 1]", "[2, 1, 0]"),
        ("mlperf", "scale=87.5", "scale=90"),
        ("mlperf_scale", "scale = 50", "scale = 0"),
        ("mlperf_scale", "scale = 50", "scale = 1e400"),
        ("mlperf_scale", "scale = 50", "scale = 50j"),
        ("mlperf_scale", "scale = 50", "scale = 0x50"),
        ("mlperf_scale", "scale = 50", f"scale = {'9' * 400}"),
        ("torchvision", "CenterCrop(32)", "CenterCrop(41)"),
        ("torchvision_shares", "12/255", "12/256"),
    ],
)
def test_numbers_that_no_step_has_are_not_recognised(name: str, old: str, new: str) -> None:
    text = PREPROCESS[name]
    assert old in text
    assert recognise_preprocess(text.replace(old, new)) is None


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("softmax", "axis = 1", "axis = 0"),
        ("softmax", "data[1]", "data[99]"),
        ("objects", "data[2]", "data[1]"),
        ("objects_x_first", "box[3]", "box[2]"),
        ("pixels", "box[3] / 24", "box[3] / 25"),
    ],
)
def test_other_places_are_not_recognised(name: str, old: str, new: str) -> None:
    text = POSTPROCESS[name]
    assert old in text
    assert recognise_postprocess(text.replace(old, new, 1)) is None


TEXTS = st.sampled_from([*PREPROCESS.values(), *POSTPROCESS.values()])
SPACES = st.sampled_from(["\n", "   \n", "# a comment\n", "\t# another\n\n", "\f\n"])
ENDS = st.sampled_from(["\n", "  \n", " # a comment\n"])


@given(TEXTS, st.integers(1, 4), st.data())
def test_comments_and_white_space_do_not_change_a_form(
    text: str, depth: int, data: st.DataObject
) -> None:
    lines = []
    for line in text.splitlines():
        code = line.lstrip()
        indent = " " * (len(line) - len(code)) * depth
        lines += [data.draw(SPACES), indent, code.replace(", ", " ,\t"), data.draw(ENDS)]
    assert code_form("".join(lines)) == code_form(text)


@given(TEXTS, st.data())
def test_another_name_changes_a_form(text: str, data: st.DataObject) -> None:
    names = sorted({token for token in names_of(text) if not keyword.iskeyword(token)})
    name = data.draw(st.sampled_from(names))
    changed = re.sub(rf"\b{name}\b", f"{name}_", text)
    assert recognise_preprocess(changed) is None
    assert recognise_postprocess(changed) is None


def names_of(text: str) -> Sequence[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.NAME]


@given(TEXTS, st.data())
def test_a_text_with_a_character_less_is_recognised_or_not(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text) - 1))
    changed = text[:place] + data.draw(st.text(max_size=2)) + text[place + 1 :]
    for found in (recognise_preprocess(changed), recognise_postprocess(changed)):
        assert found is None or found.form


@pytest.mark.parametrize(
    "text", ["", "def", "(", "'''", "\0", "\ud800", "  x\n y", "(" * 300, "#" * 30_000, "é = ٣"]
)
def test_what_is_no_form_is_not_recognised(text: str) -> None:
    assert recognise_preprocess(text) is None
    assert recognise_postprocess(text) is None


def test_a_text_is_never_run(tmp_path: Path) -> None:
    path = tmp_path / "run"
    text = PREPROCESS["as_is"] + f"\nopen({str(path)!r}, 'w')\n"
    assert recognise_preprocess(text) is None
    assert not path.exists()


@pytest.mark.skipif(not CORPUS, reason="MLMS_LEGACY_CORPUS names no folder of legacy manifests")
def test_all_code_of_the_corpus_is_recognised() -> None:
    before: Counter[str] = Counter()
    after: Counter[str] = Counter()
    for path in sorted(Path(str(CORPUS), "c3sr+dlmodel").rglob("*.yml")):
        content = yaml.load(path.read_bytes(), yaml.CSafeLoader)
        if "preprocess" in content:
            before[preprocess_of(content["preprocess"]).form] += 1
            after[postprocess_of(content["postprocess"]).form] += 1
    assert (before.total(), after.total()) == (285, 285)
    assert (len(before), len(after)) == (24, 20)
    assert sorted(before.values())[-6:] == [9, 14, 21, 27, 42, 127]
    assert sorted(after.values())[-6:] == [6, 10, 15, 18, 48, 153]
