"""Outputs of a native manifest from the one output of the dialects A, as its agents read them.

The modality of a manifest is the kind of its inputs and outputs, by which tables count."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from pytest_mlms.author.legacy.labels import ClassNames, class_names
from pytest_mlms.author.legacy.records import LegacyManifest, LegacyOutput, Note, UnclearManifest
from pytest_mlms.author.legacy.translated import (
    Step,
    TensorName,
    TranslatedOutput,
    TranslatedOutputs,
)

Modality = Literal[
    "image classification",
    "object detection",
    "semantic segmentation",
    "instance segmentation",
    "image enhancement",
    "question answering",
    "other",
]

_SEGMENTING = re.compile(r"(^|[-_ ])fcn", re.IGNORECASE)
_REGIONS = re.compile(r"(^|[-_ ])sod($|[-_ ])", re.IGNORECASE)
_STYLE = re.compile(r"(^|[-_ ])style($|[-_ ])", re.IGNORECASE)
"""Names of networks whose output of the type feature is no classification."""

_OF_TYPE: Mapping[str, Modality] = {
    "classification": "image classification",
    "feature": "image classification",
    "coordinates": "image classification",
    "label": "image classification",
    "boundingbox": "object detection",
    "boundingboxes": "object detection",
    "semanticsegment": "semantic segmentation",
    "instancesegment": "instance segmentation",
    "masks": "instance segmentation",
    "image": "image enhancement",
    "general": "question answering",
    "text": "question answering",
}


def modality_of(manifest: LegacyManifest) -> Modality:
    """Return the modality by the types of the outputs, and by the name where it is an exception."""
    types = {output.type for output in manifest.outputs}
    if is_segmentation(manifest):
        return "semantic segmentation"
    if "feature" in types and _STYLE.search(manifest.name):
        return "image enhancement"
    for kind in ("masks", *sorted(types)):
        if kind in types and kind in _OF_TYPE:
            return _OF_TYPE[kind]
    return "other"


def is_segmentation(manifest: LegacyManifest) -> bool:
    """Return whether an output of the type feature has a class for each pixel."""
    return _has_feature(manifest) and bool(_SEGMENTING.search(manifest.name))


def is_region_score(manifest: LegacyManifest) -> bool:
    """Return whether an output of the type feature has scores of regions."""
    return _has_feature(manifest) and bool(_REGIONS.search(manifest.name))


def _has_feature(manifest: LegacyManifest) -> bool:
    return any(output.type == "feature" for output in manifest.outputs)


_UNCLEAR = "unclear output"
_BEST = 5  # classes

_BY_POSITION = "found by its position in the model"
_SOFTMAX = "added: the agent reported logits as probabilities; the best classes are the same"
_FEATURE = "the type feature is a classification by labels"
_XYXY_PIXELS = "corrected: GluonCV's boxes are x, y in pixels, and were read as y, x in shares"
_XYXY = "corrected: the boxes are xmin, ymin, xmax, ymax, as the agents of 2021 read them"
_MASK_SIZE = "added: a mask has the size of what the model gets, and its label that of the picture"
_OFFSET = (
    "corrected: the original's names lack the background, so that each box was named one class on; "
    "classes are the ids of COCO's categories"
)


def translate_outputs(manifest: LegacyManifest, predictor: str) -> TranslatedOutputs:
    """Return the outputs. Raises UnclearManifest where it can't be told what they are."""
    output = manifest.outputs[0]
    translate = _TYPES.get(_type_of(manifest))
    if translate is None:
        text = f"an output of the type {output.type!r} is unknown"
        known = ", ".join(sorted(_TYPES))
        raise UnclearManifest(output.line["type"], f"{text}; write one of {known}", _UNCLEAR)
    return translate(manifest, output, predictor)


def _type_of(manifest: LegacyManifest) -> str:
    """Return the type of an output, with the exceptions among those of the type feature."""
    if is_segmentation(manifest):
        return "semanticsegment"
    return "raw" if is_region_score(manifest) else manifest.outputs[0].type


def _name(
    output: LegacyOutput, keys: Sequence[str], predictor: str, own: str, position: int = 0
) -> TensorName:
    """Return the name of an output, or its position and our own name."""
    layer = next((output.layers[key] for key in keys if key in output.layers), None)
    if predictor == "pytorch":
        return TensorName(own, why="a name of our own: a TorchScript's outputs go by their order")
    if isinstance(layer, int):
        return TensorName(own, layer, _BY_POSITION)
    if layer:
        return TensorName(layer)
    if predictor == "tensorrt" or (predictor == "caffe" and not output.layers):
        return TensorName("prob", why="the agent's default")
    if predictor == "cntk":
        return TensorName("z", why="the agent's default")
    return TensorName(own, position, f"{_BY_POSITION}, as the original has no name")


def _classification(
    manifest: LegacyManifest, output: LegacyOutput, predictor: str
) -> TranslatedOutputs:
    name = _name(output, ("probabilities_layer", "layer_name"), predictor, "probabilities")
    why = _FEATURE if output.type == "feature" else ""
    names = _names_of(output)
    steps = [*_softmax(output, predictor), _top(names)]
    part = TranslatedOutput(name, "classification", steps, why)
    notes = _notes_of(output, names)
    if steps[0].why == _SOFTMAX:
        notes.append(Note(output.line[""], f"softmax is {_SOFTMAX}"))
    return TranslatedOutputs("image-classification", (part,), notes, names.digests)


def _notes_of(output: LegacyOutput, names: ClassNames) -> list[Note]:
    notes = list(names.notes)
    if output.element_type == "float32s":
        line = output.line["element_type"]
        notes.append(Note(line, "unknown elements 'float32s'; did you mean 'float32'?"))
    return notes


def _softmax(output: LegacyOutput, predictor: str) -> Iterator[Step]:
    if output.transform == "softmax":
        yield Step("softmax")
    elif output.transform:
        text = f"probabilities_transform {output.transform!r} is unknown; write softmax"
        raise UnclearManifest(output.line["probabilities_transform"], text, _UNCLEAR)
    elif predictor == "pytorch":
        yield Step("softmax", why=_SOFTMAX)


def _names_of(output: LegacyOutput) -> ClassNames:
    return class_names(
        output.labels,
        output.labels_md5,
        output.line["features_url"],
        output.line["features_checksum"],
    )


def _top(names: ClassNames) -> Step:
    return Step("top_k", {"k": _BEST, **names.parameters}, names.why, names.line)


def _detection(manifest: LegacyManifest, output: LegacyOutput, predictor: str) -> TranslatedOutputs:
    outputs, notes = _objects(manifest, output, predictor)
    digests = _names_of(output).digests
    return TranslatedOutputs("object-detection", outputs, notes, digests)


def _objects(
    manifest: LegacyManifest, output: LegacyOutput, predictor: str
) -> tuple[list[TranslatedOutput], list[Note]]:
    """Return the outputs of boxes, scores and classes, and warnings.

    Raises UnclearManifest where they are one output.
    """
    for key in ("boxes_layer", "probabilities_layer", "classes_layer"):
        if output.layers.get(key) == "":
            text = f"{key} is empty: boxes, scores and classes are one output, which no agent read"
            raise UnclearManifest(output.line[key], f"{text}; write a layer for each", _UNCLEAR)
    names = _names_of(output)
    notes = _notes_of(output, names)
    boxes = _name(output, ("boxes_layer",), predictor, "boxes", position=1)
    scores = _name(output, ("probabilities_layer",), predictor, "scores")
    reader = _box_reader(manifest, output, predictor)
    if reader.why:
        notes.append(Note(output.line[""], reader.why))
    if names.lacks_background and predictor == "tensorflow":
        notes.append(Note(output.line["features_url"], _OFFSET))
    steps = [reader, *_classes(names, predictor)]
    if predictor == "mxnet":
        why_empty = "rows without an object have a score below 0"
        steps.insert(1, Step("min_score", {"score": 0}, why_empty))
    outputs = [TranslatedOutput(boxes, "boxes", steps)]
    if "classes_layer" in output.layers:
        outputs.append(TranslatedOutput(scores, "scores"))
        classes = _name(output, ("classes_layer",), predictor, "classes")
        outputs.append(TranslatedOutput(classes, "classes"))
    else:
        best = Step("best_class", why="a box has a score for each class; the agent took the best")
        outputs.insert(0, TranslatedOutput(scores, "scores", (best,)))  # as PyTorch returns them
    return outputs, notes


def _classes(names: ClassNames, predictor: str) -> Iterator[Step]:
    """Yield the step that says which category each class is."""
    if names.lacks_background and predictor == "tensorflow":
        yield Step("classes", {"ids": "same"}, _OFFSET)
    elif names.source:
        yield Step("classes", names.parameters, names.why, names.line)


def _box_reader(manifest: LegacyManifest, output: LegacyOutput, predictor: str) -> Step:
    """Return the step that reads boxes; its comment says what was corrected."""
    if predictor == "mxnet":
        _check_scale(manifest, output)
        why = "" if output.corners else _XYXY_PIXELS
        return Step("boxes", {"format": "xyxy", "units": "pixels"}, why)
    if predictor == "pytorch":
        return Step(
            "boxes", {"format": "xyxy", "units": "relative"}, "" if output.corners else _XYXY
        )
    order = _ORDERS.get(tuple(output.corners))
    if order is None:
        text = "the columns of a box are in an order that is unknown here"
        advice = "write all four of ymin_index, xmin_index, ymax_index and xmax_index"
        raise UnclearManifest(output.line[""], f"{text}; {advice}", _UNCLEAR)
    units = "relative" if output.scale_width is None else "pixels"
    _check_scale(manifest, output)
    return Step("boxes", {"format": order, "units": units})


_ORDERS = {(): "yxyx", (0, 1, 2, 3): "yxyx", (1, 0, 3, 2): "xyxy"}
"""Columns of ymin, xmin, ymax and xmax -> the order of a box."""


def _check_scale(manifest: LegacyManifest, output: LegacyOutput) -> None:
    """Raise UnclearManifest where boxes are divided by something else than the input's size."""
    given = (output.scale_height, output.scale_width)
    size = tuple(manifest.inputs[0].dimensions[1:]) if manifest.inputs else ()
    if given != (None, None) and given != size:
        text = "scale_width and scale_height are not the input's width and height; correct them"
        raise UnclearManifest(output.line["scale_width"], text, _UNCLEAR)


def _instance_segmentation(
    manifest: LegacyManifest, output: LegacyOutput, predictor: str
) -> TranslatedOutputs:
    outputs, notes = _objects(manifest, output, predictor)
    masks = _name(output, ("masks_layer",), predictor, "masks", position=3)
    step = Step("masks", {"frame": "box"}, "a mask is that of its box, and half of it the limit")
    outputs.append(TranslatedOutput(masks, "masks", (step,)))
    digests = _names_of(output).digests
    return TranslatedOutputs("instance-segmentation", outputs, notes, digests)


def _segmentation(
    manifest: LegacyManifest, output: LegacyOutput, predictor: str
) -> TranslatedOutputs:
    name = _name(output, ("masks_layer", "layer_name"), predictor, "scores")
    steps: list[Step] = []
    if predictor != "tensorflow":
        best = "the best class of each pixel; the model has a score for each, on axis 1"
        steps.append(Step("argmax", {"axis": 1}, best))
    steps.append(Step("mask", {"resize": "nearest"}, _MASK_SIZE))
    part = TranslatedOutput(name, "mask", steps)
    notes = _notes_of(output, _names_of(output))
    return TranslatedOutputs("semantic-segmentation", (part,), notes)


def _image(manifest: LegacyManifest, output: LegacyOutput, predictor: str) -> TranslatedOutputs:
    keys = ("output_layer", "masks_layer")
    name = _name(output, keys, predictor, "image")
    notes = []
    if "masks_layer" in output.layers:
        text = "masks_layer names a picture, which the agents looked for in output_layer"
        notes.append(Note(output.line["masks_layer"], f"{text}; it is taken"))
    elif "output_layer" not in output.layers and predictor != "pytorch":
        notes.append(Note(output.line[""], "there is no output_layer; the first output is taken"))
    spec = manifest.inputs[0]
    layout = "NHWC" if predictor == "tensorflow" else "NCHW"
    parameters: dict[str, object] = {"layout": layout}
    for key, numbers in (("mean", spec.mean), ("scale", spec.scale)):
        if numbers:
            same = len(set(numbers)) == 1
            parameters[key] = numbers[0] if same else list(numbers)
    step = Step("image", parameters, "the reverse of the input's normalize, as the agents did")
    part = TranslatedOutput(name, "image", (step,))
    return TranslatedOutputs("super-resolution", (part,), notes)


def _raw(manifest: LegacyManifest, output: LegacyOutput, predictor: str) -> TranslatedOutputs:
    name = _name(output, ("probabilities_layer", "layer_name"), predictor, "probabilities")
    part = TranslatedOutput(name, "tensor")
    note = Note(output.line["type"], "nothing here scores this output; only speed is measured")
    return TranslatedOutputs("tensor-processing", (part,), (note,))


_TYPES: Mapping[str, Callable[[LegacyManifest, LegacyOutput, str], TranslatedOutputs]] = {
    "classification": _classification,
    "feature": _classification,
    "coordinates": _classification,
    "boundingbox": _detection,
    "instancesegment": _instance_segmentation,
    "semanticsegment": _segmentation,
    "image": _image,
    "raw": _raw,
}
