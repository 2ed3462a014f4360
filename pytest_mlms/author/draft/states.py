"""Inputs that are an output of the call before: states, caches and pasts, as a guess.

They are known by their names, beside an output of the same type and shape. Words such as old and
new also have a usual meaning, so that they need a word for a state beside them: ``old_price`` and
``new_price`` are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mlms_predictors import Tensor

from pytest_mlms.author.draft.axes import InputAxes, may_be_alike
from pytest_mlms.author.draft.opening import Trial
from pytest_mlms.author.draft.parts import InputPart, OutputPart

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_PAST_WORDS = ("past", "key", "values")
_CALL_BEFORE = ("past", "prev", "previous")
_BEFORE = (*_CALL_BEFORE, "old", "last", "init", "initial")
_AFTER = ("present", "next", "new", "updated")
_INWARD = (*_BEFORE, "in", "input", "i", "0")
_OUTWARD = (*_AFTER, "out", "output", "o", "n")
"""Words that a state has before a call only, and after it only."""
_LAST_ONLY = ("i", "0", "o", "n")
"""Those that are no words but at the end of a name."""
_STATE = re.compile(
    r"((state|cache|cached|hidden|mem|memory|buf|buffer|past|lstm|gru|rnn|cell|carry|history|context)"
    r"s?)+|memories"
)
"""Words by which a name is that of a state, also where they are written as one."""
_ACTIVATIONS = ("hidden", "states")  # what the layers of a transformer give each other
_PICTURES = ("image", "images", "img", "picture", "photo", "mask", "frame", "frames")
_STATE_NAMES = (("h",), ("c",))


class _Reading(NamedTuple):
    """A name without the word for its side of a call, and that word; "" where it has none."""

    words: tuple[str, ...]
    removed: str


def states_of(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> dict[str, str]:
    """Return the output that each state is taken from, by the names of inputs.

    Both have one type and shape, and names that differ in a word such as in and out, past and
    present, or n. There are none where all inputs would be states, which nothing tells from what a
    model changes.
    """
    found: dict[str, str] = {}
    for tensor in inputs:
        names = [
            other.name
            for other in outputs
            if other.dtype == tensor.dtype
            and may_be_alike(tensor, other)
            and _is_state(tensor, other.name)
        ]
        if len(names) == 1 and names[0] not in found.values():
            found[tensor.name] = names[0]
    return found if len(found) < len(inputs) else {}


def with_states(
    parts: Sequence[InputPart], states: Mapping[str, str], axes: Mapping[str, InputAxes]
) -> list[InputPart]:
    """Return inputs of which some are states, by the output that each is taken from."""
    return [
        _state(part, states[part.name], axes[part.name]) if part.name in states else part
        for part in parts
    ]


def _state(part: InputPart, output: str, axes: InputAxes) -> InputPart:
    reason = f"a guess: a state, by its name and shape, which is {output!r} of the call before"
    return InputPart(
        name=part.name,
        type="tensor",
        element_type=part.element_type,
        shape=axes.written,
        from_output=output,
        comment="; ".join(filter(None, (reason, part.comment))),
        guess=part.guess,
    )


def steady(states: Mapping[str, str], trial: Trial) -> dict[str, str]:
    """Return the states whose outputs have the shape of the input, as a call takes them back."""
    return {
        name: output
        for name, output in states.items()
        if output in trial.outputs and trial.outputs[output].shape == trial.inputs[name]
    }


def state_outputs(
    states: Mapping[str, str],
    axes: Mapping[str, InputAxes],
    trial: Trial,
    listed: Sequence[Tensor],
) -> list[OutputPart]:
    """Return the outputs that are states, which upgrades compare, without those ``listed`` already.

    One without the axis of a batch is that of one input.
    """
    known = {tensor.name for tensor in listed}
    found = []
    for name, output in states.items():
        batch = axes[name].batch
        if output in known or (batch is None and trial.small > 1):
            continue
        shape = axes[name].written if batch else None
        comment = "the state for the next call"
        form = "none" if batch is None else ""
        found.append(OutputPart(output, "tensor", shape, comment=comment, batch=form))
    return found


def _is_state(tensor: Tensor, output: str) -> bool:
    """Return whether names are those of a state before a call and after it."""
    is_single = all(size == 1 for size in tensor.shape[1:])
    return any(
        own.words == other.words and _tells_state(own, other, is_single)
        for own in _readings(tensor.name, _INWARD)
        for other in _readings(output, _OUTWARD)
        if own.removed or other.removed
    )


def _readings(name: str, side: Sequence[str]) -> Iterable[_Reading]:
    words = tuple(word.lower() for word in _WORD.findall(name))
    if words in (("hn",), ("cn",)):
        words = tuple(words[0])
    yield _Reading(words, "")
    if side is _INWARD and words[:3] == _PAST_WORDS:
        yield _Reading(words[3:], "past")
    for place, word in enumerate(words):
        if word in side and (word not in _LAST_ONLY or place == len(words) - 1):
            yield _Reading(words[:place] + words[place + 1 :], word)


def _tells_state(own: _Reading, other: _Reading, is_single: bool) -> bool:
    """Return whether a pair of names is that of a state, and not of what a model only changes.

    A single number, such as a price before and after, is a state by a word for it only.
    """
    words = own.words
    if not words:
        return own.removed == "past" and other.removed == "present"
    is_pair = own.removed in _BEFORE and other.removed in _AFTER
    if is_pair and own.removed in _CALL_BEFORE and not is_single:
        return True
    is_activation = words[-2:] == _ACTIVATIONS and not is_pair
    if is_activation or any(word in _PICTURES for word in words):
        return False  # a part of a network by itself, and pictures of cells
    if words in _STATE_NAMES or any(_STATE.fullmatch(word) for word in words):
        return True
    return len(words) == 2 and words[0] == "r" and words[1].isdecimal()  # as in r1i and r1o
