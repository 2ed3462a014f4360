"""Translation of a legacy manifest to the text of a native one.

Above each line that was decided rather than copied is a comment that says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_mlms.author.legacy.outside_dataset import OutsideDataset, plain_name
from pytest_mlms.author.legacy.records import LegacyManifest, Note, Refused, UnclearManifest
from pytest_mlms.author.legacy.translated import (
    Block,
    Key,
    Part,
    TranslatedFiles,
    TranslatedInput,
    TranslatedOutput,
    TranslatedOutputs,
    Translation,
    decisions_of,
    native_lines,
)
from pytest_mlms.author.legacy.translation_code import translate_embedded
from pytest_mlms.author.legacy.translation_files import translate_files
from pytest_mlms.author.legacy.translation_inputs import translate_input
from pytest_mlms.author.legacy.translation_outputs import translate_outputs
from pytest_mlms.core.records import Place
from pytest_mlms.manifest.load import shown

_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_RELEASE = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){0,2}")
_UNCLEAR = "unclear version"
_WITH_OUTPUTS = ("tensorflow", "pytorch")
_WITH_INPUTS = ("tensorflow", "pytorch", "mxnet", "caffe2")
"""Predictors whose options name inputs and outputs of files that don't."""


def translate(
    manifest: LegacyManifest,
    folder: Path = Path(),
    datasets: Sequence[OutsideDataset] = (),
    allow_code: bool = False,
) -> Translation:
    """Return the native manifest, for a place in a folder.

    With ``allow_code`` Python of an unknown form stands for inputs and outputs that agents make
    by running it. Raises Refused, with file and line, where there is none.
    """
    try:
        return _translation(manifest, folder, datasets, allow_code)
    except UnclearManifest as error:
        place = Place(shown(manifest.path), error.line)
        raise Refused(place, error.text, error.kind) from error


def _translation(
    manifest: LegacyManifest, folder: Path, datasets: Sequence[OutsideDataset], allow_code: bool
) -> Translation:
    files = translate_files(manifest)
    _check_parts(manifest)
    code: Sequence[str] = ()
    if manifest.dialect == "B" and manifest.preprocess:
        embedded = translate_embedded(manifest, files.predictor, allow_code)
        inputs, outputs, code = embedded.inputs, embedded.outputs, embedded.code
    else:
        numbers = range(len(manifest.inputs))
        inputs = [translate_input(manifest, number, files.predictor) for number in numbers]
        outputs = translate_outputs(manifest, files.predictor)
    keys = [
        *_beginning(manifest, outputs.task),
        Key("models", (_model_part(files, inputs, outputs),), line=manifest.line["model"]),
        Key("inputs", tuple(spec.part for spec in inputs), line=manifest.line["inputs"]),
        _outputs_key(manifest, outputs),
        *_dataset(manifest, folder, datasets),
        *_ending(manifest),
    ]
    notes = [*manifest.notes, *files.notes, *outputs.notes]
    for spec in inputs:
        notes += spec.notes
    return Translation(
        lines=native_lines(keys),
        has_accuracy=any(output.type != "tensor" for output in outputs.outputs),
        decisions=list(_decisions(manifest, keys)),
        code=code,
        digests=[*files.digests, *outputs.digests],
        notes=sorted(notes),
    )


def _check_parts(manifest: LegacyManifest) -> None:
    for name, parts in (("inputs", manifest.inputs), ("outputs", manifest.outputs)):
        if not parts:
            raise UnclearManifest(
                manifest.line[name], f"there are no {name}; add them", "unclear input"
            )
    if manifest.dialect != "B" and manifest.before:
        text = "before_preprocess is Python, which is never run"
        advice = "write the model's steps into a native manifest (docs/steps.md)"
        line = manifest.line["before_preprocess"]
        raise UnclearManifest(line, f"{text}; {advice}", "unknown Python")


def _beginning(manifest: LegacyManifest, task: str) -> Iterator[Key]:
    """Yield the keys before the models."""
    name = native_name(manifest)
    why_name = "" if name == manifest.name else f"the original's name is {manifest.name!r}"
    origin = f"From a manifest of MLModelScope, {manifest.path.name}, dialect {manifest.dialect}"
    about = "; ".join(filter(None, [origin, _claims(manifest), why_name]))
    lines = manifest.line
    yield Key("name", name, about, lines["name"])
    version, why = _version(manifest)
    yield Key("version", version, why, lines["version"])
    yield Key("task", task)
    if manifest.description:
        yield Key("description", Block(manifest.description), line=lines["description"])
    if manifest.license:
        yield Key("license", manifest.license, line=lines["license"])
    if manifest.references:
        yield Key("references", list(manifest.references), line=lines["references"])


def native_name(manifest: LegacyManifest) -> str:
    """Return the name with the characters that names may have."""
    name = _NO_NAME.sub("_", manifest.name).lstrip("._-")
    if not name:
        text = f"the name {manifest.name!r} has neither letters nor digits; write another"
        raise UnclearManifest(manifest.line["name"], text, "unclear name")
    return name


def _version(manifest: LegacyManifest) -> tuple[str, str]:
    """Return the version with three numbers, and why if it is written with fewer."""
    written = manifest.version
    if not written:
        return "0.0.0", "the original has no version"
    if not _RELEASE.fullmatch(written):
        text = f"the version {written!r} is none; write three numbers, as in 1.0.0"
        raise UnclearManifest(manifest.line["version"], text, _UNCLEAR)
    missing = 2 - written.count(".")
    return f"{written}{'.0' * missing}", f"the original has {written}" if missing else ""


def _model_part(
    files: TranslatedFiles, inputs: Sequence[TranslatedInput], outputs: TranslatedOutputs
) -> Part:
    options = {}
    if files.predictor in _WITH_INPUTS and all(spec.name.position is None for spec in inputs):
        described = [_described(spec) for spec in inputs]
        if all(described):
            options["inputs"] = "; ".join(described)
    if files.predictor in _WITH_OUTPUTS:
        names = _option_outputs(outputs.outputs)
        if names:
            options["outputs"] = "; ".join(names)
    if not options:
        return files.part
    return [*files.part, Key("options", options, "the file itself doesn't say these")]


def _described(spec: TranslatedInput) -> str:
    """Return the name, elements and sizes of an input, as options of predictors have them."""
    if spec.axes is None:
        return ""
    sizes = ["?", *("?" if size is None else str(size) for size in spec.axes)]
    return f"{spec.name.text} {spec.element_type}[{','.join(sizes)}]"


def _option_outputs(outputs: Sequence[TranslatedOutput]) -> list[str]:
    """Return the names of the outputs; none where some are found by their position."""
    names = [output.name.text for output in outputs if output.name.position is None]
    return names if len(names) == len(outputs) else []


def _outputs_key(manifest: LegacyManifest, outputs: TranslatedOutputs) -> Key:
    line = manifest.outputs[0].line["type"]
    if manifest.postprocess:
        line = manifest.line["postprocess"]
    return Key("outputs", tuple(_output_part(one, line) for one in outputs.outputs), line=line)


def _output_part(output: TranslatedOutput, line: int) -> Part:
    part = [*output.name.keys(line, output.why), Key("type", output.type)]
    if output.steps:
        part.append(Key("steps", tuple(output.steps)))
    return part


def _dataset(
    manifest: LegacyManifest, folder: Path, datasets: Sequence[OutsideDataset]
) -> Iterator[Key]:
    """Yield the dataset: the one that is given, or else the name of the training dataset."""
    name = manifest.training_dataset
    for dataset in datasets:
        if dataset.is_called(name):
            yield dataset.key(folder)
            return
    if plain_name(name) not in ("", "unknown"):
        why = f"the training dataset {name}; describe it in a datasets.yaml (docs/datasets.md)"
        yield Key("dataset", plain_name(name), why, manifest.line["attributes"])


def _ending(manifest: LegacyManifest) -> Iterator[Key]:
    if manifest.is_hidden:
        skipped = {"skip": {"*": "hidden: true in the original"}}
        yield Key("marks", skipped, line=manifest.line["hidden"])


def _decisions(manifest: LegacyManifest, keys: Sequence[Key]) -> Iterator[Note]:
    """Yield what was decided; of the name only that it has other characters."""
    first, *others = keys
    if first.value != manifest.name:
        text = f"name: the original's name is {manifest.name!r}"
        yield Note(first.line, text)
    for text, line in decisions_of(others):
        yield Note(line, text)


def _claims(manifest: LegacyManifest) -> str:
    """Return the figures that the original claims, "" for none."""
    claimed = ", ".join(f"{name} {figure}" for name, figure in manifest.claimed.items())
    if not claimed:
        return ""
    return f"it claims {claimed} on {manifest.training_dataset or 'an unknown dataset'}"
