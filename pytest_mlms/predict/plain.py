"""Predictions as JSON: a line of ``mlms predict --json``, and the portal's answer to a request."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_mlms.core.serialization import to_plain
from pytest_mlms.measure.agent.signature import element_type_of
from pytest_mlms.predict.answers import Answer, DetectedObject
from pytest_mlms.predict.model import Model, Prediction, Profile

_MOST_VALUES = 1000  # of an array


def plain_prediction(
    name: str,
    model: Model,
    prediction: Prediction,
    latency: float | None,
    profile: Profile | None = None,
) -> dict[str, Any]:
    """Return a model's prediction for an input as values that JSON has.

    ``name`` is what the input is called, ``latency`` is in seconds, None where nobody asked for it.
    Arrays of more than 1,000 values have only their type and shape.
    """
    case = model.case
    answers = prediction.answers.items()
    found: dict[str, Any] = {
        "input": name,
        "stack": case.stack.name,
        "framework": case.stack.framework,
        "version": model.versions.get(case.stack.framework),
        "device": model.device,
        "batch_size": case.batch_size,
        "latency": latency,
        "answers": {output: _plain_answer(answer) for output, answer in answers},
    }
    if profile is not None:
        found.update(layers=profile.layers, unseen=profile.unseen)
    plain: dict[str, Any] = to_plain(found)
    return plain


def _plain_answer(answer: Answer) -> Any:
    if isinstance(answer, np.ndarray):
        values = answer if answer.size <= _MOST_VALUES else None
        return {"dtype": element_type_of(answer), "shape": answer.shape, "values": values}
    if isinstance(answer, str):
        return {"text": answer}
    return [one._replace(mask=None) if isinstance(one, DetectedObject) else one for one in answer]
