"""Inputs and outputs of the dialect B: by the forms of its Python, or by running it in an agent.

Nothing of it is run here. Where the user allows code, Python of an unknown form makes the model's
inputs, or turns the outputs of a classification into scores; the agent of the model's stack runs
it. Of other tasks with such code only the speed is measured.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pytest_mlms.author.legacy.labels import class_names
from pytest_mlms.author.legacy.python_forms import (
    RecognisedOutput,
    recognise_postprocess,
    recognise_preprocess,
)
from pytest_mlms.author.legacy.records import LegacyInput, LegacyManifest, Note
from pytest_mlms.author.legacy.translated import (
    Key,
    Step,
    TranslatedInput,
    TranslatedOutput,
    TranslatedOutputs,
)
from pytest_mlms.author.legacy.translation_inputs import element_type_of, input_name
from pytest_mlms.author.legacy.translation_python import (
    output_name,
    translate_python_inputs,
    translate_python_outputs,
)

_BEST = 5  # classes
_CLASSES = "image-classification"
_RUN = "made by the code of preprocess, which agents run"


@dataclass(frozen=True)
class EmbeddedParts:
    """Inputs and outputs, and the keys of the code that agents must run for them."""

    inputs: list[TranslatedInput]
    outputs: TranslatedOutputs
    code: tuple[str, ...]


def translate_embedded(manifest: LegacyManifest, predictor: str, allow_code: bool) -> EmbeddedParts:
    """Return the parts that the code describes; raises UnclearManifest for unknown code.

    With ``allow_code`` unknown code is one that agents run.
    """
    unknown = tuple(_unknown(manifest)) if allow_code else ()
    if "preprocess" in unknown:
        inputs = [_input(manifest, number, predictor) for number in range(len(manifest.inputs))]
    else:
        inputs = translate_python_inputs(manifest, predictor)
    if "postprocess" in unknown:
        outputs = _outputs(manifest, predictor, _has_classes(manifest))
    else:
        outputs = translate_python_outputs(manifest, predictor)
        if "preprocess" in unknown and outputs.task != _CLASSES:
            outputs = _outputs(manifest, predictor, is_scored=False)
    if unknown:
        noted = [*outputs.notes, *_notes(manifest, unknown)]
        outputs = TranslatedOutputs(outputs.task, outputs.outputs, noted, outputs.digests)
    return EmbeddedParts(inputs, outputs, unknown)


def _unknown(manifest: LegacyManifest) -> Iterator[str]:
    """Yield the keys whose code is there and of an unknown form."""
    if recognise_preprocess(manifest.preprocess) is None:
        yield "preprocess"
    if manifest.postprocess and recognise_postprocess(manifest.postprocess) is None:
        yield "postprocess"


def _notes(manifest: LegacyManifest, keys: Collection[str]) -> Iterator[Note]:
    for key in keys:
        text = f"{key} is Python of an unknown form, which agents run, as you allow it"
        yield Note(manifest.line[key], text)


def _has_classes(manifest: LegacyManifest) -> bool:
    """Return whether the code returns the scores of classes, of the only output."""
    return len(manifest.outputs) == 1 and manifest.outputs[0].type == "classification"


def _input(manifest: LegacyManifest, number: int, predictor: str) -> TranslatedInput:
    """Return an input that the dataset doesn't bring: the code makes it of a file."""
    spec = manifest.inputs[number]
    name = input_name(spec, number, predictor)
    element_type, why = element_type_of(spec)
    part = (
        *name.keys(spec.line["input_layer"]),
        Key("type", "tensor", _RUN, manifest.line["preprocess"]),
        Key("element_type", element_type, why, spec.line["element_type"]),
    )
    return TranslatedInput(name, element_type, _axes(spec), part)


def _axes(spec: LegacyInput) -> list[int | None] | None:
    """Return the sizes behind the batch, as far as they don't depend on what the code does."""
    if spec.type != "image":
        return None
    return [None, None, 3] if spec.layout == "HWC" else [3, None, None]


def _outputs(manifest: LegacyManifest, predictor: str, is_scored: bool) -> TranslatedOutputs:
    """Return the outputs of code: scores of classes, or tensors that nothing scores."""
    line = manifest.line["postprocess"]
    kind = "classification" if is_scored else "tensor"
    outputs = []
    for place in range(len(manifest.outputs)):
        named = output_name(manifest, RecognisedOutput(place, kind, ()), predictor)
        outputs.append(TranslatedOutput(named, kind))
    if not is_scored:
        note = Note(line, "nothing here scores what the code returns; only speed is measured")
        return TranslatedOutputs("tensor-processing", outputs, (note,))
    files = manifest.files
    names = class_names(
        files.labels, files.labels_md5, files.line["features_path"], files.line["features_checksum"]
    )
    top = Step("top_k", {"k": _BEST, **names.parameters}, names.why, names.line)
    scored = TranslatedOutput(outputs[0].name, kind, (top,), "scores by the code of postprocess")
    return TranslatedOutputs(_CLASSES, (scored,), names.notes, names.digests)
