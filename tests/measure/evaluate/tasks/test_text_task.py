"""Figures of texts, held against the libraries that they are named after."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from pytest_mlms.core.errors import DatasetError, MlmsError, OutputError
from pytest_mlms.manifest.schema import Input, Output
from pytest_mlms.measure.evaluate.tasks.question_answering import (
    AnswerScores,
    QuestionAnswering,
    answers_of,
    best_span,
)
from pytest_mlms.measure.evaluate.tasks.task import Task
from pytest_mlms.measure.evaluate.tasks.text_generation import TextGeneration
from pytest_mlms.measure.evaluate.tasks.text_task import (
    ErrorRates,
    NgramScores,
    Ocr,
    RougeScores,
    SpeechRecognition,
    TextEvidence,
    TextMeasure,
)
from pytest_mlms.measure.pipeline import Dataset
from tests.support.language import write_tokenizer

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


DIGEST = "0" * 64
LETTERS = "ab |"


def output(name: str, kind: str, *steps: Any) -> Output:
    return Output.model_validate({"name": name, "type": kind, "steps": list(steps)})


def dataset(labels: Any, elements: Sequence[Any] | None = None, *steps: Any) -> Dataset:
    count = 0 if labels is None else len(labels)
    found: Any = elements or np.zeros((count, 1))
    fields: dict[str, Any] = {"type": "text", "column": ["question", "context"]}
    spec = {"name": "x", "element_type": "int64", "steps": list(steps)}
    kind = fields if steps else {"type": "tensor"}
    return Dataset("m.yaml:9: d", (Input.model_validate({**spec, **kind}),), {"x": found}, labels)


def evidence(
    task: Task,
    outputs: Sequence[Output],
    data: Dataset,
    values: Mapping[str, Any],
) -> Any:
    """Return the evidence of values that come in batches of two."""
    scorer = task.scorer(outputs, data)
    for first in range(0, len(data), 2):
        inputs = range(first, min(first + 2, len(data)))
        scorer.add({name: rows[first : inputs.stop] for name, rows in values.items()}, inputs)
    return scorer.evidence()


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    path = tmp_path / "letters.txt"
    path.write_text("\n".join(LETTERS) + "\n")
    return path


def spelled(*texts: str) -> Any:
    """Return logits whose best path spells the texts, for the blank and LETTERS."""
    paths = np.zeros((len(texts), 2 * max(map(len, texts))), int)
    for row, text in enumerate(texts):
        paths[row, 1 : 2 * len(text) : 2] = [LETTERS.index(letter) + 1 for letter in text]
    return np.eye(len(LETTERS) + 1, dtype=np.float32)[paths]


def ctc(letters: Path) -> Any:
    return {"ctc": {"file": str(letters), "sha256": DIGEST, "delimiter": "|"}}


def test_transcripts_are_compared_with_their_labels(letters: Path) -> None:
    data = dataset(["ab a", "b", "a b"])
    values = {"y": spelled("ab|b", "b", "a|b|b")}
    spec = output("y", "text", ctc(letters))
    found = evidence(SpeechRecognition(), [spec], data, values)
    assert found.texts == ["ab b", "b", "a b b"]
    figures = found.figures(np.ones((1, 3)))
    assert figures["wer"] == pytest.approx([2 / 5])
    assert figures["cer"] == pytest.approx([3 / 8])
    assert found.shares["exact_match"].tolist() == [False, True, False]
    assert found.losses.tolist() == [1, 0, 1]
    lines = evidence(Ocr(), [spec], data, values)
    assert lines.losses.tolist() == [1, 0, 2]


def test_labels_are_normalized_as_the_outputs_are(letters: Path) -> None:
    spec = output("y", "text", ctc(letters), {"normalize_text": {"case": "lower"}})
    found = evidence(Ocr(), [spec], dataset(["AB  a"]), {"y": spelled("ab|a")})
    assert found.labels == ["ab a"]
    assert found.shares["exact_match"].all()


def test_labels_that_are_no_texts_are_errors(letters: Path) -> None:
    spec = output("y", "text", ctc(letters))
    with pytest.raises(DatasetError, match="m.yaml:9: d: element 1: the label 7 is no text; write"):
        evidence(Ocr(), [spec], dataset(["a", 7]), {"y": spelled("a", "b")})
    with pytest.raises(DatasetError, match="has no labels; add a column 'label'"):
        evidence(Ocr(), [spec], dataset(None, ["a"]), {"y": spelled("a")})


def test_tokens_are_compared_by_place() -> None:
    labels = np.array([[5, 6, 7], [5, 6, -1], [8, 9, 9]])
    tokens = np.array([[5, 6, 7, 3], [5, 9, 9, 9], [8, 1, 9, -1]])
    found = evidence(TextGeneration(), [output("y", "tokens")], dataset(labels), {"y": tokens})
    assert found.shares["exact_match"].tolist() == [True, False, False]
    figures = found.figures(np.ones((1, 3)))
    assert figures["same_tokens"] == pytest.approx([6 / 8])
    assert figures["tokens_before_divergence"] == pytest.approx([5 / 8])
    assert found.losses.tolist() == [0, 1, 2]
    assert found.columns()["first_divergence"] == [3, 1, 1]
    assert found.columns()["expected"][:2] == ["", "6"]
    assert found.columns()["found"][:2] == ["", "9 9 9"]
    short = evidence(
        TextGeneration(), [output("y", "tokens")], dataset(labels), {"y": tokens[:, :1]}
    )
    assert short.losses.tolist() == [2, 1, 2]
    with pytest.raises(DatasetError, match="element 0: the label is float64"):
        evidence(TextGeneration(), [output("y", "tokens")], dataset([[0.5]]), {"y": tokens[:1]})


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), min_size=1, max_size=12
    ).filter(lambda places: not all(is_masked for *_, is_masked in places))
)
def test_masked_places_of_a_label_shift_no_token(places: list[tuple[int, int, bool]]) -> None:
    full, tokens, is_masked = (np.array([column]) for column in zip(*places, strict=True))
    label = np.where(is_masked, -100, full)
    spec = [output("y", "tokens")]
    found = evidence(TextGeneration(), spec, dataset(label), {"y": tokens})
    is_same = (full == tokens)[~is_masked]
    assert found.lengths.tolist() == [is_same.size]
    assert found.same.tolist() == [is_same.sum()]
    assert found.prefixes.tolist() == [np.cumprod(is_same).sum()]
    right = evidence(TextGeneration(), spec, dataset(label), {"y": full})
    assert right.shares["exact_match"].all()


def test_a_label_that_masks_all_its_tokens_is_no_exact_match() -> None:
    tokens = np.array([[1, 2], [3, 4]])
    labels = np.array([[1, -100], [-100, -100]])
    message = "element 1: the label masks all its tokens, so that any answer is right; leave"
    with pytest.raises(DatasetError, match=message):
        evidence(TextGeneration(), [output("y", "tokens")], dataset(labels), {"y": tokens})


def test_tokens_that_differ_are_shown_at_the_places_of_the_label() -> None:
    labels = np.array([[-1, 5, -1, 6, 7]])
    tokens = np.array([[1, 5, 2, 9, 7]])
    found = evidence(TextGeneration(), [output("y", "tokens")], dataset(labels), {"y": tokens})
    assert found.columns()["expected"] == ["6 7"]
    assert found.columns()["found"] == ["9 7"]


PAIRS = [("where ?", "the cat sat on the mat"), ("where ?", "the mat")]


def span_outputs(tokenizer: Path) -> tuple[list[Output], Dataset]:
    outputs = [output("end", "span_end"), output("start", "span_start")]
    tokenize = {"file": str(tokenizer), "sha256": DIGEST, "length": 12}
    data = dataset(["on the mat", '["a mat", "cat"]'], PAIRS, {"tokenize": tokenize})
    return outputs, data


def test_a_span_is_the_text_between_its_tokens(tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer.json"
    write_tokenizer(tokenizer)
    outputs, data = span_outputs(tokenizer)
    start, end = np.zeros((2, 12)), np.zeros((2, 12))
    start[0, [1, 7]] = 9, 5  # [CLS] where ? [SEP] the cat sat on the mat [SEP]
    end[0, [5, 9]] = 6, 5  # the larger sum of 7 and 5 has its end before the start
    start[1, 5] = end[1, 5] = 1
    found = evidence(QuestionAnswering(), outputs, data, {"start": start, "end": end})
    assert found.texts == ["on the mat", "mat"]
    assert found.shares["exact_match"].tolist() == [True, True]
    assert found.figures(np.ones((1, 2)))["answer_f1"] == pytest.approx([1.0])
    with pytest.raises(OutputError, match="expected a logit for each of 12 tokens"):
        evidence(QuestionAnswering(), outputs, data, {"start": start[:, 1:], "end": end})
    with pytest.raises(OutputError, match="'end' has NaN"):
        evidence(QuestionAnswering(), outputs, data, {"start": start, "end": end * np.nan})
    with pytest.raises(MlmsError, match="one of type span_start and one of span_end"):
        evidence(QuestionAnswering(), outputs[:1], data, {"end": end})


def test_the_answers_of_a_label_are_normalized_one_by_one(letters: Path) -> None:
    data = dataset(['["b! a", "b"]', '["[a]"]'])
    answers = output("y", "text", ctc(letters), {"normalize_text": {"punctuation": "remove"}})
    found = evidence(QuestionAnswering(), [answers], data, {"y": spelled("b|a", "b")})
    assert found.shares["exact_match"].tolist() == [True, False]
    assert found.columns()["label"] == ['["b a", "b"]', "a"]


def test_a_list_of_no_answers_is_an_error_of_its_element(letters: Path) -> None:
    answers = output("y", "text", ctc(letters))
    with pytest.raises(DatasetError, match=r"d: element 1: the label \[1, 2\] is no list of answ"):
        evidence(QuestionAnswering(), [answers], dataset(["a", "[1, 2]"]), {"y": spelled("a", "b")})


def test_a_span_has_thirty_tokens_at_most() -> None:
    starts, ends = np.zeros(50), np.zeros(50)
    starts[2] = ends[[31, 40]] = 1
    ends[40] = 2
    assert best_span(starts, ends, np.ones(50, bool)) == (2, 31)
    assert best_span(starts, ends, np.zeros(50, bool)) is None
