"""The worst inputs of an item: pictures with boxes, waveforms of sounds, and what was predicted."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from pytest_mlms.core.files import read_regular
from pytest_mlms.core.units import format_quantity
from pytest_mlms.measure.evaluate.tasks.task import BoxMark
from pytest_mlms.show.pages.canvas import Context
from pytest_mlms.show.pages.drawing import element, filled, number, path_of, picture, stroked, words
from pytest_mlms.show.pages.examples import Example, Waveform, read_examples
from pytest_mlms.show.pages.item import ItemView

COLOURS = {"label": "#ffd60a", "right": "#2fd575", "wrong": "#ff3b30"}
"""Kind of a box -> its colour, on pictures of any colour."""

_OUTCOMES = ("found", "missed", "wrong")
_BOXES = "Dashed yellow boxes are labels; detections are green where right, red where wrong."
_MASKS = "Pixels in red are wrong, pixels of objects in green are right."
_INSTANCES = "Each detected instance has a colour of its own; the labels are outlined in yellow."

_PNG = b"\x89PNG\r\n\x1a\n"
_MOST_BYTES = 2**20
_SIDE = 128.0  # of a thumbnail
_SMALL = 64  # pixels

_WIDTH = 180.0  # of a waveform
_MIDDLE = 30.0  # the place of silence
_HALF = 28.0  # the height of the loudest sample
_THINNEST = 0.4  # half of the height that silence has
_HEIGHT = 76.0


class ShownExample(NamedTuple):
    """One of the worst inputs, as the template shows it: its picture, None without one."""

    example: Example
    picture: Markup | None
    summary: str


def worst_inputs_section(item: ItemView) -> Context | None:
    """Return the worst inputs, with pictures where they are kept."""
    found = read_examples(item)
    if found is None:
        return None
    shown = []
    for example in found.examples:
        summary = _summary(example)
        label = f"{example.name}: {summary}"
        path = item.artifact(example.picture) if example.picture else None
        drawn = None if path is None else thumbnail(path, example.boxes, label)
        if example.waveform is not None:
            drawn = waveform_chart(example.waveform, label)
        shown.append(ShownExample(example, drawn, summary))

    legend = []
    if any(example.boxes for example in found.examples):
        legend.append(_BOXES)
    if any(example.has_instances for example in found.examples):
        legend.append(_INSTANCES)
    elif any(example.has_masks for example in found.examples):
        legend.append(_MASKS)
    return {"found": found, "shown": shown, "legend": " ".join(legend)}


def _summary(example: Example) -> str:
    """Return prediction against truth in a line."""
    columns = example.columns
    if "class_1" in columns and "label" in columns:
        score = columns.get("probability_1") or columns.get("score_1") or ""
        best = f"predicted {columns['class_1']}"
        if score:
            best = f"{best} ({_value(score)})"
        return f"label {columns['label']}, {best}"
    if "detections" in columns:
        objects = columns["objects"]
        noun = "object" if objects == "1" else "objects"
        counts = [f"{columns[name]} {name}" for name in _OUTCOMES if columns[name] != "0"]
        return f"{objects} {noun}: {', '.join(counts)}"
    return ", ".join(f"{name} {_value(value)}" for name, value in columns.items())


def _value(text: str) -> str:
    """Return a cell, a number with three digits."""
    try:
        return f"{float(text):.3g}"
    except ValueError:
        return text or "(none)"


def thumbnail(path: Path, boxes: Sequence[BoxMark], label: str) -> Markup | None:
    """Return a picture of a file with boxes; None for a file that is no picture of ours."""
    try:
        data = read_regular(path, _MOST_BYTES)
        width, height = _size_of(data)
    except (OSError, ValueError, struct.error):
        return None
    kind = "png" if data.startswith(_PNG) else "jpeg"
    scale = _SIDE / max(width, height)
    across, down = width * scale, height * scale
    encoded = base64.b64encode(data).decode()
    rendering = "pixelated" if max(width, height) <= _SMALL else None
    image = element(
        "image",
        href=f"data:image/{kind};base64,{encoded}",
        width=across,
        height=down,
        image_rendering=rendering,
    )
    marks = [_box(mark, across, down) for mark in boxes]
    return element(
        "svg",
        image,
        *marks,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {across:.1f} {down:.1f}",
        width=across,
        height=down,
        role="img",
        aria_label=label,
        class_="thumbnail",
    )


def _size_of(data: bytes) -> tuple[int, int]:
    """Return width and height of a PNG, or of a JPEG, from its header; raises ValueError."""
    width = height = 0
    if data.startswith(_PNG):
        width, height = struct.unpack(">II", data[16:24])
    elif data.startswith(b"\xff\xd8"):
        position = 2
        while position + 9 < len(data):
            marker, length = struct.unpack(">xBH", data[position : position + 4])
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
                height, width = struct.unpack(">HH", data[position + 5 : position + 9])
                break
            position += 2 + length
    if not width or not height:
        raise ValueError("neither PNG nor JPEG, or without a size")
    return width, height


def _box(mark: BoxMark, across: float, down: float) -> Markup:
    left, top, width, height = mark.box
    score = "" if mark.score is None else f" {mark.score:.3f}"
    word = "label" if mark.kind == "label" else f"detected, {mark.kind}"
    return element(
        "rect",
        x=left * across,
        y=top * down,
        width=max(width * across, 0),
        height=max(height * down, 0),
        fill="none",
        stroke=COLOURS[mark.kind],
        stroke_width="1.6",
        stroke_dasharray="4 2" if mark.kind == "label" else None,
        pointer_events="all",
        title=f"{mark.name}{score}: {word}",
    )


def waveform_chart(waveform: Waveform, label: str) -> Markup | None:
    """Return a sound over its time, scaled to its loudest sample; None without any sample.

    ``label`` says of which input it is.
    """
    if not waveform.lows or len(waveform.lows) != len(waveform.highs):
        return None
    loudest = max(*waveform.highs, -min(waveform.lows))
    scale = _HALF / (loudest or 1.0)
    step = _WIDTH / len(waveform.lows)
    upper = []
    lower = []
    left = step / 2
    for low, high in zip(waveform.lows, waveform.highs, strict=True):
        upper.append((left, _MIDDLE - max(high * scale, _THINNEST)))
        lower.append((left, _MIDDLE - min(low * scale, -_THINNEST)))
        left += step
    outline = f"{path_of([*upper, *reversed(lower)])}z"

    silence = f"M0 {number(_MIDDLE)}H{number(_WIDTH)}"
    caption = f"{format_quantity(waveform.seconds, 's')}, loudest {loudest:.3g}"
    parts = [
        element("path", d=silence, **stroked("grid", 1)),
        element("path", d=outline, title=label, **filled("b")),
        words(0, _HEIGHT - 4, caption, "start", "muted"),
    ]
    return picture(f"sound of {label}", _HEIGHT, parts, width=_WIDTH)
