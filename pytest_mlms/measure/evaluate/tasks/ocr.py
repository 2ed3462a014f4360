"""Optical character recognition of lines of text: character and word error rates."""

from __future__ import annotations

from typing import ClassVar

from pytest_mlms.measure.evaluate.tasks.error_rates import ErrorRates
from pytest_mlms.measure.evaluate.tasks.text_task import TextMeasure, TextTask


class Ocr(TextTask):
    """Lines as texts; the worst inputs are those with most wrong characters."""

    name: ClassVar[str] = "ocr"
    quantities: ClassVar[tuple[str, ...]] = ("cer", "wer", "exact_match")

    def measure(self) -> TextMeasure:
        """Return the error rates, ordered by characters."""
        return ErrorRates("characters")
