"""Lines and pages of text, upright and turned: rendered in Pillow's own font, and photographed.

The photographed text is scikit-image's page.png. The words are those of its documentation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from manifests.zoo.compose.packages import folder_of, picture

__all__ = ["compose_lines", "compose_orientations", "compose_pages", "compose_words"]

Pixels = NDArray[np.uint8]
Size = tuple[int, int]
"""Height and width."""

_SEED = 16
_PUNCTUATION = "'\"`.,:;()[]{}=#*"
_LENGTHS = range(3, 10)  # letters of a word
_LINE = (48, 192)
_WIDE_LINE = (48, 320)
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
    found = [word.strip(_PUNCTUATION) for word in text.split()]
    return [word for word in found if _is_plain(word)]


def _is_plain(word: str) -> bool:
    return word.isalpha() and word.isascii() and len(word) in _LENGTHS


def render(text: str, size: Size, points: int, rng: np.random.Generator) -> Pixels:
    """Return text in dark on light, or light on dark; height x width."""
    height, width = size
    ink, paper = (30, 225) if rng.random() < 0.8 else (230, 40)
    page = Image.new("L", (width, height), paper)
    font = ImageFont.load_default(points)
    draw = ImageDraw.Draw(page)
    draw.text((4, height // 2), text, fill=ink, font=font, anchor="lm")
    return np.asarray(page)


def _drawn(values: range, rng: np.random.Generator) -> int:
    """Return one of the numbers of a range."""
    return int(rng.integers(values.start, values.stop))


def _phrase(known: Sequence[str], start: int, count: int) -> str:
    """Return so many words that follow each other."""
    return " ".join(known[start : start + count])


def _photograph() -> Image.Image:
    """Return page.png in shades of grey."""
    return Image.fromarray(picture("page.png")).convert("L")


def compose_lines() -> dict[str, NDArray[np.generic]]:
    """Return lines as image (N x 48 x 192), and label: 0 upright, 1 upside down."""
    rng = np.random.default_rng(_SEED)
    lines = _photographed_lines()
    known = words()
    for _ in range(48):
        start = _drawn(range(len(known) - 2), rng)
        text = _phrase(known, start, 2)
        points = _drawn(range(22, 32), rng)
        lines.append(render(text, _LINE, points, rng))
    labels = np.arange(len(lines), dtype=np.int64) % 2
    quarters = [2 * int(label) for label in labels]
    return {"image": _turned(lines, quarters), "label": labels}


def _photographed_lines() -> list[Pixels]:
    """Return parts of the lines of page.png."""
    page = np.asarray(_photograph())
    height, width = _LINE
    found = []
    for top in (47, 66, 84, 100, 117):
        for left in (5, 75, 145):
            part = page[top : top + 20, left : left + 72]
            line = Image.fromarray(part).resize((width, height), Image.Resampling.BICUBIC)
            found.append(np.asarray(line))
    return found


def _turned(images: Sequence[Pixels], quarters: Sequence[int]) -> Pixels:
    """Return images, each turned clockwise by so many quarters."""
    turned = []
    for image, count in zip(images, quarters, strict=True):
        turned.append(np.rot90(image, -count))
    return np.array(turned)


def compose_orientations() -> dict[str, NDArray[np.generic]]:
    """Return pages as image (N x 256 x 256), turned clockwise by label x 90 degrees."""
    pages = list(compose_pages()["image"])
    labels = np.arange(len(pages), dtype=np.int64) % 4
    return {"image": _turned(pages, labels.tolist()), "label": labels}


def compose_pages() -> dict[str, Pixels]:
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


def _page(known: Sequence[str], rng: np.random.Generator) -> tuple[Pixels, Pixels]:
    """Return a page of several lines, and the cores of these."""
    height, width = _PAGE
    page = Image.new("L", (width, height), _drawn(range(200, 250), rng))
    mask = np.zeros(_PAGE, dtype=np.uint8)
    draw = ImageDraw.Draw(page)
    top = _drawn(range(6, 20), rng)
    while top < height - 30:
        font = ImageFont.load_default(_drawn(range(18, 28), rng))
        left = _drawn(range(6, 40), rng)
        first, second = (known[_drawn(range(len(known)), rng)] for _ in range(2))
        text = f"{first} {second}"
        draw.text((left, top), text, fill=_drawn(range(70), rng), font=font)
        box = draw.textbbox((left, top), text, font=font)
        mask[_core(box)] = 1
        _, _, _, bottom = box
        gap = _drawn(range(8, 24), rng)
        top = int(bottom) + gap
    return np.asarray(page), mask


def _core(box: tuple[float, float, float, float]) -> tuple[slice, slice]:
    """Return the rows and columns of a line without its edges."""
    left, top, right, bottom = box
    edge = round((bottom - top) * _EDGE)
    rows = slice(int(top) + edge, int(bottom) - edge)
    columns = slice(int(left) + edge, int(right) - edge)
    return rows, columns


def compose_words() -> dict[str, NDArray[np.generic]]:
    """Return lines of 2 or 3 words as image (N x 48 x 320), and their texts as label."""
    rng = np.random.default_rng(_SEED)
    known = words()
    lines = []
    texts = []
    for _ in range(40):
        start = _drawn(range(len(known) - 3), rng)
        count = _drawn(range(2, 4), rng)
        text = _phrase(known, start, count)
        points = _drawn(range(20, 28), rng)
        lines.append(render(text, _WIDE_LINE, points, rng))
        texts.append(text)
    height, width = _WIDE_LINE
    page = _photograph()
    for box, text in _TRANSCRIBED.items():
        line = page.resize((width, height), Image.Resampling.BICUBIC, box)
        lines.append(np.asarray(line))
        texts.append(text)
    return {"image": np.array(lines), "label": np.array(texts)}
