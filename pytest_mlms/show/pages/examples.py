"""View of the worst inputs of an item, as its artifact worst.json has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from pytest_mlms.core.files import read_regular
from pytest_mlms.core.serialization import from_plain, parse_json
from pytest_mlms.measure.evaluate.tasks.task import BoxMark
from pytest_mlms.show.pages.item import ItemView

WORST = "worst.json"
"""The name of the artifact."""

_MOST_BYTES = 2**20


@dataclass(frozen=True)
class Waveform:
    """A sound: its seconds, and the least and the greatest sample of each of its columns.

    Samples are from -1 to 1.
    """

    seconds: float
    lows: tuple[float, ...]
    highs: tuple[float, ...]


@dataclass(frozen=True)
class Example:
    """One of the worst inputs.

    ``columns`` are those of predictions.csv. ``picture`` is the artifact with its thumbnail, ""
    without one, and ``boxes`` are in shares of the picture: left, top, width and height. ``texts``
    are the inputs that are texts. ``has_instances`` is whether masks are drawn one by one.
    """

    input: int
    name: str
    loss: float | None
    columns: Mapping[str, str]
    picture: str = ""
    has_masks: bool = False
    has_instances: bool = False
    boxes: tuple[BoxMark, ...] = ()
    texts: Mapping[str, str] | None = None
    waveform: Waveform | None = None


@dataclass(frozen=True)
class Examples:
    """The worst inputs, of how many, and how many of them are wrong at all."""

    inputs: int
    wrong: int
    examples: tuple[Example, ...]


def read_examples(item: ItemView) -> Examples | None:
    """Return the worst inputs of an item; None where they are missing or the file is damaged."""
    path = item.artifact(WORST)
    if path is None:
        return None
    try:
        return from_plain(Examples, parse_json(read_regular(path, _MOST_BYTES)))
    except (OSError, ValueError, ValidationError):
        return None
