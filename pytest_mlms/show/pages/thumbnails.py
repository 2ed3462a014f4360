"""Thumbnails of inputs as SVG: a picture in the file itself, with boxes drawn on it."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from pytest_mlms.core.files import read_regular
from pytest_mlms.measure.evaluate.tasks.task import BoxMark
from pytest_mlms.show.pages.svg import element

COLOURS = {"label": "#ffd60a", "right": "#2fd575", "wrong": "#ff3b30"}
"""Kind of a box -> its colour, on pictures of any colour."""

_PNG = b"\x89PNG\r\n\x1a\n"
_MOST_BYTES = 2**20
_SIDE = 128.0
_SMALL = 64  # pixels


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


def _size_of(data: bytes) -> tuple[int, int]:
    """Return width and height of a PNG, or of a JPEG, from its header; raises ValueError."""
    if data.startswith(_PNG):
        width, height = struct.unpack(">II", data[16:24])
        return _checked(width, height)
    if not data.startswith(b"\xff\xd8"):
        raise ValueError("neither PNG nor JPEG")
    position = 2
    while position + 9 < len(data):
        marker, length = struct.unpack(">xBH", data[position : position + 4])
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[position + 5 : position + 9])
            return _checked(width, height)
        position += 2 + length
    raise ValueError("a JPEG without a size")


def _checked(width: int, height: int) -> tuple[int, int]:
    if not width or not height:
        raise ValueError("an empty picture")
    return width, height
