"""The signature of a model, against a batch of arrays and against the manifest.

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
from pytest_mlms.measure.agent.channel import TEXTS, is_array
from pytest_mlms.measure.agent.process import Array


def ordered_batch(
    signature: Sequence[Tensor], arrays: Mapping[str, Array]
) -> list[tuple[str, Array]]:
    """Return a batch in the order of a model's inputs.

    Raises OutputError where it doesn't fit them, with both shapes and types; the framework's own
    error may not name them.
    """
    batch = []
    for tensor in signature:
        array = arrays.get(tensor.name)
        if array is None:
            raise OutputError(
                f"there is no array for input {tensor.name!r}; given were {sorted(arrays)}"
            )
        check_fit(tensor, element_type_of(array), array.shape)
        batch.append((tensor.name, array))
    return batch


def element_type_of(array: Array) -> str:
    """Return the type of an array's elements as a manifest has it."""
    return TEXTS if array.dtype.kind == "U" else array.dtype.name


def check_fit(tensor: Tensor, dtype: str, shape: Sequence[int | None]) -> None:
    """Raise OutputError where an array of this type and shape is not what a model's input takes.

    None is an axis that isn't known.
    """
    if dtype == tensor.dtype and fits(shape, tensor.shape):
        return
    given = type_text(dtype, shape)
    wanted = type_text(tensor.dtype, tensor.shape)
    raise OutputError(
        f"input {tensor.name!r}: the manifest's steps make {given}, and the model takes "
        f"{wanted}; change the steps, layout, shape, element_type or batch_sizes"
    )


def check_signature(
    loaded: LoadedManifest, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> None:
    """Raise OutputError where a model has other inputs and outputs than its manifest.

    A model may have more outputs than the manifest names, and no other inputs. Those that are named
    must be arrays of numbers, or of texts that are compared as they are.
    """
    manifest = loaded.manifest
    declared_inputs = {spec.name: spec.element_type for spec in manifest.inputs}
    model_inputs = {tensor.name: tensor.dtype for tensor in inputs}
    if declared_inputs != model_inputs:
        declared = []
        for name, dtype in declared_inputs.items():
            declared.append(f"{name} ({dtype})")
        raise _difference(loaded, "inputs", declared, inputs)
    declared_outputs = [spec.name for spec in manifest.outputs]
    model_outputs = {tensor.name: tensor for tensor in outputs}
    if not model_outputs.keys() >= set(declared_outputs):
        raise _difference(loaded, "outputs", declared_outputs, outputs)
    for number, spec in enumerate(manifest.outputs):
        tensor = model_outputs[spec.name]
        is_scored = manifest.has_accuracy and spec in manifest.scored_outputs
        takes_texts = spec.type == "tensor" and not spec.steps and not is_scored
        if not is_array(tensor) or (tensor.dtype == TEXTS and not takes_texts):
            raise OutputError(
                f"{loaded.place('outputs', number)}: output {spec.name!r} is {tensor.dtype}, not "
                f"an array of numbers; name another output, or convert the model so that it is one "
                f"(skl2onnx: options={{'zipmap': False}}); texts can only be compared as they are: "
                f"'type: tensor', without steps, and not scored by the task"
            )


def _difference(
    loaded: LoadedManifest, section: str, declared: Sequence[str], tensors: Sequence[Tensor]
) -> OutputError:
    listed = []
    for tensor in tensors:
        kind = type_text(tensor.dtype, tensor.shape)
        listed.append(f"{tensor.name} ({kind})")
    place = loaded.place(section)
    declared_text = ", ".join(declared)
    listed_text = ", ".join(listed)
    return OutputError(
        f"{place}: the model has other {section} than the manifest\n"
        f"  the manifest: {declared_text}\n"
        f"  the model:    {listed_text}\n"
        f"  write the model's names and types into the manifest, or positions and names of your own"
    )


def fits(shape: Sequence[int | None], declared: Sequence[int | None]) -> bool:
    """Return whether a shape is one that a model declares; either may be unknown."""
    if not declared or not shape:
        return True
    if len(shape) != len(declared):
        return False
    pairs = zip(shape, declared, strict=True)
    return all(None in (size, wanted) or size == wanted for size, wanted in pairs)


def type_text(dtype: str, shape: Sequence[int | None]) -> str:
    """Return a type and a shape as text; a framework may tell neither."""
    if not shape:
        return f"{dtype} of unknown shape" if dtype else "type and shape unknown"
    sizes = []
    for size in shape:
        sizes.append("any" if size is None else str(size))
    axes = " x ".join(sizes)
    return f"{dtype} {axes}"


class NamedTensors(NamedTuple):
    """The inputs or outputs of a model by the manifest's names, in the model's order.

    ``own_names`` maps the manifest's names to the model's, where they differ.
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
