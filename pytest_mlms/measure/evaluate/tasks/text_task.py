"""Tasks whose outputs and labels are texts: speech, OCR, translation and summarisation.

Their evidence is of sums over inputs, so that a sample of these costs no more than a sum. Errors of
words and characters are counted as jiwer does, of each input. BLEU and chrF are of a corpus, as
sacrebleu computes them by default; its scores of 0 to 100 are shares of 1 here. Source of the
formulas: Post, "A Call for Clarity in Reporting BLEU Scores" (2018), with mteval-v13a's tokens and
exponential smoothing; Popović, "chrF" (2015), with n-grams of 1 to 6 characters and beta 2.
ROUGE-1, ROUGE-2 and ROUGE-L are means over inputs of rouge-score's F1.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import DatasetError, MlmsError, OutputError
from pytest_mlms.core.extras import install
from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.evaluate.tasks.task import Evidence, Scorer, Task
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.outputs import decode_texts, normalized_label


class TextMeasure(Protocol):
    """How texts are compared with their labels: figures that are formulas of S sums over inputs."""

    columns: ClassVar[Sequence[str]]
    """The names of the S counts of an input, as predictions.csv has them."""

    def counts(self, label: str, text: str) -> Sequence[float]:
        """Return the S counts of one input."""

    def figures(self, sums: Array) -> Mapping[str, Array]:
        """Return each quantity (R) for the sums of R samples of inputs (R x S)."""

    def losses(self, counts: Array) -> Array:
        """Return how wrong each of N inputs is (N), larger is worse, from its counts (N x S)."""

    def shares(self, counts: Array) -> Mapping[str, NDArray[np.bool_]]:
        """Return the shares of N inputs by quantity, from their counts (N x S)."""


@dataclass(frozen=True, eq=False)
class TextEvidence(Evidence):
    """The texts of N inputs, their labels, and the counts (N x S) that a measure makes of them."""

    measure: TextMeasure
    labels: Sequence[str]
    texts: Sequence[str]
    counts: Array

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def shares(self) -> Mapping[str, NDArray[np.bool_]]:
        """The shares of the measure."""
        return self.measure.shares(self.counts)

    def figures(self, counts: Array) -> Mapping[str, Array]:
        """Return the figures of the measure for R samples of the inputs (R x N)."""
        return self.measure.figures(np.asarray(counts, dtype=np.float64) @ self.counts)

    @property
    def losses(self) -> Array:
        """The losses of the measure."""
        return self.measure.losses(self.counts)

    def answers(self) -> Sequence[str]:
        """Return the text of each input."""
        return self.texts

    def columns(self) -> Mapping[str, Sequence[object]]:
        """Return label, text and counts."""
        columns: dict[str, Sequence[object]] = {"label": self.labels, "text": self.texts}
        for name, values in zip(self.measure.columns, self.counts.T, strict=True):
            is_whole = (values == np.round(values)).all()
            columns[name] = values.astype(np.int64).tolist() if is_whole else values.tolist()
        return columns


@dataclass(frozen=True, eq=False)
class TextScorer(Scorer):
    """Collector of the texts of one output, and of the counts that a measure makes of them."""

    output: Output
    dataset: Dataset
    measure: TextMeasure
    _labels: list[str] = field(default_factory=list)
    _texts: list[str] = field(default_factory=list)
    _counts: list[Sequence[float]] = field(default_factory=list)

    def add(self, outputs: Mapping[str, Array], inputs: range) -> None:
        """Take the outputs of a batch; raises OutputError, and DatasetError for absent labels."""
        texts = decode_texts(outputs[self.output.name], self.output)
        if len(texts) != len(inputs):
            found = f"output {self.output.name!r} of {len(inputs)} inputs is {len(texts)} texts"
            raise OutputError(f"{found}; check its steps")
        for index, text in zip(inputs, texts, strict=True):
            label = self.label(index)
            self._labels.append(label)
            self._texts.append(text)
            self._counts.append(self.measure.counts(label, text))

    def label(self, index: int) -> str:
        """Return the label of an input as the output's steps make it; raises DatasetError."""
        return normalized_label(label_text(self.dataset, index), self.output)

    def evidence(self) -> TextEvidence:
        """Return the evidence of all inputs that were added."""
        shape = (len(self._counts), len(self.measure.columns))
        counts = np.array(self._counts, dtype=np.float64).reshape(shape)
        return TextEvidence(self.measure, self._labels, self._texts, counts)


def label_text(dataset: Dataset, index: int) -> str:
    """Return the label of an input, a text; raises DatasetError where it isn't one."""
    if dataset.labels is None:
        raise DatasetError(f"{dataset.name} has no labels; add a column 'label' with the texts")
    label = dataset.label(index)
    if not isinstance(label, str):
        problem = f"the label {label!r} is no text; write texts, or name another task"
        raise dataset.label_error(index, problem)
    return str(label)


class TextTask(Task):
    """A task with a text as the label of each input, and an output of type text."""

    @abstractmethod
    def measure(self) -> TextMeasure:
        """Return how its texts are compared; raises MlmsError where a library is missing."""

    def scorer(self, outputs: Sequence[Output], dataset: Dataset) -> Scorer:
        """Return a scorer for the first of the outputs."""
        return TextScorer(outputs[0], dataset, self.measure())


def divided(numbers: Array, by: Array) -> Array:
    """Return the quotients, NaN where ``by`` is 0."""
    quotients = np.full(np.broadcast(numbers, by).shape, np.nan)
    np.divide(numbers, by, out=quotients, where=np.asarray(by) != 0)
    return quotients


@dataclass(frozen=True)
class ErrorRates:
    """Measure of ``wer``, ``cer`` and ``exact_match``; inputs are ordered by their ``order``."""

    order: Literal["words", "characters"]
    columns: ClassVar[Sequence[str]] = ("word_errors", "words", "character_errors", "characters")

    def counts(self, label: str, text: str) -> Sequence[float]:
        """Return the errors and the length, in words and in characters.

        Blanks at both ends don't count. An empty label is right if the text is empty, too.
        """
        try:
            from jiwer import process_characters, process_words
        except ImportError:
            raise MlmsError(f"WER and CER need jiwer; {install('speech')}") from None
        word_counts = _counts(process_words(label, text))
        return (*word_counts, *_counts(process_characters(label, text)))

    def figures(self, sums: Array) -> Mapping[str, Array]:
        """Return both rates; NaN for samples whose labels are all empty."""
        word_errors, words, character_errors, characters = sums.T
        return {"wer": divided(word_errors, words), "cer": divided(character_errors, characters)}

    def losses(self, counts: Array) -> Array:
        """Return the errors of each input."""
        return np.asarray(counts[:, 0 if self.order == "words" else 2])

    def shares(self, counts: Array) -> Mapping[str, NDArray[np.bool_]]:
        """Return which inputs are right to the last character."""
        return {"exact_match": counts[:, 2] == 0}


def _counts(alignment: Any) -> tuple[int, int]:
    errors = alignment.substitutions + alignment.deletions + alignment.insertions
    length = alignment.hits + alignment.substitutions + alignment.deletions
    return errors, length


class Ocr(TextTask):
    """Lines as texts; the worst inputs are those with most wrong characters."""

    def measure(self) -> TextMeasure:
        """Return the error rates, ordered by characters."""
        return ErrorRates("characters")


class SpeechRecognition(TextTask):
    """Transcripts as texts; the worst inputs are those with most wrong words."""

    def measure(self) -> TextMeasure:
        """Return the error rates, ordered by words."""
        return ErrorRates("words")


_WORD_ORDERS = range(1, 5)
_CHARACTER_ORDERS = range(1, 7)
_BETA_SQUARED = 4.0
_BLEU_COUNTS = 2 + 2 * len(_WORD_ORDERS)


def _columns() -> Iterator[str]:
    yield "tokens"
    yield "label_tokens"
    for kind in ("matching", "all"):
        for order in _WORD_ORDERS:
            yield f"{kind}_{order}-grams"
    for order in _CHARACTER_ORDERS:
        for kind in ("text", "label", "matching"):
            yield f"{kind}_character_{order}-grams"


class NgramScores:
    """Measure of ``bleu`` and ``chrf``."""

    columns: ClassVar[Sequence[str]] = tuple(_columns())

    def __init__(self) -> None:
        self._sentence_score = _sentence_score()

    def counts(self, label: str, text: str) -> Sequence[float]:
        """Return the counts of words and their n-grams for BLEU, then those for chrF."""
        score = self._sentence_score(text, [label])
        words = (score.sys_len, score.ref_len, *score.counts, *score.totals)
        return (*words, *_character_counts(label, text))

    def figures(self, sums: Array) -> Mapping[str, Array]:
        """Return both scores, 0 to 1."""
        of_words, of_characters = np.split(sums, [_BLEU_COUNTS], axis=1)
        return {"bleu": _bleu(of_words), "chrf": _chrf(of_characters)}

    def losses(self, counts: Array) -> Array:
        """Return 1 - chrF of each input, since BLEU of one sentence says little."""
        return np.asarray(1 - _chrf(counts[:, _BLEU_COUNTS:]))

    def shares(self, counts: Array) -> Mapping[str, NDArray[np.bool_]]:
        """Return nothing."""
        return {}


class Translation(TextTask):
    """Translations as texts, one for each input."""

    def measure(self) -> TextMeasure:
        """Return BLEU and chrF."""
        return NgramScores()


def _sentence_score() -> Callable[[str, Sequence[str]], Any]:
    try:
        from sacrebleu import BLEU
    except ImportError:
        raise MlmsError(f"BLEU needs sacrebleu; {install('text')}") from None
    sentence_score: Callable[[str, Sequence[str]], Any] = BLEU(effective_order=True).sentence_score
    return sentence_score


def _bleu(sums: Array) -> Array:
    """Return BLEU (R) of the sums of R samples (R x 10)."""
    lengths, label_lengths = sums[:, :2].T
    matching, found = np.split(sums[:, 2:], 2, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        shortness = 1 - label_lengths / lengths
        penalty = np.exp(np.minimum(0.0, shortness))
        absent = (matching == 0) & (found > 0)
        smoothed = 0.5 ** np.cumsum(absent, axis=1)
        precision = np.where(absent, smoothed, matching) / found
        mean = np.log(precision).mean(axis=1)
        score = penalty * np.exp(mean)
    has_matches = matching.sum(axis=1) > 0
    has_score = has_matches & (found > 0).all(axis=1)
    return np.where(has_score, score, 0.0)


def _chrf(sums: Array) -> Array:
    """Return chrF (R) of the sums of R samples (R x 18); orders without n-grams don't count."""
    by_order = sums.reshape(len(sums), -1, 3)
    found, labels, matching = np.moveaxis(by_order, 2, 0)
    counts = (found > 0) & (labels > 0)
    precision = _mean(divided(matching, found), counts)
    recall = _mean(divided(matching, labels), counts)
    product = (1 + _BETA_SQUARED) * precision * recall
    score = divided(product, _BETA_SQUARED * precision + recall)
    return np.nan_to_num(score, nan=0.0)


def _mean(values: Array, counts: Array) -> Array:
    """Return the mean of the values of each row that count; NaN where none does."""
    return divided(values.sum(axis=1, where=counts), counts.sum(axis=1))


def _character_counts(label: str, text: str) -> list[int]:
    """Return the n-grams of the text, of the label, and of both, for each order."""
    counts: list[int] = []
    for order in _CHARACTER_ORDERS:
        label_ngrams = _ngrams(label, order)
        text_ngrams = _ngrams(text, order)
        matching = (label_ngrams & text_ngrams).total()
        found = text_ngrams.total() if label_ngrams else 0  # as sacrebleu does
        counts += [found, label_ngrams.total(), matching]
    return counts


@functools.lru_cache(maxsize=64)  # each label and text is asked for in all orders
def _without_blanks(text: str) -> str:
    return "".join(text.split())


def _ngrams(text: str, order: int) -> Counter[str]:
    characters = _without_blanks(text)
    starts = range(len(characters) - order + 1)
    return Counter(characters[start : start + order] for start in starts)


_TYPES = {"rouge1": "rouge1", "rouge2": "rouge2", "rouge_l": "rougeL"}
"""Quantity -> rouge-score's name."""


class RougeScores:
    """Measure of ``rouge1``, ``rouge2`` and ``rouge_l``."""

    columns: ClassVar[Sequence[str]] = (*_TYPES, "inputs")

    def __init__(self) -> None:
        try:
            from rouge_score.rouge_scorer import RougeScorer
        except ImportError:
            raise MlmsError(f"ROUGE needs rouge-score; {install('text')}") from None
        self._scorer = RougeScorer(list(_TYPES.values()), use_stemmer=True)

    def counts(self, label: str, text: str) -> Sequence[float]:
        """Return the three scores of an input, and 1 for the input itself."""
        scores = self._scorer.score(label, text)
        return (*(scores[name].fmeasure for name in _TYPES.values()), 1)

    def figures(self, sums: Array) -> Mapping[str, Array]:
        """Return the means."""
        means = divided(sums[:, :-1], sums[:, -1:])
        return dict(zip(_TYPES, means.T, strict=True))

    def losses(self, counts: Array) -> Array:
        """Return 1 - ROUGE-L of each input."""
        return np.asarray(1 - counts[:, 2])

    def shares(self, counts: Array) -> Mapping[str, NDArray[np.bool_]]:
        """Return nothing."""
        return {}


class Summarisation(TextTask):
    """Summaries as texts, one for each input."""

    def measure(self) -> TextMeasure:
        """Return the three ROUGE scores."""
        return RougeScores()
