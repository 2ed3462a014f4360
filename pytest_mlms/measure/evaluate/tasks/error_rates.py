"""Word and character error rates, by jiwer's counts of each input.

A rate is the errors of all inputs by the words (characters) of all labels, as in jiwer: it may be
above 1. The errors are the substitutions, deletions and insertions of a shortest edit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.extras import install
from pytest_mlms.measure.evaluate.tasks.task import Array
from pytest_mlms.measure.evaluate.tasks.text_task import divided


@dataclass(frozen=True)
class ErrorRates:
    """Measure of ``wer``, ``cer`` and ``exact_match``; inputs are ordered by their ``order``."""

    order: Literal["words", "characters"]
    columns: ClassVar[Sequence[str]] = ("word_errors", "words", "character_errors", "characters")

    def counts(self, label: str, text: str) -> Sequence[float]:
        """Return the errors and the length, in words and in characters.

        Blanks at both ends don't count. An empty label is right if the text is empty, too.
        """
        words, characters = _jiwer()
        word_counts = _counts(words(label, text))
        return (*word_counts, *_counts(characters(label, text)))

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


def _jiwer() -> tuple[Callable[[str, str], Any], Callable[[str, str], Any]]:
    try:
        from jiwer import process_characters, process_words
    except ImportError:
        raise MlmsError(f"WER and CER need jiwer; {install('speech')}") from None
    return process_words, process_characters
