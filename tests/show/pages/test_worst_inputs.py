"""The worst inputs of an item on a page."""

from __future__ import annotations

import base64
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from PIL import Image

from pytest_mlms.measure.evaluate.tasks.task import BoxMark
from pytest_mlms.show.pages.examples import Waveform
from pytest_mlms.show.pages.worst_inputs import COLOURS, thumbnail, waveform_chart
from tests.support.result_lines import HOSTILE
from tests.support.svg import marks, texts, titles

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", ["w.png", "w.jpg"])
def test_a_picture_is_in_the_file_itself_in_its_own_shape(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    Image.new("RGB", (100, 50), "red").save(path)
    parsed = ET.fromstring(thumbnail(path, [], "row 1") or "")
    assert parsed.attrib["viewBox"] == "0 0 128.0 64.0"
    (image,) = parsed.iter(f"{SVG}image")
    kind, _, data = image.attrib["href"].partition(";base64,")
    assert kind in ("data:image/png", "data:image/jpeg")
    assert base64.b64decode(data) == path.read_bytes()


def test_a_picture_under_any_name_is_what_it_is_and_a_huge_one_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "w.gif"
    Image.new("L", (8, 8)).save(path, format="png")
    assert "data:image/png;base64," in (thumbnail(path, [], "row 1") or "")
    with path.open("ab") as file:
        file.truncate(1 << 34)
    assert thumbnail(path, [], "row 1") is None


def test_boxes_are_drawn_in_shares_with_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "w.png"
    Image.new("RGB", (128, 128)).save(path)
    marks = [
        BoxMark("label", HOSTILE, None, (0.5, 0.25, 0.25, 0.5)),
        BoxMark("wrong", "cat", 0.51, (0, 0, 1, 1)),
    ]
    svg = thumbnail(path, marks, "row 1") or ""
    label, wrong = ET.fromstring(svg).iter(f"{SVG}rect")
    assert (label.attrib["x"], label.attrib["height"]) == ("64", "64")
    assert label.attrib["stroke"] == COLOURS["label"]
    assert [title.text for title in wrong] == ["cat 0.510: detected, wrong"]
    assert "<script>" not in svg


@pytest.mark.parametrize(
    "content", [b"", b"<svg onload='x'/>", b"\xff\xd8\xff\xe0\x00\x10", b"\x89PNG"]
)
def test_a_file_that_is_no_picture_of_ours_is_left_out(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "w.png"
    path.write_bytes(content)
    assert thumbnail(path, [], "row 1") is None
    assert thumbnail(tmp_path / "missing.png", [], "row 1") is None


def test_a_sound_is_an_outline_with_its_length_and_loudness() -> None:
    svg = waveform_chart(Waveform(1.5, (-0.1, -0.25), (0.2, 0.5)), "a.wav")
    assert svg is not None
    assert titles(svg) == {"a.wav"}
    assert texts(svg) == {"1.50 s, loudest 0.5"}
    assert len(marks(svg, "path")) == 2


def test_silence_is_a_thin_line_and_no_sound_is_nothing() -> None:
    svg = waveform_chart(Waveform(1.0, (0.0,), (0.0,)), "a.wav")
    assert svg is not None
    assert "loudest 0" in svg
    assert waveform_chart(Waveform(0.0, (), ()), "a.wav") is None
    assert waveform_chart(Waveform(1.0, (0.0,), ()), "a.wav") is None
