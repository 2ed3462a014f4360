"""--shape: the axes of inputs that a model leaves open, as the user says them."""

from __future__ import annotations

import argparse

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest.schema import BATCH


def add_shapes(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        type=input_shape,
        metavar="NAME=SIZE,…",
        dest="shapes",
        help="axes of an input, with 'batch' for that of the batch: audio=batch,16000; may be "
        "repeated",
    )


def input_shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    """Return the name of an input and its axes; none are those of a single number."""
    name, equals, value = text.rpartition("=")
    words = [word.strip() for word in value.split(",")] if value.strip() else []
    are_axes = all(word == BATCH or (word.isdecimal() and int(word) > 0) for word in words)
    if not (equals and name and are_axes and words.count(BATCH) < 2):
        example = "audio=batch,16000"
        problem = f"{text!r} is not NAME=SIZE,…, sizes above 0 and 'batch' for one axis"
        raise argparse.ArgumentTypeError(f"{problem}, as in {example}")
    return name, tuple(word if word == BATCH else int(word) for word in words)


def shapes_of(options: argparse.Namespace) -> dict[str, tuple[int | str, ...]]:
    """Return the shape of each input that has one. Raises MlmsError for an input with several."""
    found: dict[str, tuple[int | str, ...]] = {}
    for name, shape in options.shapes:
        if name in found:
            raise MlmsError(f"--shape {name}=… is there twice; keep one")
        found[name] = shape
    return found
