"""Optical character recognition of lines of text: character and word error rates."""

from __future__ import annotations

from pytest_mlms.measure.evaluate.tasks.error_rates import ErrorRates
from pytest_mlms.measure.evaluate.tasks.text_task import TextMeasure, TextTask


class Ocr(TextTask):
    """Lines as texts; the worst inputs are those with most wrong characters."""

    def measure(self) -> TextMeasure:
        """Return the error rates, ordered by characters."""
        return ErrorRates("characters")
