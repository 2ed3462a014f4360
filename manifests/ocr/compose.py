"""Compose lines.zip: pictures of lines of text, with their texts as labels.

Usage: python compose.py OUT.zip

Words and numbers are drawn at random, and set in the typeface that Pillow comes with (Aileron,
CC0), in several sizes and greys, a third of them with noise: 100 grey pictures of 32 x 320 pixels.
The pictures depend on the version of Pillow, so that those of the repository are kept.
"""

from __future__ import annotations

import io
import random
import sys
import zipfile

import numpy as np
from PIL import Image, ImageDraw, ImageFont

HEIGHT, WIDTH, MARGIN = 32, 320, 4
LINES = 100
SEED = 7
GREYS = 16

WORDS = """
ability about account across action amount animal answer around arrive article balance because
before bottle bridge budget camera capital century change chapter circle city coffee colour common
country culture danger data debate degree detail doctor dollar driver early earth effect engine
example family figure finger flower forest garden ground history hotel industry island kitchen
language letter machine market measure minute moment morning mountain nature number object office
orange paper person picture planet player police policy problem product quality question reason
record result river school science season second service signal simple society station story
street student summer system table teacher ticket travel treasure tree value village water weather
window winter wonder writer yellow
"""


def draw_text(generator: random.Random) -> str:
    """Return a line of one to three words and numbers."""
    return " ".join(draw_part(generator) for _ in range(generator.choice([1, 2, 2, 3])))


def draw_part(generator: random.Random) -> str:
    """Return a number, or a word in lower case, capitalised, or in capitals."""
    kind = generator.random()
    word = generator.choice(WORDS.split())
    if kind < 0.15:
        return str(generator.randrange(10, 100_000))
    if kind < 0.3:
        return f"{generator.randrange(1, 1000)}.{generator.randrange(100):02}"
    if kind < 0.5:
        return word.capitalize()
    return word.upper() if kind < 0.6 else word


def draw_picture(text: str, generator: random.Random) -> Image.Image:
    """Return a grey picture of a line."""
    noise = np.random.default_rng(generator.randrange(2**32))
    size = generator.choice([18, 20, 22, 24])
    while ImageFont.load_default(size).getlength(text) > WIDTH - 2 * MARGIN:
        size -= 1
    paper, ink = generator.randrange(200, 256), generator.randrange(90)
    picture = Image.new("L", (WIDTH, HEIGHT), paper)
    top = (HEIGHT - size) // 2 - 1 + generator.randrange(-1, 2)
    font = ImageFont.load_default(size)
    ImageDraw.Draw(picture).text((MARGIN, top), text, fill=ink, font=font)
    pixels = np.asarray(picture) + noise.normal(0, generator.choice([0, 0, 8]), (HEIGHT, WIDTH))
    step = 255 / (GREYS - 1)
    rounded = np.round(pixels.clip(0, 255) / step) * step  # fewer greys make smaller files
    return Image.fromarray(rounded.astype(np.uint8))


def main(path: str) -> None:
    """Write the archive: the pictures as PNG, and labels.csv."""
    generator = random.Random(SEED)
    rows = ["file,label"]
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(LINES):
            text = draw_text(generator)
            name = f"{number:03}.png"
            data = io.BytesIO()
            draw_picture(text, generator).save(data, "PNG", optimize=True)
            archive.writestr(zipfile.ZipInfo(name), data.getvalue())
            rows.append(f"{name},{text}")
        archive.writestr(zipfile.ZipInfo("labels.csv"), "\n".join([*rows, ""]))


if __name__ == "__main__":
    main(sys.argv[1])
