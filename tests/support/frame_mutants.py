"""Mutants of the frames of a recorded conversation."""

from __future__ import annotations

import copy
import io
import json
import random
from typing import Any, NamedTuple

import numpy as np
from mlms_predictors._run import protocol

__all__ = ["Frame", "frames_of", "mutant"]

_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1 << 70,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "NaN",
    "\x00\ud800",
    "x" * 100_000,
    [],
    [[]],
    {},
    {"type": "error"},
)
_BYTES = (b"\n", b"{}\n", b"NaN", b"1e999", b"9" * 5000, b"[" * 100_000, b"\xff", b"", b"-")


class Frame(NamedTuple):
    """A header, and the bytes of its arrays."""

    header: dict[str, Any]
    body: bytes

    def encode(self) -> bytes:
        return json.dumps(self.header).encode() + b"\n" + self.body


def frames_of(conversation: bytes) -> list[Frame]:
    """Return the frames of a conversation."""
    stream = io.BytesIO(conversation)
    frames = []
    while stream.tell() < len(conversation):
        begin = stream.tell()
        protocol.read_frame(stream)
        line, _, body = conversation[begin : stream.tell()].partition(b"\n")
        frames.append(Frame(json.loads(line), body))
    return frames


def mutant(frames: list[Frame], seed: int) -> bytes:
    """Return the bytes of a conversation in which something is wrong."""
    chance = random.Random(seed)
    frames = list(frames)
    place = chance.randrange(len(frames))
    kind = chance.randrange(8)
    if kind < 5:
        header = copy.deepcopy(frames[place].header)
        _change_value(header, chance)
        frames[place] = Frame(header, frames[place].body)
    elif kind == 5:
        frames.insert(place, chance.choice(frames))
    elif kind == 6:
        frames[place] = Frame(frames[place].header, _wrong_body(frames[place].body, chance))
    data = b"".join(frame.encode() for frame in frames)
    return _wrong_bytes(data, chance) if kind == 7 else data


def _change_value(node: Any, chance: random.Random) -> None:
    """Replace or remove a value somewhere below a JSON object or array."""
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = chance.choice(keys)
        child = node[key]
        if not isinstance(child, (dict, list)) or not child or not chance.randrange(3):
            break
        node = child
    if chance.randrange(4):
        node[key] = chance.choice(_VALUES)
    else:
        del node[key]


def _wrong_body(body: bytes, chance: random.Random) -> bytes:
    if not body:
        return b"x"
    numbers = np.frombuffer(body[: len(body) // 8 * 8], np.float64).copy()
    if numbers.size and chance.randrange(2):
        numbers[chance.randrange(numbers.size)] = np.nan
        return numbers.tobytes() + body[numbers.nbytes :]
    return body[: chance.randrange(len(body))]


def _wrong_bytes(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data))
    left_out = chance.choice((0, 0, 1, 2, 100))
    return data[:place] + chance.choice(_BYTES) + data[place + left_out :]
