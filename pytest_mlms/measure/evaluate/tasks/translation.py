"""Translation: BLEU and chrF of a corpus, as sacrebleu computes them by default.

Both are formulas of counts of n-grams that are summed over the inputs, so that a sample of the
inputs costs no more than a sum. sacrebleu's scores of 0 to 100 are shares of 1 here. Source of the
formulas: Post, "A Call for Clarity in Reporting BLEU Scores" (2018), with mteval-v13a's tokens and
exponential smoothing; Popović, "chrF" (2015), with n-grams of 1 to 6 characters and beta 2.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.extras import install
from pytest_mlms.measure.evaluate.tasks.task import Array
from pytest_mlms.measure.evaluate.tasks.text_task import TextMeasure, TextTask, divided

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
