"""Answers with other tokens than were expected: which of them rounding decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors import Generation
from mlms_predictors._run.generation import ANSWER, Choice, greedy

from pytest_mlms.manifest.schema import LOGPROBS, TOKENS
from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.measure.evaluate.closeness import NearbyOutputs, Rule, Tolerance
from pytest_mlms.measure.evaluate.output_sweep import OutputSweep
from pytest_mlms.measure.evaluate.token_choices import (
    HeldAnswer,
    held_answer,
    spread_of_choices,
    usual_share,
)

LEAST_SHARE = usual_share(Rule())
GENERATION = Generation("ids", "logits", "limit", {"past": "present"}, scores=True)
LIMIT = 12
Array = Any


class Decoder:
    """A model whose logits are a row of a table, by the number of tokens and the last one."""

    def __init__(self, table: Array) -> None:
        self.table = table

    def step(self, given: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
        length = int(given["past"][0]) + given["ids"].shape[1]
        row = self.table[(7 * length + int(given["ids"][0, -1])) % len(self.table)]
        return row[None, None], {"past": np.array([length])}

    def choices(self, answer: Array | None = None) -> list[Any]:
        arrays = {"ids": np.array([[1, 2]]), "past": np.array([0])}
        if answer is not None:
            arrays[ANSWER] = answer
        return list(greedy(self.step, arrays, GENERATION, LIMIT))

    def outputs(self) -> dict[str, Array]:
        tokens, scores = zip(*self.choices(), strict=True)
        return {TOKENS: np.array([tokens]), LOGPROBS: np.array([scores], "f4")}

    def held_to(self, answer: Array) -> dict[str, Array]:
        columns = zip(Choice._fields, zip(*self.choices(answer), strict=True), strict=True)
        return {name: np.array(values) for name, values in columns}


def table(seed: int, rows: int = 31, vocabulary: int = 9) -> Array:
    return np.random.default_rng(seed).normal(0, 5, (rows, vocabulary)).astype("f4")


def found(a: Decoder, ours: Mapping[str, Array], rule: Rule | None = None) -> HeldAnswer:
    held = held_answer(a.outputs(), ours, a.held_to, rule or Rule())
    assert held is not None
    return held


SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.floats(0, 1))
def test_tokens_of_logits_that_are_off_by_rounding_are_no_fault(seed: int, size: float) -> None:
    logits = table(seed)
    ties = np.random.default_rng(seed).integers(0, 9, len(logits))
    logits[np.arange(len(logits)), ties] = logits.max(axis=1)  # which rounding decides
    random = np.random.default_rng(seed + 1)
    largest = logits.max(axis=1, keepdims=True)
    largest = np.minimum(largest, 2 * (largest - np.median(logits, axis=1, keepdims=True)))
    off = size * 0.99 * LEAST_SHARE * largest * random.uniform(-1, 1, logits.shape)
    a, b = Decoder(logits), Decoder((logits + off).astype("f4"))
    held = found(a, b.outputs())
    assert not held.fault
    assert held.outputs[TOKENS].tolist() == b.outputs()[TOKENS].tolist()
    np.testing.assert_allclose(held.outputs[LOGPROBS], b.outputs()[LOGPROBS], atol=1e-2)


@given(SEEDS, st.integers(0, LIMIT - 1), st.integers(0, 8))
def test_a_token_that_is_less_likely_is_named_with_both_log_probabilities(
    seed: int, place: int, token: int
) -> None:
    a = Decoder(table(seed))
    own = a.outputs()[TOKENS]
    given_tokens = own[:, : place + 1].copy()
    given_tokens[0, place] = token
    choice = a.choices(given_tokens)[place]
    held = found(a, {TOKENS: given_tokens})
    margin = choice.best_score - choice.score
    if margin <= 2 * LEAST_SHARE * choice.size:
        assert not held.fault
        return
    assert held.fault == (
        f"tokens[{place}] {choice.best} (log-probability {choice.best_score:.4g}) -> {token} "
        f"({choice.score:.4g} by the model that was expected)"
    )
    assert held.outputs[TOKENS][0, place] == own[0, place] != token


@given(SEEDS)
def test_log_probabilities_may_be_off_by_what_logits_may(seed: int) -> None:
    logits = 2 * table(seed, vocabulary=50)
    a = Decoder(logits)
    off = 2e-5 * logits.max(axis=1, keepdims=True)
    off = off * np.random.default_rng(seed).uniform(-1, 1, logits.shape)
    sweep = OutputSweep({TOKENS: Rule(), LOGPROBS: Rule()})
    ours = Decoder((logits + off).astype("f4")).outputs()
    sweep.add(a.outputs(), ours, ["prompt"], lambda: NearbyOutputs(held_to=a.held_to))
    assert (sweep.beyond, sweep.worst) == (0, [])
    ours[LOGPROBS] = ours[LOGPROBS] - np.float32(0.05)
    sweep.add(a.outputs(), ours, ["prompt"], lambda: NearbyOutputs(held_to=a.held_to))
    assert sweep.beyond == 1


def test_tokens_that_were_expected_are_no_fault_where_the_model_varies() -> None:
    a, other = Decoder(table(1)), Decoder(-table(1))
    held = held_answer(a.outputs(), a.outputs(), other.held_to, Rule())
    assert held is not None
    assert not held.fault
    assert held.outputs[TOKENS].tolist() == a.outputs()[TOKENS].tolist()


def test_an_offset_of_all_logits_does_not_widen_what_is_allowed() -> None:
    logits = np.full((31, 9), 998, "f4")
    logits[:, 0], logits[:, 1] = 1000, 999.9
    held = found(Decoder(logits), {TOKENS: np.ones((1, LIMIT), int)})
    assert held.fault.startswith("tokens[0] 0 ")
    logits[:, 1] = np.nextafter(np.float32(1000), np.float32(0))
    assert not found(Decoder(logits), {TOKENS: np.ones((1, LIMIT), int)}).fault


def test_no_token_is_near_another_one_whatever_the_manifest_allows_of_logits() -> None:
    a = Decoder(table(3))
    own = a.outputs()[TOKENS]
    other = own.copy()
    other[0, -1] += 1 if own[0, -1] < 8 else -1
    sweep = OutputSweep({TOKENS: Rule(Tolerance(0.0, 1.0), are_ids=True)})
    held_to = Decoder(3 * table(3)).held_to  # which is surer of the same tokens
    sweep.add({TOKENS: own}, {TOKENS: other}, ["prompt"], lambda: NearbyOutputs(held_to=held_to))
    assert (sweep.beyond, len(sweep.worst)) == (1, 1)


def test_an_answer_of_one_token_is_not_judged_where_rounding_decides_it() -> None:
    ours = np.array([[7]])
    choices = Decoder(np.zeros((31, 9), "f4")).held_to(ours)
    first = {name: values[:1] for name, values in choices.items()}
    held = held_answer({TOKENS: np.array([[0]])}, {TOKENS: ours}, lambda _: first, Rule())
    assert held is not None
    assert (held.fault, held.flips, held.is_judged) == ("", 1, False)


def test_an_answer_that_stops_early_goes_on_where_it_was_expected_to() -> None:
    a = Decoder(table(1))
    own = a.outputs()[TOKENS]
    held = found(a, {TOKENS: own[:, :5]})
    assert held.outputs[TOKENS].tolist() == own.tolist()


def test_what_masks_fill_in_does_not_widen_what_is_allowed() -> None:
    logits = table(2)
    logits[:, 3] = -1e9
    logits[:, 4] = -np.inf
    own = Decoder(logits).outputs()[TOKENS]
    for token in (3, 4):
        other = own.copy()
        other[0, 2] = token
        assert found(Decoder(logits), {TOKENS: other}).fault.startswith("tokens[2] ")


def test_more_is_allowed_where_the_baseline_varies_by_it_or_the_manifest_says_so() -> None:
    logits = np.zeros((31, 9), "f4")
    logits[:, 0], logits[:, 1] = 10, 9.9
    ours = {TOKENS: np.ones((1, LIMIT), int)}
    assert found(Decoder(logits), ours).fault
    for rule in (Rule(share=0.01), Rule(Tolerance(0.005, 0.01))):
        held = found(Decoder(logits), ours, rule)
        assert (held.fault, held.flips, held.is_judged) == ("", LIMIT, False)


def test_the_spread_of_a_model_is_that_of_its_logits() -> None:
    random = np.random.default_rng(3)

    class Noisy(Decoder):
        def step(self, given: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
            logits, states = super().step(given)
            off = 1e-3 * np.abs(logits).max() * random.uniform(-1, 1, logits.shape)
            return (logits + off).astype("f4"), states

    tokens = Decoder(table(4)).outputs()[TOKENS]
    assert spread_of_choices(tokens, Decoder(table(4)).held_to) == 0
    assert 3e-4 < spread_of_choices(tokens, Noisy(table(4)).held_to) < 4e-3


def refusing(answer: Array) -> dict[str, Array]:
    raise Refused("there is no token 99", "ValueError")


@pytest.mark.parametrize("held_to", [refusing, None])
def test_where_nobody_can_be_held_to_tokens_they_must_be_equal(held_to: Any) -> None:
    sweep = OutputSweep({TOKENS: Rule()})
    expected, ours = {TOKENS: np.array([[1, 2]])}, {TOKENS: np.array([[1, 3]])}
    sweep.add(expected, ours, ["prompt"], lambda: NearbyOutputs(held_to=held_to))
    assert (sweep.beyond, sweep.worst) == (1, ["prompt: tokens[1] 2 -> 3"])


def test_a_sweep_counts_close_calls_and_names_faults() -> None:
    logits = np.zeros((31, 9), "f4")
    logits[:, 6:] = 10
    logits[:, 5] = 10.0005
    decoder = Decoder(logits)
    sweep = OutputSweep({TOKENS: Rule()})

    def nearby() -> NearbyOutputs:
        return NearbyOutputs(held_to=decoder.held_to)

    close = np.full((1, LIMIT), 5)
    close[0, 4] = 8
    sweep.add({TOKENS: decoder.outputs()[TOKENS]}, {TOKENS: close}, ["close"], nearby)
    assert (sweep.beyond, sweep.close_calls, sweep.unjudged) == (0, 1, [])
    logits[:, 5] = 12
    sweep.add({TOKENS: decoder.outputs()[TOKENS]}, {TOKENS: close}, ["far"], nearby)
    assert (sweep.beyond, sweep.close_calls) == (1, 1)
    assert sweep.worst[0].startswith("far: tokens[4] 5 (log-probability -0.3")
