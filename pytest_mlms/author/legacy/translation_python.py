"""Inputs and outputs of a native manifest from the Python of the dialect B, which is never run.

Where the code computes something else than the file's keys say, the code counts: it is what ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_mlms.author.legacy.labels import ClassNames, class_names
from pytest_mlms.author.legacy.python_forms import (
    Postprocess,
    Preprocess,
    RecognisedOutput,
    recognise_postprocess,
    recognise_preprocess,
)
from pytest_mlms.author.legacy.records import LegacyInput, LegacyManifest, Note, UnclearManifest
from pytest_mlms.author.legacy.translated import (
    Key,
    Step,
    TensorName,
    TranslatedInput,
    TranslatedOutput,
    TranslatedOutputs,
)
from pytest_mlms.author.legacy.translation_inputs import input_name, random_shape

_UNKNOWN = "unknown Python"
_BEST = 5  # classes
_ALIKE = 0.01  # of a mean or a scale: roundings of 255 x 0.485
_CODE = "as the code of preprocess does"


def translate_python_inputs(manifest: LegacyManifest, predictor: str) -> list[TranslatedInput]:
    """Return the inputs that the code makes. Raises UnclearManifest for unknown code."""
    code = recognise_preprocess(manifest.preprocess)
    if code is None:
        raise _unknown(manifest, "preprocess")
    found = []
    for number, element_type in enumerate(code.element_types):
        spec = manifest.inputs[min(number, len(manifest.inputs) - 1)]
        found.append(_input(manifest, spec, code, number, element_type, predictor))
    return found


def _unknown(manifest: LegacyManifest, key: str) -> UnclearManifest:
    problem = "is Python of an unknown form" if manifest.line.lines.get(key) else "is missing"
    steps = "write the model's steps into a native manifest (docs/steps.md)"
    advice = f"{steps}, or run pytest with --mlms-allow-code, which has agents run it"
    return UnclearManifest(manifest.line[key], f"{key} {problem}; {advice}", _UNKNOWN)


def _input(
    manifest: LegacyManifest,
    spec: LegacyInput,
    code: Preprocess,
    number: int,
    element_type: str,
    predictor: str,
) -> TranslatedInput:
    name = input_name(spec, number, predictor)
    if number and name.position is not None:
        name = replace(name, position=number)
    line = manifest.line["preprocess"]
    part = [
        *name.keys(spec.line["input_layer"]),
        Key("type", code.type),
        Key("element_type", element_type),
    ]
    axes: Sequence[int | None] | None = None
    if code.type == "image":
        axes = _axes(code)
        part.append(Key("layout", code.layout, _CODE, line))
        part += random_shape(axes)
        part.append(Key("steps", tuple(_steps(code)), line=line))
    notes = [] if number else list(_code_notes(manifest, spec, code))
    return TranslatedInput(name, element_type, axes, tuple(part), notes)


def _steps(code: Preprocess) -> Iterator[Step]:
    """Yield the steps of a picture; the first one says where they are from."""
    why = "; ".join(
        [f"the steps are those of the code in preprocess, form {code.form[:8]}", *code.notes]
    )
    for step in code.steps:
        for name, parameters in step.items():
            yield Step(name, parameters, why)
        why = ""


def _parameters(code: Preprocess, name: str) -> Mapping[str, Any]:
    """Return the parameters of the last step of a name."""
    found: Mapping[str, Any] = {}
    for step in code.steps:
        found = step.get(name, found)
    return found


def _size(code: Preprocess) -> Sequence[int] | None:
    """Return height and width that every picture gets; None where they differ."""
    for name in ("crop", "resize"):
        size = _parameters(code, name).get("size")
        if size:
            return list(size)
    return None


def _axes(code: Preprocess) -> Sequence[int | None]:
    height, width = _size(code) or (None, None)
    return [3, height, width] if code.layout == "NCHW" else [height, width, 3]


def _code_notes(manifest: LegacyManifest, spec: LegacyInput, code: Preprocess) -> Iterator[Note]:
    """Yield warnings about the code, and about keys that say something else than it."""
    for text in code.warnings:
        yield Note(manifest.line["preprocess"], text)
    size = _size(code)
    declared = list(spec.dimensions[1:])
    if size and declared and declared != size:
        text = f"dimensions say {_shown(declared)} and the code {_shown(size)}; the code counts"
        yield Note(spec.line["dimensions"], text)
    normalize = _parameters(code, "normalize")
    for key, numbers in (("mean", spec.mean), ("scale", spec.scale)):
        computed = _three(normalize.get(key, 0.0 if key == "mean" else 1.0))
        if numbers and not _is_alike(_three(numbers), computed):
            text = f"{key} says {_shown(numbers)} and the code {_shown(computed)}; the code counts"
            yield Note(spec.line[key], text)


def _three(numbers: float | Sequence[float]) -> Sequence[float]:
    values = list(numbers) if isinstance(numbers, Sequence) else [numbers]
    return values * 3 if len(values) == 1 else values


def _is_alike(left: Sequence[float], right: Sequence[float]) -> bool:
    """Return whether numbers differ by less than their rounding."""
    if len(left) != len(right):
        return False
    for first, second in zip(left, right, strict=True):
        largest = max(abs(first), abs(second))
        if abs(first - second) > _ALIKE * largest:
            return False
    return True


def _shown(numbers: Sequence[float]) -> str:
    return f"[{', '.join(f'{number:g}' for number in numbers)}]"


def translate_python_outputs(manifest: LegacyManifest, predictor: str) -> TranslatedOutputs:
    """Return the outputs that the code reads. Raises UnclearManifest for unknown code."""
    code = recognise_postprocess(manifest.postprocess)
    if code is None:
        raise _unknown(manifest, "postprocess")
    line = manifest.line["postprocess"]
    if not code.outputs:
        text = "; ".join(code.warnings) or "the code returns nothing"
        raise UnclearManifest(line, f"{text}; write what the outputs are", _UNKNOWN)
    files = manifest.files
    names = class_names(
        files.labels, files.labels_md5, files.line["features_path"], files.line["features_checksum"]
    )
    outputs = []
    for output in sorted(code.outputs, key=lambda one: one.place):
        outputs.append(_output(manifest, output, code, names, predictor))
    notes = [Note(line, text) for text in code.warnings]
    if any(output.type in ("classification", "boxes") for output in code.outputs):
        notes += names.notes
    return TranslatedOutputs(code.task, outputs, notes, names.digests)


def _output(
    manifest: LegacyManifest,
    output: RecognisedOutput,
    code: Postprocess,
    names: ClassNames,
    predictor: str,
) -> TranslatedOutput:
    name = output_name(manifest, output, predictor)
    steps = [Step(key, value) for step in output.steps for key, value in step.items()]
    if output.type == "classification":
        steps = _with_names(steps, names)
    if output.type == "boxes" and names.source:
        steps.append(Step("classes", names.parameters, names.why, names.line))
    origin = f"read as the code of postprocess does, form {code.form[:8]}"
    return TranslatedOutput(name, output.type, steps, "; ".join([origin, *code.notes]))


def output_name(manifest: LegacyManifest, output: RecognisedOutput, predictor: str) -> TensorName:
    """Return the name of an output, or its place."""
    if output.place < len(manifest.outputs):
        layer = manifest.outputs[output.place].layers.get("output_layer")
        if isinstance(layer, str) and layer:
            return TensorName(layer)
    if predictor == "pytorch":
        own = f"output{output.place}" if output.place else "output"
        return TensorName(own, why="a name of our own: a TorchScript's outputs have none")
    return TensorName(output.type, output.place, "found by its position in the model")


def _with_names(steps: Sequence[Step], names: ClassNames) -> list[Step]:
    """Return the steps of a classification with its names of classes, in a last step top_k."""
    others = []
    parameters: Mapping[str, Any] = {"k": _BEST}
    for step in steps:
        if step.name != "top_k":
            others.append(step)
        elif step.parameters:
            parameters = step.parameters
    top = Step("top_k", {**parameters, **names.parameters}, names.why, names.line)
    return [*others, top]
