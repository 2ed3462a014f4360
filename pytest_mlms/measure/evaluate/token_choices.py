"""Answers that have other tokens than were expected: which of these rounding decides.

Kernels and batches change the last bits of logits. A token that flips by them changes the rest of
an answer, so the model that was expected is held to the other answer, token by token. Each of its
tokens must be the likeliest one there, or less likely by no more than rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.manifest.schema import LOGPROBS, TOKENS, Generate
from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.measure.evaluate.closeness import Rule, rounding_share

Outputs = Mapping[str, Array]
HeldTo = Callable[[Array], Outputs]
"""Returns the choices of the model that was expected for the tokens of another answer (1 x n)."""

_MOST_FLIPS = 0.1  # of the tokens of an answer


class HeldAnswer(NamedTuple):
    """The outputs that were expected of an answer with given tokens, as rounding decides them.

    ``flips`` are the tokens that another one is likelier than, by no more than rounding.
    ``is_judged`` is whether these are few. ``fault`` names the first token that is less likely than
    that, "" for none. ``allowed`` is by how much each log-probability may be off.
    """

    outputs: Outputs
    flips: int
    is_judged: bool
    fault: str = ""
    allowed: Array | float = 0.0


def held_answer(expected: Outputs, ours: Outputs, held_to: HeldTo, rule: Rule) -> HeldAnswer | None:
    """Return what was expected of our answer; None where the model can't be held to it.

    A difference of two logits is rounding where each of them may be off by half of it: by what the
    ``rule`` allows of the logits. A log-probability is such a difference, too. Tokens that were
    expected are no fault, whatever the model says of them now.
    """
    tokens = ours[TOKENS]
    if tokens.dtype.kind != "i" or tokens.ndim != 2 or len(tokens) != 1 or not tokens.size:
        return None
    try:
        held = held_to(tokens)
    except Refused:
        return None
    allowed = 2 * _off(held["size"], rule)
    is_rounding = held["best_score"] - held["score"] <= allowed
    is_rounding |= np.array_equal(tokens, expected[TOKENS])
    outputs = {**expected, TOKENS: np.where(is_rounding, held["token"], held["best"])[None]}
    if LOGPROBS in expected:
        outputs[LOGPROBS] = held["score"][None].astype(expected[LOGPROBS].dtype)
    flips = int((is_rounding & (held["token"] != held["best"])).sum())
    fault = "" if is_rounding.all() else _fault(held, int(is_rounding.argmin()))
    is_judged = flips <= max(1, _MOST_FLIPS * tokens.size) and flips < tokens.size
    return HeldAnswer(outputs, flips, is_judged, fault, allowed[None])


def _off(sizes: Array, rule: Rule) -> Array:
    """Return by how much logits of these sizes may be off."""
    if rule.tolerance is not None:
        return np.asarray(rule.tolerance.atol + rule.tolerance.rtol * sizes.astype(np.float64))
    share = max(rounding_share(sizes.dtype, rule.device), rule.share or 0.0)
    return np.asarray(share * sizes.astype(np.float64))


def _fault(held: Outputs, place: int) -> str:
    """Return both tokens at a place, with the log-probabilities of the model that was expected."""
    best, token = held["best"][place], held["token"][place]
    scores = held["best_score"][place], held["score"][place]
    return (
        f"tokens[{place}] {best} (log-probability {scores[0]:.4g}) -> {token} "
        f"({scores[1]:.4g} by the model that was expected)"
    )


def halved(generate: Generate, batch: Outputs, answer: Outputs) -> tuple[Outputs, Outputs]:
    """Return a prompt with the first half of its answer behind it, and the other half.

    That is empty where the answer is one token, or the prompt is a text.
    """
    tokens, prompt = answer[TOKENS], batch[generate.prompt]
    half = tokens.shape[1] // 2
    if not half or prompt.dtype.kind not in "iu":
        return batch, {}
    further = {
        **batch,
        generate.prompt: np.concatenate([prompt, tokens[:, :half].astype(prompt.dtype)], axis=1),
        generate.limit: batch[generate.limit] - half,
    }
    return further, {name: values[:, half:] for name, values in answer.items()}


def can_be_held(answer: Outputs, held_to: HeldTo | None) -> bool:
    """Return whether a model tells how likely the tokens of an answer are."""
    if held_to is None:
        return False
    try:
        held_to(answer[TOKENS])
    except Refused:
        return False
    return True


def usual_share(rule: Rule) -> float:
    """Return the share that is allowed of logits in float32, where nothing varies."""
    return rounding_share(np.dtype(np.float32), rule.device)


def spread_of_choices(tokens: Array, held_to: HeldTo) -> float:
    """Return how far a model's own logits for the same tokens vary from call to call.

    It is a share of the largest one; 0 where the model can't be held to tokens.
    """
    try:
        first, again = held_to(tokens), held_to(tokens)
    except Refused:
        return 0.0
    count = min(len(first["score"]), len(again["score"]), tokens.size)
    sizes = first["size"][:count].astype(np.float64)
    off = np.abs(first["score"][:count] - again["score"][:count])
    return float(np.max(off[sizes > 0] / sizes[sizes > 0], initial=0.0))
