"""Forms of Python code, and those of ``postprocess`` in manifests of MLHarness.

A form is a digest of code's tokens without the numbers, and the numbers in order. Nothing is run,
imported or compiled. Code of ``postprocess`` returns boxes as ymin, xmin, ymax, xmax, in shares of
the picture. So the order in which it takes a model's numbers tells the order of the model's boxes.
"""

from __future__ import annotations

import hashlib
import io
import re
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple


class Number(NamedTuple):
    """The name of a number of code, in place of the number."""

    name: str


Parameter = str | float | Sequence[float] | Number
"""The value of a step's parameter."""

Step = Mapping[str, Mapping[str, Parameter]]
"""A step as a manifest has it: its name, with its parameters."""


Values = Mapping[str, Sequence[Decimal]]
"""The numbers of a code by the names that a pattern has for them."""

_LONGEST_TEXT = 20_000  # characters, ten times those of the longest form
_DIGITS = 32  # of a digest
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{0,12})?|\.[0-9]{1,12}")
_WITHOUT_TEXT = {
    tokenize.NEWLINE: "end of line",
    tokenize.INDENT: "indent",
    tokenize.DEDENT: "dedent",
    tokenize.ENDMARKER: "end",
}
"""Tokens whose text is white space."""


@dataclass(frozen=True)
class CodeForm:
    """A digest of the tokens of code, in which each number is blank, and its numbers as written."""

    digest: str
    numbers: tuple[str, ...]


def code_form(text: str) -> CodeForm | None:
    """Return the form of code; None where it has no tokens of Python, or is very long.

    Comments, empty lines, blanks within lines and the depth of indentation make no difference.
    """
    if len(text) > _LONGEST_TEXT:
        return None
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, UnicodeError):
        return None
    digest = hashlib.sha256()
    numbers = []
    for token in tokens:
        if token.type in (tokenize.COMMENT, tokenize.NL):
            continue
        if token.type == tokenize.NUMBER:
            numbers.append(token.string)
        digest.update(_content(token).encode() + b"\n")
    return CodeForm(digest.hexdigest()[:_DIGITS], tuple(numbers))


def _content(token: tokenize.TokenInfo) -> str:
    """Return the part of a token that belongs to the form; numbers of kinds differ by Python."""
    if token.type == tokenize.NUMBER:
        return "number"
    if token.type in _WITHOUT_TEXT:
        return _WITHOUT_TEXT[token.type]
    return f"text {token.string!a}"


def read_values(pattern: str, numbers: Sequence[str]) -> Values | None:
    """Return the numbers of code by the words of a pattern; None where they don't fit it.

    A word that is a number is one that the code must have. All others are names; numbers of one
    name are equal, unless it ends with ``+``, which stands for a list.
    """
    words = pattern.split()
    if len(words) != len(numbers):
        return None
    values: dict[str, list[Decimal]] = {}
    for word, text in zip(words, numbers, strict=True):
        if not _DECIMAL.fullmatch(text):
            return None
        number = Decimal(text)
        if word[0].isdigit():
            expected = Decimal(word)
        elif word.endswith("+"):
            values.setdefault(word.removesuffix("+"), []).append(number)
            continue
        else:
            expected = values.setdefault(word, [number])[0]
        if number != expected:
            return None
    return values


def whole_number(values: Values, name: str, least: int = 0, most: int = 10_000) -> int | None:
    """Return the value of a name as a whole number of a range; None where it is none."""
    if name not in values:
        return None
    value = values[name][0]
    if value != int(value) or not least <= value <= most:
        return None
    return int(value)


class OutputPart(NamedTuple):
    """An output of the model: the name of the number that is its place, its type and steps."""

    place: str
    type: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class OutputForm:
    """Code that reads the outputs of a model.

    ``numbers`` are the names of its numbers. ``background`` is the name of the number that is the
    class of what is no object.
    """

    numbers: str
    task: str
    outputs: tuple[OutputPart, ...]
    background: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def _objects(boxes: Step, *choices: Step) -> tuple[OutputPart, ...]:
    """Return outputs of boxes, scores and classes."""
    return (
        OutputPart("boxes", "boxes", (boxes, *choices)),
        OutputPart("scores", "scores"),
        OutputPart("classes", "classes"),
    )


def _scored_boxes() -> tuple[OutputPart, ...]:
    """Return outputs of boxes, and of scores of each class of each box."""
    return (
        OutputPart("boxes", "boxes", (_SHARES_XY,)),
        OutputPart("scores", "scores", ({"best_class": {}},)),
    )


_BEST: Step = {"top_k": {"k": 1}}
_DROP: Step = {"drop_background": {"index": 0}}
_SHARES_YX: Step = {"boxes": {"format": "yxyx", "units": "relative"}}
_SHARES_XY: Step = {"boxes": {"format": "xyxy", "units": "relative"}}
_PIXELS_XY: Step = {"boxes": {"format": "xyxy", "units": "pixels"}}
_MIN_SCORE: Step = {"min_score": {"score": Number("min_score")}}
_IN_BOX: Step = {"masks": {"frame": "box"}}
_PASTED: Step = {"masks": {"frame": "box", "threshold": Number("threshold")}}
_RESIZED: Step = {"mask": {"resize": "nearest"}}
_SCALED: Step = {"image": {"layout": "NCHW", "scale": Number("scale")}}

_NEAREST = "the code resizes the classes of pixels to the picture, by the nearest"
_PAINTED = "the code paints all objects into one picture, where earlier ones cover later ones"

OUTPUT_FORMS: Mapping[str, OutputForm] = {
    # softmax over the classes: 153
    "922c99245fbae1479e41cfc54887717e": OutputForm(
        "place 1",
        "image-classification",
        (OutputPart("place", "classification", ({"softmax": {}},)),),
    ),
    # the first output: 48
    "ca61d71f1b1e0b90b375a6f32ccbd2b7": OutputForm(
        "place",
        "image-classification",
        (OutputPart("place", "classification"),),
    ),
    # the best class: 15
    "8d9a10e5f1d4a9778487548ff53c2146": OutputForm(
        "place 1",
        "image-classification",
        (OutputPart("place", "classification", (_BEST,)),),
    ),
    # all classes but the first one: 3
    "3816c2a0ec310acd5f53a4724b893f9e": OutputForm(
        "place 1",
        "image-classification",
        (OutputPart("place", "classification", (_DROP,)),),
    ),
    # the best class but the first one: 3
    "f5d37d78c1544deb53a60014a186740f": OutputForm(
        "place 1 1",
        "image-classification",
        (OutputPart("place", "classification", (_DROP, _BEST)),),
    ),
    # TensorFlow's detection: 18
    "a6901bb6ef71a57d8309a044cb2c300f": OutputForm(
        "rows rows scores classes boxes",
        "object-detection",
        _objects(_SHARES_YX),
    ),
    # scores, classes, and boxes that begin with x: 1
    "50da5ff25860809944efb806b031f2ed": OutputForm(
        "rows rows scores classes boxes 1 0 3 2",
        "object-detection",
        _objects(_SHARES_XY),
    ),
    # the same, of so much score: 2
    "658226d1e41846ea3dbbd434326535e6": OutputForm(
        "rows boxes classes scores min_score 1 1 1 1 0 3 2",
        "object-detection",
        _objects(_SHARES_XY, _MIN_SCORE),
        notes=("the code stops at the first box of less score",),
    ),
    # TensorFlow's detection in ONNX: 1
    "41f422e22c242c4553b995888cab38a1": OutputForm(
        "rows boxes classes scores 1 1 1 0 1 2 3",
        "object-detection",
        _objects(_SHARES_YX),
    ),
    # the same, of so much score: 1
    "441d3d132fa7420d938a408d3ee30b3c": OutputForm(
        "rows boxes classes scores min_score 1 1 1 0 1 2 3",
        "object-detection",
        _objects(_SHARES_YX, _MIN_SCORE),
    ),
    # GluonCV's SSD and YOLO: boxes in pixels, empty rows of class -1: 10
    "f24b9477214fb6062266cbba7b411584": OutputForm(
        "rows rows scores 0 classes 0 boxes 1 1 height 0 width 3 height 2 width",
        "object-detection",
        _objects(_PIXELS_XY, {"min_score": {"score": 0.0}}),
        notes=("rows of class -1 are empty, and have a score below 0",),
    ),
    # boxes with a score for each class: 4
    "21c131c153fd6e6358a3186f7446ec51": OutputForm(
        "rows boxes scores 1 scores 1 background 1 1 1 1 0 3 2",
        "object-detection",
        _scored_boxes(),
        background="background",
    ),
    # the best class of each pixel: 4
    "50cba45085ab3a67908c9e5490a1932b": OutputForm(
        "place 1",
        "semantic-segmentation",
        (OutputPart("place", "mask", ({"argmax": {"axis": 1}},)),),
    ),
    # classes of pixels, in the size of the picture: 6
    "769a3d030a5d93dd055a180429a4612a": OutputForm(
        "place place",
        "semantic-segmentation",
        (OutputPart("place", "mask", (_RESIZED,)),),
        notes=(_NEAREST,),
    ),
    # one picture with the number of the object in each pixel: 4
    "ef46992c48c349cdd5e20db85e3c4033": OutputForm(
        "0 rows rows scores classes boxes masks min_score 0 1 2 3 0 0 threshold 0 1",
        "instance-segmentation",
        (*_objects(_SHARES_YX, _MIN_SCORE), OutputPart("masks", "masks", (_PASTED,))),
        notes=(_PAINTED,),
    ),
    # boxes, scores, classes and masks: 4
    "24e5799e5c67e453553a39a337dc5b3f": OutputForm(
        "rows rows scores classes boxes masks",
        "instance-segmentation",
        (*_objects(_SHARES_YX), OutputPart("masks", "masks", (_IN_BOX,))),
    ),
    # nothing but a line on the terminal: 1
    "c7a60c2b1d04f310ac06b224befa3d56": OutputForm(
        "",
        "instance-segmentation",
        (),
        warnings=("the code prints what the model returns, and returns nothing",),
    ),
    # a picture: 3
    "1ed88703e5f8d418a1c6a7f9e6963837": OutputForm(
        "scale place 0 2 3 1",
        "image-enhancement",
        (OutputPart("place", "image", (_SCALED,)),),
    ),
    # logits of the first and the last token of an answer: 3
    "70097c7d921885c0ab63ee1e34a3e383": OutputForm(
        "start end 1 0",
        "question-answering",
        (OutputPart("start", "span_start"), OutputPart("end", "span_end")),
    ),
    # a volume: 1
    "2aa877c3931225d768b67fd67d8fce72": OutputForm(
        "place 0",
        "semantic-segmentation",
        (OutputPart("place", "tensor"),),
        notes=("the code returns the model's numbers; their classes are found elsewhere",),
    ),
}
"""Digest of code -> the form; the count of the 285 files that have it is beside each."""
