"""Figures of texts, held against the libraries that they are named after."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import jiwer
import numpy as np
import pytest
import sacrebleu
from rouge_score.rouge_scorer import RougeScorer

from pytest_mlms.measure.evaluate.tasks.answers import AnswerScores, answers_of
from pytest_mlms.measure.evaluate.tasks.error_rates import ErrorRates
from pytest_mlms.measure.evaluate.tasks.summarisation import RougeScores
from pytest_mlms.measure.evaluate.tasks.text_task import TextEvidence, TextMeasure
from pytest_mlms.measure.evaluate.tasks.translation import NgramScores

WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "sat",
    "on",
    "mat",
    ",",
    ".",
    "isn't",
    "running",
    "runs",
    "3.5",
    "Straße",
    "你好",
    "hello-world",
]
INPUTS = 40


def sentences(seed: int) -> tuple[list[str], list[str]]:
    """Return labels and texts that are like them; some are empty, or nothing alike."""
    drawn = random.Random(seed)
    labels = []
    texts = []
    for _ in range(INPUTS):
        words = drawn.choices(WORDS, k=drawn.randrange(14))
        labels.append(" ".join(words))
        changed = [drawn.choice(WORDS) if drawn.random() < 0.3 else word for word in words]
        texts.append(" ".join(changed[: drawn.randrange(15)]))
    return labels, texts


def evidence_of(measure: TextMeasure, labels: Sequence[str], texts: Sequence[str]) -> TextEvidence:
    counts = np.array(
        [measure.counts(label, text) for label, text in zip(labels, texts, strict=True)]
    )
    return TextEvidence(measure, labels, texts, counts)


def resamples(evidence: TextEvidence, rows: int = 30) -> Any:
    """Return how often each input is drawn, with the dataset itself first."""
    generator = np.random.default_rng(1)
    drawn = generator.multinomial(len(evidence), [1 / len(evidence)] * len(evidence), rows - 1)
    return np.concatenate([np.ones((1, len(evidence)), int), drawn])


def repeated(values: Sequence[str], counts: Any) -> list[str]:
    return [value for value, count in zip(values, counts, strict=True) for _ in range(count)]


def test_error_rates_of_resamples_are_those_of_jiwer() -> None:
    labels, texts = sentences(0)
    evidence = evidence_of(ErrorRates("words"), labels, texts)
    counts = resamples(evidence)
    figures = evidence.figures(counts)
    for row, drawn in enumerate(counts):
        reference, hypothesis = repeated(labels, drawn), repeated(texts, drawn)
        assert figures["wer"][row] == pytest.approx(jiwer.wer(reference, hypothesis), abs=1e-12)
        assert figures["cer"][row] == pytest.approx(jiwer.cer(reference, hypothesis), abs=1e-12)


def test_bleu_and_chrf_of_resamples_are_those_of_sacrebleu() -> None:
    for seed in range(3):
        labels, texts = sentences(seed)
        evidence = evidence_of(NgramScores(), labels, texts)
        counts = resamples(evidence, 20)
        figures = evidence.figures(counts)
        for row, drawn in enumerate(counts):
            reference, hypothesis = repeated(labels, drawn), repeated(texts, drawn)
            bleu = sacrebleu.corpus_bleu(hypothesis, [reference]).score
            chrf = sacrebleu.corpus_chrf(hypothesis, [reference]).score
            assert 100 * figures["bleu"][row] == pytest.approx(bleu, abs=1e-9)
            assert 100 * figures["chrf"][row] == pytest.approx(chrf, abs=1e-9)


CORNERS = [
    ("the cat sat on the mat", "the cat"),
    ("the cat", "the cat sat on the mat today"),
    ("a b c d e f", "a x c y e z"),
    ("one two three four", "one two three four"),
    ("", "something"),
    ("something", ""),
    ("", ""),
    ("nothing alike", "QQQ"),
]


@pytest.mark.parametrize(("label", "text"), CORNERS)
def test_bleu_and_chrf_of_one_sentence_are_those_of_sacrebleu(label: str, text: str) -> None:
    evidence = evidence_of(NgramScores(), [label], [text])
    figures = evidence.figures(np.ones((1, 1)))
    bleu = sacrebleu.corpus_bleu([text], [[label]]).score
    chrf = sacrebleu.corpus_chrf([text], [[label]]).score
    assert 100 * figures["bleu"][0] == pytest.approx(bleu, abs=1e-9)
    assert 100 * figures["chrf"][0] == pytest.approx(chrf, abs=1e-9)


def test_rouge_is_the_mean_of_what_rouge_score_gives() -> None:
    labels, texts = sentences(2)
    evidence = evidence_of(RougeScores(), labels, texts)
    figures = evidence.figures(np.ones((1, INPUTS)))
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    scores = [scorer.score(label, text) for label, text in zip(labels, texts, strict=True)]
    for quantity, name in (("rouge1", "rouge1"), ("rouge2", "rouge2"), ("rouge_l", "rougeL")):
        mean = np.mean([score[name].fmeasure for score in scores])
        assert figures[quantity][0] == pytest.approx(mean, abs=1e-12)


def test_an_empty_transcript_is_right_if_nothing_is_heard() -> None:
    evidence = evidence_of(ErrorRates("words"), ["", "", "a b"], ["", "oh", "a b"])
    assert evidence.shares["exact_match"].tolist() == [True, False, True]
    assert evidence.figures(np.ones((1, 3)))["wer"][0] == 0.5
    assert np.isnan(evidence.figures(np.array([[1, 1, 0]]))["wer"][0])


def test_the_worst_transcripts_have_most_errors() -> None:
    labels = ["a b c", "a b c", "a b c"]
    texts = ["a b c", "x y z", "a b cd"]
    assert evidence_of(ErrorRates("words"), labels, texts).losses.tolist() == [0, 3, 1]
    assert evidence_of(ErrorRates("characters"), labels, texts).losses.tolist() == [0, 3, 1]


def test_counts_are_columns_of_the_predictions() -> None:
    evidence = evidence_of(ErrorRates("words"), ["a b"], ["a c"])
    assert evidence.columns() == {
        "label": ["a b"],
        "text": ["a c"],
        "word_errors": [1.0],
        "words": [2.0],
        "character_errors": [1.0],
        "characters": [3.0],
    }


@pytest.mark.parametrize(
    ("label", "text", "exact", "f1"),
    [
        ("The Eiffel Tower", "eiffel tower!", 1, 1.0),
        ("in 1889", "1889", 0, 2 / 3),
        ('["1889", "in the year 1889"]', "year 1889", 0, 0.8),
        ("[sic] one", "sic one", 1, 1.0),
        ("", "", 1, 0.0),
        ("the", "a", 1, 0.0),
        ("Paris", "London", 0, 0.0),
    ],
)
def test_answers_are_compared_as_squad_does(label: str, text: str, exact: int, f1: float) -> None:
    counts = AnswerScores().counts(label, text)
    assert counts == pytest.approx((exact, f1, 1))


def test_a_label_may_have_several_answers() -> None:
    assert answers_of('["a", "b"]') == ["a", "b"]
    assert answers_of("a") == ["a"]
    assert answers_of("[" * 100_000) == ["[" * 100_000]
