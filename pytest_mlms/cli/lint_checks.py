"""Checks of a manifest's ONNX files and dataset on this host, without running a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from mlms_predictors import Tensor

from pytest_mlms.core.errors import ArtifactError, DatasetError, MlmsError
from pytest_mlms.core.records import Artifact
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.manifest.schema import BATCH, Input, Output
from pytest_mlms.manifest.sources import is_remote
from pytest_mlms.measure.agent.signature import check_fit, check_signature, named_tensors
from pytest_mlms.measure.evaluate.inputs import input_shape, known_axes
from pytest_mlms.measure.evaluate.tasks.classification import check_labels
from pytest_mlms.measure.pipeline import Dataset, open_dataset, read_labels
from pytest_mlms.measure.pipeline.outputs import ONE_COLUMN_ADVICE
from pytest_mlms.measure.pipeline.step_files import class_numbers_of, with_local_files
from pytest_mlms.measure.structure.onnx_structure import OnnxSignature, read_signature
from pytest_mlms.provide.artifacts.digest import without_record
from pytest_mlms.provide.artifacts.fetch import fetch


def check_models(loaded: LoadedManifest) -> Iterator[MlmsError]:
    """Yield what doesn't fit between a manifest and each of its local ONNX files.

    Files that are missing are left out. Raises ImportError without onnx.
    """
    for model in loaded.manifest.models:
        graph = loaded.model_files(model)["graph"]
        if not _is_local_onnx(graph):
            continue
        try:
            signature = read_signature(Path(graph.source))
        except MlmsError as error:
            yield MlmsError(f"{graph.place}: {error}")
        else:
            yield from _errors_of(loaded, signature)


def _is_local_onnx(graph: Artifact) -> bool:
    path = Path(graph.source)
    return graph.member is None and path.suffix == ".onnx" and path.is_file()


def _errors_of(loaded: LoadedManifest, signature: OnnxSignature) -> Iterator[MlmsError]:
    try:
        inputs = named_tensors(loaded, "inputs", signature.inputs).tensors
        outputs = named_tensors(loaded, "outputs", signature.outputs).tensors
        check_signature(loaded, inputs, outputs)
    except MlmsError as error:
        yield error
        return
    tensors = {tensor.name: tensor for tensor in inputs}
    for number, spec in enumerate(loaded.manifest.inputs):
        problem = _input_error(loaded, spec, tensors[spec.name])
        if problem:
            yield MlmsError(f"{loaded.place('inputs', number)}: {problem}")
    yield from _output_errors(loaded, outputs)


def _error_of(check: Callable[[], object]) -> MlmsError | None:
    """Return the error that a check raises; None where it passes."""
    try:
        check()
    except MlmsError as error:
        return error
    return None


def _input_error(loaded: LoadedManifest, spec: Input, tensor: Tensor) -> MlmsError | None:
    """Return the first thing that is wrong with the shapes of an input."""
    check = _check_random if loaded.manifest.dataset is None else _check_dataset
    evaluate = loaded.manifest.evaluate
    checks = (
        [partial(check, spec, tensor)] if not (evaluate.named_shapes and spec.named_axes) else []
    )
    checks += [
        partial(_check_random, spec.sized(sizes), tensor)
        for sizes in evaluate.named_shapes.values()
    ]
    for size in evaluate.batch_sizes:
        for check_size in checks:
            error = _error_of(partial(check_size, size))
            if error:
                return error
    return None


def _check_random(spec: Input, tensor: Tensor, size: int) -> None:
    check_fit(tensor, tensor.dtype, known_axes(spec, size))
    check_fit(tensor, tensor.dtype, input_shape(tensor, spec, size))


def _check_dataset(spec: Input, tensor: Tensor, size: int) -> None:
    """Check the known axes of a batch; a dataset's own arrays have any shape behind the batch."""
    axes = known_axes(spec, size)
    if not axes and tensor.shape:
        axes = [size, *tensor.shape[1:]]
    check_fit(tensor, tensor.dtype, axes)


def _output_errors(loaded: LoadedManifest, outputs: Sequence[Tensor]) -> Iterator[MlmsError]:
    """Yield errors of outputs: their shapes, and the classes of the classification."""
    shapes = {tensor.name: tensor.shape for tensor in outputs}
    for number, output in enumerate(loaded.manifest.outputs):
        shape = shapes[output.name]
        if output.shape and shape and not _may_be(output.shape, shape):
            place = loaded.place("outputs", number)
            found = f"output {output.name!r} is {shape} by the model"
            yield MlmsError(f"{place}: {found}; correct its shape in the manifest")
            return
    yield from _class_errors(loaded, shapes)


def _may_be(written: Sequence[int | str], shape: Sequence[int | None]) -> bool:
    """Return whether an output of a shape, None for a free axis, may be as a manifest says."""
    if len(written) != len(shape):
        return False
    pairs = zip(written, shape, strict=True)
    return all(size in (BATCH, axis) or axis is None for size, axis in pairs)


def known_classes(loaded: LoadedManifest) -> int | None:
    """Return how many classes the local ONNX files have; None where they don't tell.

    Raises ImportError without onnx, MlmsError for a file that can't be read.
    """
    output = loaded.manifest.classification
    if output is None or output.has_class_numbers:
        return None
    if output.threshold is not None:
        return 2
    for model in loaded.manifest.models:
        graph = loaded.model_files(model)["graph"]
        if not _is_local_onnx(graph):
            continue
        signature = read_signature(Path(graph.source))
        for tensor in named_tensors(loaded, "outputs", signature.outputs).tensors:
            classes = _axes_of_classes(output, tensor.shape)
            if tensor.name == output.name and len(classes) == 1:
                return classes[0]
    return None


def _axes_of_classes(output: Output, shape: Sequence[int | None]) -> list[int | None]:
    """Return the axes of an output behind its batch that aren't 1."""
    others = list(shape)
    if others and not output.batch:
        del others[output.batch_axis or 0]
    return [axis for axis in others if axis != 1]


def _class_errors(
    loaded: LoadedManifest, shapes: Mapping[str, Sequence[int | None]]
) -> Iterator[MlmsError]:
    """Yield errors of the output that is a classification: its axes, and the names of classes."""
    output = loaded.manifest.classification
    if output is None:
        return
    shape = shapes[output.name]
    classes = _axes_of_classes(output, shape)
    place = loaded.place("outputs", loaded.manifest.outputs.index(output))
    problem = _problem_of_axes(output, shape, classes) if shape else ""
    if problem:
        yield MlmsError(f"{place}: output {output.name!r} is {shape}, {problem}")
        return
    labels = loaded.labels_file
    number = known_classes(loaded) if _is_of_one(output) else next(iter(classes), None)
    if labels is None or number is None:
        return
    path = Path(labels.source)
    if path.is_file() and labels.member is None:
        error = _error_of(partial(read_labels, path, number))
        if error:
            yield MlmsError(f"{labels.place}: {error}")


def _is_of_one(output: Output) -> bool:
    """Return whether the steps of a classification take one number an input."""
    return output.has_class_numbers or output.threshold is not None


def _problem_of_axes(
    output: Output, shape: Sequence[int | None], classes: Sequence[int | None]
) -> str:
    """Return why a classification can't be scored by its axes, and what to write; else "".

    ``classes`` are the axes behind the batch that aren't 1.
    """
    if len(classes) > 1:
        return "not inputs x classes; name another output, or write 'type: tensor'"
    if not _is_of_one(output):
        return "" if classes else f"one number an input; {ONE_COLUMN_ADVICE}"
    if classes in ([], [None]):
        return ""
    step = "class_numbers" if output.has_class_numbers else "threshold"
    return f"and the step {step!r} takes one number an input; leave it out"


def check_dataset(loaded: LoadedManifest, cache: Path) -> Iterator[DatasetError | ArtifactError]:
    """Yield the error in a local dataset: of its form, its labels, or its first element.

    An archive is unpacked into the cache. Raises MlmsError where a library is missing that reads
    the elements.
    """
    artifact = loaded.dataset_file
    if artifact is None or is_remote(artifact.source):
        return
    try:
        _check(loaded, fetch(without_record(artifact), cache), cache)
    except (DatasetError, ArtifactError) as error:
        yield error


def _check(loaded: LoadedManifest, path: Path, cache: Path) -> None:
    manifest = loaded.manifest
    entry = manifest.dataset
    assert entry is not None, "its file is there"
    files = {
        name: fetch(without_record(artifact), cache)
        for name, artifact in loaded.step_files.items()
        if not is_remote(artifact.source)
    }
    inputs = [with_local_files(spec, files) for spec in manifest.inputs]
    place = loaded.place("dataset", "source")
    classes = _class_numbers(loaded, files)
    dataset = open_dataset(path, inputs, place, entry.source, manifest.label_form, classes)
    _check_classes(loaded, dataset)
    are_files_here = all(_has_files(spec, files) for spec in manifest.inputs)
    if entry.skip_corrupt or not are_files_here:
        return
    dataset.batch([0])
    if dataset.labels is not None:
        dataset.label(0)


def _class_numbers(loaded: LoadedManifest, files: Mapping[str, Path]) -> Mapping[str, int]:
    """Return the numbers of classes by their names; 0 for all if the names aren't here yet."""
    names = loaded.labels_file
    if names is not None and is_remote(names.source):
        return _AnyName()
    return class_numbers_of(loaded.manifest, files)


class _AnyName(dict[str, int]):
    """A mapping that has every name, of class 0."""

    def get(self, key: object, default: object = None) -> int:
        return 0


def _has_files(spec: Input, files: Mapping[str, Path]) -> bool:
    """Return whether all files that the steps of an input name are among ``files``."""
    sources: set[str] = set()
    for step in spec.steps:
        sources.update(file.source for file in step.files)
    return sources <= files.keys()


def _check_classes(loaded: LoadedManifest, dataset: Dataset) -> None:
    """Compare labels that are classes with the number of classes by local files."""
    if dataset.labels is None or loaded.manifest.classification is None:
        return
    classes = _number_of_classes(loaded)
    if classes is not None:
        check_labels(dataset, np.asarray(dataset.labels), classes)


def _number_of_classes(loaded: LoadedManifest) -> int | None:
    """Return how many classes there are by the file of their names, or else by an ONNX file."""
    names = loaded.labels_file
    if names is not None and not is_remote(names.source) and names.member is None:
        return len(read_labels(Path(names.source)))
    try:
        return known_classes(loaded)
    except ImportError:
        return None
