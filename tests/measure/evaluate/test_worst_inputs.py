"""Text of the inputs that a model is most wrong about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_mlms.measure.evaluate.worst_inputs import worst_inputs
from tests.support.scored import Means, dataset_of

LABELS = ["two\nwords", ""]


class Texts(Means):
    """Evidence of two texts that are wrong."""

    def columns(self) -> Mapping[str, Sequence[object]]:
        return {"label": LABELS, "text": ["", "heard"], "f1": [0.1 + 0.2, 1.0]}


def test_an_empty_text_is_said_to_be_none() -> None:
    lines = worst_inputs(Texts([-2, -1]), dataset_of(LABELS))
    assert lines == [
        "row 0: label two words, text (none), f1 0.3",
        "row 1: label (none), text heard, f1 1",
    ]
