"""Answers of a model for an input, as people see them: bars, boxes, masks, texts, numbers."""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from pytest_mlms.core.text import shortened, visible
from pytest_mlms.measure.pipeline.shown import COLOURS
from pytest_mlms.predict.pictures import MOST_OBJECTS
from pytest_mlms.show.pages.drawing import FONT, element, filled

_SIDE = 280.0  # of a picture, in its units: its numbers can be read in a quarter of a window
_MOST_CLASSES = 8  # of a mask
_LONGEST = 4000  # characters of a text
_SPOKEN = 3  # objects or classes in the words for a picture
_SMALL = 64  # pixels: smaller pictures are shown as squares
_INPUT = "input"  # the id of the picture of the input
_LONGEST_LABEL = 200  # characters
_TAG = 15.0  # height of the number of an object
_DIGIT = 7.5

Shown = Mapping[str, NDArray[Any]]
"""The arrays that show an input and its answers, by the names of ``predict.pictures.shown_of``."""


class AnswerRow(NamedTuple):
    """A line of an answer: a class or an object.

    ``value`` is its score or share as a text, ``share`` the length of its bar from 0 to 1, None
    without one. ``colour`` is that on the picture, "" without.
    """

    label: str
    value: str = ""
    share: float | None = None
    colour: str = ""
    place: str = ""

    @property
    def bar(self) -> Markup:
        """A bar of this share of its line."""
        length = 100 * (self.share or 0)
        rects = [
            element("rect", width=100, height=6, **filled("grid")),
            element("rect", width=length, height=6, **filled("b")),
        ]
        shape = {"viewBox": "0 0 100 6", "preserveAspectRatio": "none"}
        return element("svg", *rects, class_="bar", aria_hidden="true", **shape)

    @property
    def swatch(self) -> Markup:
        """A square of its colour."""
        square = element("rect", width=10, height=10, fill=self.colour)
        return element("svg", square, viewBox="0 0 10 10", class_="swatch", aria_hidden="true")


@dataclass(frozen=True)
class ShownAnswer:
    """The answer of an output: a caption, and what of a picture, rows and a text it has."""

    output: str
    caption: str
    rows: Sequence[AnswerRow] = ()
    picture: Markup | None = None
    text: str = ""


def shown_answers(answers: Mapping[str, Any], shown: Shown) -> Iterator[ShownAnswer]:
    """Yield the answers of a line of ``mlms predict --json``, by the names of their outputs."""
    for output, answer in answers.items():
        if isinstance(answer, Mapping):
            yield _of_values(output, answer, shown)
        elif answer and "box" in answer[0]:
            yield _of_objects(output, answer, shown)
        elif answer:
            yield _of_classes(output, answer)
        else:
            yield ShownAnswer(output, "nothing was found")


def _of_classes(output: str, ranked: Sequence[Mapping[str, Any]]) -> ShownAnswer:
    scores = [one["score"] for one in ranked]
    have_bars = all(score is not None and score >= 0 for score in scores)
    longest = 1.0 if ranked[0].get("is_probability") else max(scores) if have_bars else 0.0
    rows = []
    for one, score in zip(ranked, scores, strict=True):
        share = score / longest if have_bars and longest > 0 else None
        rows.append(AnswerRow(_label(one["label"]), _score(one), share))
    return ShownAnswer(output, "", rows)


def _score(one: Mapping[str, Any]) -> str:
    score = one["score"]
    if score is None:
        return ""
    return f"{100 * score:.1f} %" if one.get("is_probability") else f"{score:.4g}"


def _of_objects(output: str, objects: Sequence[Mapping[str, Any]], shown: Shown) -> ShownAnswer:
    rows, marks = [], []
    height, width = shown.get("input.size", (0, 0))
    scale = _SIDE / max(height, width, 1)
    for number, one in enumerate(objects[:MOST_OBJECTS]):
        colour = _colour(number)
        place = "{} {} – {} {}".format(*map(_edge, one["box"]))
        rows.append(AnswerRow(_label(one["label"]), _score(one), None, colour, place))
        if None not in one["box"]:
            box = [scale * edge for edge in one["box"]]
            marks.append(_box(number + 1, box, colour, f"{rows[-1].label} {rows[-1].value}"))
    count = f"{len(objects):,} object{'s' if len(objects) > 1 else ''}"
    more = f", the {MOST_OBJECTS} surest of them are shown" if len(objects) > MOST_OBJECTS else ""
    spoken = ", ".join(f"{row.label} {row.value}" for row in rows[:_SPOKEN])
    drawn = _on_input(shown, f"{count}: {spoken}", marks[::-1], shown.get(f"{output}.png"))
    return ShownAnswer(output, f"{count}{more}", rows, drawn)


def _edge(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


def _box(number: int, box: Sequence[float], colour: str, title: str) -> Markup:
    """Return a box in units of the picture, with its number in its upper left corner."""
    left, top, right, bottom = box
    sizes: dict[str, Any] = {"width": max(right - left, 0), "height": max(bottom - top, 0)}
    lines: dict[str, Any] = {
        "fill": "none",
        "stroke": colour,
        "stroke_width": 2.0,
        "pointer_events": "all",
    }
    width = _DIGIT * len(str(number)) + 6
    corner, above = max(left, 0), max(top, 0)
    tag = element("rect", x=corner, y=above, width=width, height=_TAG, fill=colour)
    text: dict[str, Any] = {"x": corner + width / 2, "y": above + 11.5, "text_anchor": "middle"}
    return element(
        "g",
        element("rect", x=left, y=top, **sizes, **lines),
        tag,
        element("text", str(number), fill="#000", font_weight="600", **text),
        title=title,
    )


def _of_values(output: str, answer: Mapping[str, Any], shown: Shown) -> ShownAnswer:
    if "text" in answer:
        text = visible(shortened(answer["text"], _LONGEST))
        return ShownAnswer(output, "" if text else "an empty text", text=text)
    kind = f"{answer['dtype']} {' x '.join(map(str, answer['shape']))}".rstrip()
    png = shown.get(f"{output}.png")
    classes = shown.get(f"{output}.classes")
    if png is None:
        first = shown.get(f"{output}.first", np.array([]))
        more = " …" if math.prod(answer["shape"]) > first.size else ""
        return ShownAnswer(output, kind, text=f"{' '.join(map(_value, first))}{more}")
    if classes is None:
        return ShownAnswer(output, kind, picture=_image(png, f"{output}, {kind}"))
    rows = []
    for number, share in classes[:_MOST_CLASSES].tolist():
        colour = _colour(int(number) - 1) if number > 0 else "none"
        rows.append(AnswerRow(f"class {number:.0f}", f"{100 * share:.1f} %", None, colour))
    spoken = ", ".join(f"{row.label} {row.value}" for row in rows[:_SPOKEN])
    picture = _on_input(shown, f"pixels of {spoken}", [], png)
    return ShownAnswer(output, f"classes of pixels: {len(classes):,}", rows, picture)


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, np.number) else visible(shortened(str(value), 40))


def _on_input(
    shown: Shown, label: str, marks: Sequence[Markup], png: NDArray[Any] | None = None
) -> Markup | None:
    """Return a picture and marks over that of ``input_picture``, which is on the same page."""
    if "input.size" not in shown:
        return None if png is None else _image(png, label)
    across, down = _sizes(shown)
    parts = [element("use", href=f"#{_INPUT}")]
    if png is not None:
        over = {"href": _data(png, "image/png"), "opacity": "0.55", "preserveAspectRatio": "none"}
        parts.append(element("image", width=across, height=down, **over))
    return _svg([*parts, *marks], across, down, label)


def input_picture(shown: Shown, name: str) -> Markup | None:
    """Return the picture of the input, once a page; None where it is none."""
    if "input.png" not in shown:
        return None
    across, down = _sizes(shown)
    rendering = "pixelated" if max(shown["input.size"]) <= _SMALL else None
    data = {"href": _data(shown["input.png"], "image/png"), "preserveAspectRatio": "none"}
    size: dict[str, Any] = {"width": across, "height": down}
    image = element("image", id=_INPUT, image_rendering=rendering, **size, **data)
    return _svg([image], across, down, f"input {name}")


def input_sound(shown: Shown, name: str) -> Markup | None:
    """Return what plays the sound of the input; None where it is none."""
    if "input.wav" not in shown:
        return None
    source = _data(shown["input.wav"], "audio/wav")
    player = '<audio controls preload="metadata" aria-label="{}" src="{}"></audio>'
    return Markup(player).format(visible(name), source)


def _sizes(shown: Shown) -> tuple[float, float]:
    """Return width and height of the input's picture in units."""
    height, width = shown["input.size"].tolist()
    scale = _SIDE / max(height, width)
    return width * scale, height * scale


def _svg(parts: Sequence[Markup], across: float, down: float, label: str) -> Markup:
    box = f"0 0 {across:.1f} {down:.1f}"
    text: dict[str, Any] = {"font_family": "system-ui, sans-serif", "font_size": FONT}
    names: dict[str, Any] = {"role": "img", "aria_label": label, "class_": "picture"}
    return element("svg", *parts, viewBox=box, width=across, height=down, **text, **names)


def _image(png: NDArray[Any], label: str) -> Markup:
    image = Markup('<img class="picture" alt="{}" src="{}">')
    return image.format(visible(label), _data(png, "image/png"))


def _data(content: NDArray[Any], kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content.tobytes()).decode()}"


def _colour(number: int) -> str:
    """Return the colour of an object or a class by its number, from 0."""
    return "#{:02x}{:02x}{:02x}".format(*COLOURS[number % len(COLOURS)])


def _label(label: str) -> str:
    return visible(shortened(label, _LONGEST_LABEL))


def agreement_of(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return whether models have the same best class, by their lines of ``mlms predict --json``.

    It is "" for less than two, and where one of them has no classes.
    """
    best: Counter[str] = Counter()
    for line in lines:
        ranked = (one for one in line["answers"].values() if _is_ranked(one))
        first = next(ranked, None)
        if first is not None:
            best[_label(first[0]["label"])] += 1
    if len(lines) < 2 or best.total() != len(lines):
        return ""
    if len(best) == 1:
        return f"All {len(lines)} answer {next(iter(best))}."
    return f"They differ: {', '.join(f'{name} ({count})' for name, count in best.most_common())}."


def _is_ranked(answer: Any) -> bool:
    return isinstance(answer, list) and bool(answer) and "index" in answer[0]
