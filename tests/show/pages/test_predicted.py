"""Answers as people see them: bars, numbered boxes, masks, texts and numbers."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

from pytest_mlms.show.pages.html import environment
from pytest_mlms.show.pages.predicted import (
    ShownAnswer,
    agreement_of,
    input_picture,
    input_sound,
    shown_answers,
)
from tests.support.result_lines import HOSTILE

BYTES = np.frombuffer(b"some file", np.uint8)
PICTURE = {"input.size": np.array([100, 200]), "input.png": BYTES}


def answer(plain: Any, **shown: Any) -> ShownAnswer:
    (found,) = shown_answers({"y": plain}, {**PICTURE, **shown})
    return found


def ranked(*scores: float | None, share: bool = True) -> list[dict[str, Any]]:
    return [
        {"label": f"class {n}", "index": n, "score": score, "is_probability": share}
        for n, score in enumerate(scores)
    ]


def box(label: str = "cat", score: float = 0.5, edges: Any = (20, 10, 100, 50)) -> dict[str, Any]:
    return {"label": label, "score": score, "box": list(edges), "mask": None}


def test_shares_are_bars_of_the_whole_and_scores_of_the_best() -> None:
    rows = answer(ranked(0.75, 0.25)).rows
    assert [(row.label, row.value, row.share) for row in rows] == [
        ("class 0", "75.0 %", 0.75),
        ("class 1", "25.0 %", 0.25),
    ]
    assert 'width="75"' in rows[0].bar
    assert [row.share for row in answer(ranked(8, 2, share=False)).rows] == [1, 0.25]


@pytest.mark.parametrize("scores", [(3, -1), (None,), (0, 0)])
def test_scores_that_have_no_length_have_no_bars(scores: Any) -> None:
    rows = answer(ranked(*scores, share=False)).rows
    assert [row.share for row in rows] == [None] * len(scores)


def test_objects_are_numbered_boxes_in_units_of_the_picture_and_rows_of_their_colours() -> None:
    found = answer([box(), box("dog", 0.25, (0, 0, 200, 100))])
    assert found.caption == "2 objects"
    assert [(row.label, row.value, row.place) for row in found.rows] == [
        ("cat", "0.5", "20 10 – 100 50"),
        ("dog", "0.25", "0 0 – 200 100"),
    ]
    parsed = ET.fromstring(found.picture or "")
    edges = [one.attrib for one in parsed.iter("rect") if one.attrib["fill"] == "none"]
    assert [(one["x"], one["y"], one["width"], one["height"]) for one in edges] == [
        ("0", "0", "280", "140"),
        ("28", "14", "112", "56"),
    ]
    assert edges[1]["stroke"] == found.rows[0].colour
    assert [one.text for one in parsed.iter("text")] == ["2", "1"]
    assert parsed.attrib["aria-label"] == "2 objects: cat 0.5, dog 0.25"


def test_many_objects_are_the_surest_of_them_and_none_is_told() -> None:
    found = answer([box()] * 50)
    assert found.caption == "50 objects, the 30 surest of them are shown"
    assert len(found.rows) == 30
    assert answer([]).caption == "nothing was found"


def test_a_box_that_is_not_finite_is_a_row_without_a_mark() -> None:
    found = answer([box(edges=(None, 1, 2, 3))])
    assert found.rows[0].place == "? 1 – 2 3"
    assert "<rect" not in (found.picture or "")


def test_a_mask_is_over_the_picture_with_a_row_of_each_class() -> None:
    classes = np.array([[0, 0.75], [2, 0.25]])
    plain = {"dtype": "int64", "shape": [100, 200], "values": None}
    found = answer(plain, **{"y.png": BYTES, "y.classes": classes})
    assert [(row.label, row.value) for row in found.rows] == [
        ("class 0", "75.0 %"),
        ("class 2", "25.0 %"),
    ]
    assert found.rows[0].colour == "none"
    assert '<use href="#input"/>' in (found.picture or "")
    assert "data:image/png;base64," in (found.picture or "")
    (alone,) = shown_answers({"y": plain}, {"y.png": BYTES, "y.classes": classes})
    assert (alone.picture or "").startswith("<img ")


def test_other_arrays_are_their_type_shape_and_first_values() -> None:
    plain = {"dtype": "float32", "shape": [2, 4], "values": None}
    found = answer(plain, **{"y.first": np.arange(6, dtype=np.float32) / 3})
    assert (found.caption, found.text) == (
        "float32 2 x 4",
        "0 0.333333 0.666667 1 1.33333 1.66667 …",
    )
    assert (
        answer({"dtype": "int8", "shape": [], "values": 7}, **{"y.first": np.array([7])}).text
        == "7"
    )
    picture = answer({"dtype": "float64", "shape": [2, 2, 3], "values": None}, **{"y.png": BYTES})
    assert (picture.picture or "").startswith("<img ")


def test_texts_are_shown_whole_unless_they_are_long() -> None:
    assert answer({"text": "two\nlines \x1b[31m"}).text == "two\nlines \\x1b[31m"
    assert answer({"text": ""}).caption == "an empty text"
    assert len(answer({"text": "x" * 10**6}).text) <= 4000


def test_names_of_strangers_are_escaped() -> None:
    plain = [{**box(HOSTILE)}, {**box(HOSTILE)}]
    page = environment().get_template("_predicted.html").module
    for found in (
        answer(plain),
        answer({"text": HOSTILE}),
        answer([{**ranked(0.5)[0], "label": HOSTILE}]),
    ):
        made = str(page.answers([found, found]))  # type: ignore[attr-defined]
        assert "<script>" not in made
        assert "&lt;script&gt;" in made
    for drawn in (input_picture(PICTURE, HOSTILE), input_sound({"input.wav": BYTES}, HOSTILE)):
        assert drawn is not None
        assert "<script>" not in drawn


def test_small_pictures_are_squares_and_other_inputs_have_neither_picture_nor_sound() -> None:
    small = {"input.size": np.array([8, 8]), "input.png": BYTES}
    assert "pixelated" in (input_picture(small, "x") or "")
    assert "pixelated" not in (input_picture(PICTURE, "x") or "")
    assert input_picture({}, "x") is input_sound({}, "x") is None


def test_the_best_classes_of_several_models_are_compared() -> None:
    lines = [{"answers": {"y": ranked(0.9)}}, {"answers": {"z": ranked(0.7)}}]
    assert agreement_of(lines) == "All 2 answer class 0."
    other = [{**ranked(0.5)[0], "label": "cat"}]
    lines.append({"answers": {"z": other}})
    assert agreement_of(lines) == "They differ: class 0 (2), cat (1)."
    assert agreement_of(lines[:1]) == agreement_of([*lines, {"answers": {"y": [box()]}}]) == ""
