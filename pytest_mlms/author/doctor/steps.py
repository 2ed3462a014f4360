"""Steps of a manifest's inputs: their parameters, copies with other ones, and their text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_mlms.manifest.steps import InputStep


def make_step(name: str, parameters: Any) -> InputStep:
    """Return a step; raises ValueError for parameters that it doesn't have."""
    return InputStep.model_validate({name: parameters})


def parameters_of(steps: Sequence[InputStep], name: str) -> Any:
    """Return the parameters of the first step with this name, None where there is none."""
    for step in steps:
        if step.name == name:
            return step.parameters
    return None


def written_parameters(parameters: Any) -> dict[str, Any]:
    """Return the parameters that are written, with lists for tuples."""
    found = {}
    for name in parameters.model_fields_set:
        value = getattr(parameters, name)
        found[name] = list(value) if isinstance(value, tuple) else value
    return found


def with_parameters(
    steps: Sequence[InputStep], name: str, parameters: Mapping[str, Any]
) -> list[InputStep]:
    """Return steps of which those with this name have other parameters; None removes one."""
    return [_changed(step, parameters) if step.name == name else step for step in steps]


def _changed(step: InputStep, parameters: Mapping[str, Any]) -> InputStep:
    values = {**written_parameters(step.parameters), **parameters}
    kept = {key: value for key, value in values.items() if value is not None}
    return make_step(step.name, kept)


def step_text(step: InputStep) -> str:
    """Return a step as a manifest has it."""
    written = written_parameters(step.parameters)
    pairs = []
    for name in type(step.parameters).model_fields:
        if name in written:
            pairs.append(f"{name}: {_value_text(written[name])}")
    return f"{step.name}: {{{', '.join(pairs)}}}" if pairs else step.name


def _value_text(value: Any) -> str:
    if isinstance(value, list):
        texts = [_value_text(one) for one in value]
        return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}"
    return str(value)
