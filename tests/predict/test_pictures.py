"""What shows an input and its answers: encoded anew, in the colours and sizes that pages expect."""

from __future__ import annotations

import io
import wave
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from pytest_mlms.manifest.schema import Input, Output
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.shown import COLOURS
from pytest_mlms.predict.answers import Answer, DetectedObject, RankedLabel
from pytest_mlms.predict.pictures import shown_of

PICTURE = {"name": "x", "type": "image", "element_type": "float32", "layout": "NHWC"}
SOUND = {"name": "x", "type": "audio", "element_type": "float32", "sample_rate": 100}
SECRET = b"taken at home"


def shown(element: Any, kind: str = "tensor", answer: Answer = (), spec: Any = PICTURE) -> Any:
    dataset = Dataset("", (Input.model_validate(spec),), {"x": [element]}, None)
    output = Output.model_validate({"name": "y", "type": kind})
    return shown_of(dataset, [output], {"y": answer})


def picture(width: int, height: int, **extra: Any) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(file, "png", **extra)
    return file.getvalue()


def opened(content: Any) -> Image.Image:
    return Image.open(io.BytesIO(content.tobytes()))


def test_a_picture_is_encoded_anew_without_what_its_file_tells() -> None:
    note = PngInfo()
    note.add_text("comment", SECRET.decode())
    given = picture(1000, 400, pnginfo=note, exif=Image.Exif())
    assert SECRET in given
    found = shown(given + b"<script>")
    assert found["input.size"].tolist() == [400, 1000]
    assert opened(found["input.png"]).size == (512, 205)
    assert SECRET not in found["input.png"].tobytes()
    assert b"<script>" not in found["input.png"].tobytes()


def test_boxes_are_in_a_picture_that_is_turned_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    spec = {**PICTURE, "steps": [{"decode": {"color": "RGB", "orientation": "exif"}}]}
    found = shown(picture(40, 20, exif=exif), spec=spec)
    assert found["input.size"].tolist() == [40, 20]
    assert opened(found["input.png"]).size == (20, 40)


@pytest.mark.parametrize("element", [b"", b"GIF89a", np.zeros((2, 3, 4, 5)), "a text"])
def test_an_input_that_is_no_picture_has_none(element: Any) -> None:
    assert shown(element) == {}


def test_objects_have_the_colours_of_their_ranks_and_the_surest_is_on_top() -> None:
    left, both = np.zeros((2, 2, 4), bool)
    left[:, :2] = both[:] = True
    answer = tuple(
        DetectedObject(str(rank), 0.5, (0, 0, 1, 1), mask) for rank, mask in enumerate((left, both))
    )
    pixels = np.asarray(opened(shown(picture(4, 2), "boxes", answer)["y.png"]))
    assert [tuple(one) for one in pixels[0]] == [(*COLOURS[0], 255)] * 2 + [(*COLOURS[1], 255)] * 2


def test_a_mask_has_colours_of_its_classes_none_for_class_0_and_their_shares() -> None:
    mask = np.array([[0, 0, 1, 7]], np.int64)
    found = shown(picture(4, 1), "mask", mask)
    assert found["y.classes"].tolist() == [[0, 0.5], [1, 0.25], [7, 0.25]]
    pixels = np.asarray(opened(found["y.png"]))[0]
    assert [tuple(one) for one in pixels[2:]] == [(*COLOURS[0], 255)] * 2
    assert pixels[:2, 3].tolist() == [0, 0]


def test_a_mask_has_the_size_of_the_picture_and_without_one_its_own() -> None:
    mask = np.ones((3, 5), np.uint8)
    assert opened(shown(picture(50, 20), "mask", mask)["y.png"]).size == (50, 20)
    assert opened(shown(b"", "mask", mask)["y.png"]).size == (5, 3)


@pytest.mark.parametrize(("white", "expected"), [(1.0, 255), (255.0, 255), (100.0, 100)])
def test_an_image_is_clipped_to_what_a_screen_has(white: float, expected: int) -> None:
    values = np.full((2, 2, 3), white)
    values[0, 0] = np.nan
    values[0, 1] = -5
    pixels = np.asarray(opened(shown(b"", "image", values)["y.png"]))
    assert (pixels[0] == 0).all()
    assert (pixels[1] == expected).all()


@pytest.mark.parametrize("values", [np.ones((2, 2, 7)), np.ones(4), np.array(["a"]), np.ones(0)])
def test_an_array_that_is_no_picture_has_its_first_values(values: Any) -> None:
    for kind in ("image", "mask", "tensor"):
        assert shown(b"", kind, values)["y.first"].tolist() == values.reshape(-1)[:6].tolist()


def test_a_sound_is_its_beginning_as_the_model_hears_it() -> None:
    found = shown(np.linspace(-2, 2, 9000, dtype=np.float32), spec=SOUND)
    with wave.open(io.BytesIO(found["input.wav"].tobytes())) as sound:
        assert (sound.getframerate(), sound.getnframes(), sound.getnchannels()) == (100, 3000, 1)
        first = np.frombuffer(sound.readframes(1), "<i2")
    assert first.tolist() == [-32767]
    assert shown(b"no sound", spec=SOUND) == {}


def test_ranked_labels_need_nothing_that_shows_them() -> None:
    assert shown(b"", "classification", (RankedLabel("a", 0, 0.5, True),)) == {}
