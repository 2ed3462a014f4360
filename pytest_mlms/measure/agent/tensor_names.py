"""Inputs and outputs of a model by the names that a manifest has for them.

A manifest names a tensor as the model does, or says its ``position`` and names it as it likes. All
of pytest-mlms but the agent uses the manifest's names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mlms_predictors import Tensor

from pytest_mlms.core.errors import OutputError
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.manifest.schema import Input, Output


class NamedTensors(NamedTuple):
    """The inputs or outputs of a model by the manifest's names, in the model's order.

    ``own_names`` are those of the model by the manifest's, where they differ.
    """

    tensors: tuple[Tensor, ...]
    own_names: Mapping[str, str]


def named_tensors(loaded: LoadedManifest, section: str, tensors: Sequence[Tensor]) -> NamedTensors:
    """Return a model's tensors by the names of a section of a manifest: inputs or outputs.

    Raises OutputError where the model has no tensor at a position, or where another one has the
    name already.
    """
    specs: Sequence[Input | Output] = getattr(loaded.manifest, section)
    renamed = list(tensors)
    own_names = {}
    for number, spec in enumerate(specs):
        if spec.position is None:
            continue
        if spec.position >= len(tensors):
            problem = _missing(spec, section, tensors)
            raise OutputError(f"{loaded.place(section, number, 'position')}: {problem}")
        tensor = tensors[spec.position]
        renamed[spec.position] = tensor._replace(name=spec.name)
        if tensor.name != spec.name:
            own_names[spec.name] = tensor.name
    for name in own_names:
        if [tensor.name for tensor in renamed].count(name) > 1:
            problem = f"the model has {name!r} at another position of its {section}"
            raise OutputError(f"{loaded.place(section)}: {problem}; choose another name")
    return NamedTensors(tuple(renamed), own_names)


def _missing(spec: Input | Output, section: str, tensors: Sequence[Tensor]) -> str:
    """Return that a model has no tensor at the position of an input or output."""
    listed = []
    for number, tensor in enumerate(tensors):
        listed.append(f"{number} ({tensor.name})")
    known = ", ".join(listed) or "none"
    return f"the model has no {spec.position} among its {section}; write one of {known}"
