"""Lines and pages of text, upright and turned: rendered in Pillow's own font, and photographed.

The photographed text is scikit-image's page.png. The words are those of its documentation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from manifests.zoo.compose.packages import folder_of, picture

__all__ = ["compose_lines", "compose_orientations", "compose_pages", "compose_words"]

Pixels = NDArray[np.uint8]

_SEED = 16
_LINE = (48, 192)
_PAGE = (256, 256)
_TRANSCRIBED = {
    (3, 10, 154, 35): "Region-based",
    (4, 47, 130, 66): "Let us first",
    (88, 47, 224, 66): "determine markers",
    (128, 65, 264, 84): "markers are pixels",
    (4, 83, 104, 102): "unambiguously",
    (128, 83, 224, 102): "either object",
    (4, 99, 112, 118): "the markers are",
    (113, 101, 238, 120): "found at the two",
}
"""Left, top, right and bottom of parts of page.png, and what stands there."""
_EDGE = 0.22
"""The share of a line's height that PP-OCR's detectors are trained to leave out on each side."""


def words() -> list[str]:
    """Return words of scikit-image's documentation, in its order."""
    path = folder_of("scikit-image==0.26.0", "skimage/data") / "_fetchers.py"
    text = path.read_text(encoding="utf-8")
    found = [word.strip("'\"`.,:;()[]{}=#*") for word in text.split()]
    return [word for word in found if word.isalpha() and word.isascii() and 3 <= len(word) <= 9]


def render(text: str, size: tuple[int, int], points: int, rng: np.random.Generator) -> Pixels:
    """Return text in dark on light, or light on dark; height x width."""
    ink, paper = (30, 225) if rng.random() < 0.8 else (230, 40)
    page = Image.new("L", (size[1], size[0]), paper)
    font = ImageFont.load_default(points)
    ImageDraw.Draw(page).text((4, size[0] // 2), text, fill=ink, font=font, anchor="lm")
    return np.asarray(page)


def compose_lines() -> dict[str, NDArray[np.generic]]:
    """Return lines as image (N x 48 x 192), and label: 0 upright, 1 upside down."""
    rng = np.random.default_rng(_SEED)
    lines = _photographed_lines()
    known = words()
    for _ in range(48):
        start = int(rng.integers(len(known) - 2))
        text = " ".join(known[start : start + 2])
        lines.append(render(text, _LINE, int(rng.integers(22, 32)), rng))
    labels = np.arange(len(lines), dtype=np.int64) % 2
    turned = [
        line[::-1, ::-1] if label else line for line, label in zip(lines, labels, strict=True)
    ]
    return {"image": np.array(turned), "label": labels}


def _photographed_lines() -> list[Pixels]:
    """Return parts of the lines of page.png."""
    page = np.asarray(Image.fromarray(picture("page.png")).convert("L"))
    found = []
    for top in (47, 66, 84, 100, 117):
        for left in (5, 75, 145):
            line = Image.fromarray(page[top : top + 20, left : left + 72])
            size = (_LINE[1], _LINE[0])
            found.append(np.asarray(line.resize(size, Image.Resampling.BICUBIC)))
    return found


def compose_orientations() -> dict[str, NDArray[np.generic]]:
    """Return pages as image (N x 256 x 256), turned clockwise by label x 90
    degrees.
    """
    pages = compose_pages()["image"]
    labels = np.arange(len(pages), dtype=np.int64) % 4
    turned = [np.rot90(page, -int(label)) for page, label in zip(pages, labels, strict=True)]
    return {"image": np.array(turned), "label": labels}


def compose_pages() -> dict[str, NDArray[np.generic]]:
    """Return pages of text as image (N x 256 x 256), and as label the cores of their lines."""
    rng = np.random.default_rng(_SEED)
    known = words()
    pages = []
    masks = []
    for _ in range(24):
        page, mask = _page(known, rng)
        pages.append(page)
        masks.append(mask)
    return {"image": np.array(pages), "label": np.array(masks)}


def _page(known: list[str], rng: np.random.Generator) -> tuple[Pixels, Pixels]:
    """Return a page of several lines, and the cores of these."""
    height, width = _PAGE
    page = Image.new("L", (width, height), int(rng.integers(200, 250)))
    mask = np.zeros(_PAGE, dtype=np.uint8)
    draw = ImageDraw.Draw(page)
    top = int(rng.integers(6, 20))
    while top < height - 30:
        font = ImageFont.load_default(int(rng.integers(18, 28)))
        left = int(rng.integers(6, 40))
        text = " ".join(known[int(rng.integers(len(known)))] for _ in range(2))
        draw.text((left, top), text, fill=int(rng.integers(0, 70)), font=font)
        box = draw.textbbox((left, top), text, font=font)
        edge = round((box[3] - box[1]) * _EDGE)
        mask[int(box[1]) + edge : int(box[3]) - edge, int(box[0]) + edge : int(box[2]) - edge] = 1
        top = int(box[3]) + int(rng.integers(8, 24))
    return np.asarray(page), mask


def compose_words() -> dict[str, NDArray[np.generic]]:
    """Return lines of 2 or 3 words as image (N x 48 x 320), and their texts as label."""
    rng = np.random.default_rng(_SEED)
    known = words()
    lines = []
    texts = []
    for _ in range(40):
        start = int(rng.integers(len(known) - 3))
        text = " ".join(known[start : start + int(rng.integers(2, 4))])
        lines.append(render(text, (48, 320), int(rng.integers(20, 28)), rng))
        texts.append(text)
    for (left, top, right, bottom), text in _TRANSCRIBED.items():
        page = Image.fromarray(picture("page.png")).convert("L")
        box = (left, top, right, bottom)
        lines.append(np.asarray(page.resize((320, 48), Image.Resampling.BICUBIC, box)))
        texts.append(text)
    return {"image": np.array(lines), "label": np.array(texts)}
