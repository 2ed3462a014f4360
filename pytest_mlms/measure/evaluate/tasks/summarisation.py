"""Summarisation: ROUGE-1, ROUGE-2 and ROUGE-L, the means over inputs of rouge-score's F1.

Words are stemmed, as MLPerf has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.extras import install
from pytest_mlms.measure.evaluate.tasks.task import Array
from pytest_mlms.measure.evaluate.tasks.text_task import TextMeasure, TextTask, divided

_TYPES = {"rouge1": "rouge1", "rouge2": "rouge2", "rouge_l": "rougeL"}
"""Quantity -> rouge-score's name."""


class RougeScores:
    """Measure of ``rouge1``, ``rouge2`` and ``rouge_l``."""

    columns: ClassVar[Sequence[str]] = (*_TYPES, "inputs")

    def __init__(self) -> None:
        self._scorer = _rouge_scorer()

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


def _rouge_scorer() -> Any:
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise MlmsError(f"ROUGE needs rouge-score; {install('text')}") from None
    return RougeScorer(list(_TYPES.values()), use_stemmer=True)
