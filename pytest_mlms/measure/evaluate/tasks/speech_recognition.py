"""Speech recognition: word and character error rates of transcripts."""

from __future__ import annotations

from pytest_mlms.measure.evaluate.tasks.error_rates import ErrorRates
from pytest_mlms.measure.evaluate.tasks.text_task import TextMeasure, TextTask


class SpeechRecognition(TextTask):
    """Transcripts as texts; the worst inputs are those with most wrong words."""

    def measure(self) -> TextMeasure:
        """Return the error rates, ordered by words."""
        return ErrorRates("words")
